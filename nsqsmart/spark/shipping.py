"""``--py-files`` for streaming sources, which Spark forgets (decisions#60)."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOLDER = "streaming_job"
_SHIPPED = ("*.zip", "*.egg", "*.py", "*.whl")


def reach_streaming(spark: SparkSession) -> None:
    """Link what was shipped to where Spark tells the streaming source to look for it."""
    if getattr(spark, "sparkContext", None) is None:
        return
    root = Path(SparkFiles.getRootDirectory())
    shipped = [found for pattern in _SHIPPED for found in root.glob(pattern)]
    if not shipped:
        return
    folder = root / _FOLDER
    folder.mkdir(exist_ok=True)
    for found in shipped:
        with contextlib.suppress(FileExistsError):
            (folder / found.name).symlink_to(found)
