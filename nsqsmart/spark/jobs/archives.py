"""An archive: what the job ``archive`` writes, and how others read it.

::

    OUT/topic=orders/date=2026-03-01/hour=7/part-....parquet
    OUT/_spark_metadata      which of these files count: Spark's own log
    OUT/_nsqsmart            checkpoint and spool, unless they are elsewhere
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from nsqsmart.errors import ConfigError
from nsqsmart.spark.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACES = ("topic", "date", "hour")
FILE_LOG = "_spark_metadata"
OWN = "_nsqsmart"
_SCHEMA = f"{spark_schema(headers=True)}, date DATE, hour INT"
_NEEDED = {"value", "topic", "timestamp"}
_FILE = "file:"


def local(path: str) -> Path | None:
    """*path* in this machine's file system; None if it is an URL of another one."""
    if path.startswith(_FILE):
        return Path("/" + path.removeprefix(_FILE).lstrip("/"))
    return None if "://" in path else Path(path)


def is_there(spark: SparkSession, path: str) -> bool:
    """Whether *path* exists, in whatever file system Spark reaches."""
    try:
        spark.read.text(path)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return False
        raise
    return True


def read_archive(spark: SparkSession, path: str, topics: Sequence[str] | None = None) -> DataFrame:
    """The rows of an archive, or of a compacted one, or of any such Parquet; all columns there are.

    Raises ConfigError if it is none, or has nothing of one of *topics*.
    """
    try:
        found = set(spark.read.parquet(path).columns)
    except AnalysisException as error:
        raise ConfigError(f"{path} is no archive: {_reason(error)}") from error
    missing = sorted(_NEEDED - found)
    if missing:
        raise ConfigError(f"{path} is no archive of messages: it has no column {missing[0]}")
    # With types given, a topic whose name is a number stays text.
    rows = spark.read.schema(_SCHEMA).parquet(path).select(*_ordered(found))
    if not topics:
        return rows
    held = {row[0] for row in rows.select("topic").distinct().collect()}
    unknown = [topic for topic in topics if topic not in held]
    if unknown:
        others = ", ".join(sorted(held)) or "no rows"
        raise ConfigError(f"{path} holds nothing of topic {unknown[0]!r}; it has {others}")
    return rows.where(rows["topic"].isin(list(topics)))


def _ordered(found: set[str]) -> list[str]:
    every = [
        column.split()[0] for column in _SCHEMA.replace("MAP<STRING, STRING>", "MAP").split(", ")
    ]
    return [name for name in every if name in found]


def _reason(error: AnalysisException) -> str:
    known = {
        "PATH_NOT_FOUND": "there is no such folder",
        "UNABLE_TO_INFER_SCHEMA": "there are no Parquet files in it",
    }
    return known.get(error.getCondition() or "", str(error).split("\n")[0])
