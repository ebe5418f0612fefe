"""The jobs under spark-submit, whose word about the master counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pyspark = pytest.importorskip(
    "pyspark", reason="PySpark is not installed: pip install 'nsqsmart[spark]'"
)

from tests.helpers import PACKAGE
from tests.rooms.spark.jobs.made import row, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(400)]


# Spark's own 200 partitions are minutes of starting Python for three rows.
_QUICK = ["--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.ui.enabled=false"]


def submit(*arguments: object) -> subprocess.CompletedProcess[str]:
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    return subprocess.run(
        [str(program), "--master", "local[3]", *_QUICK, *map(str, arguments)],
        env=os.environ
        | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_job_can_be_submitted(spark: SparkSession, tmp_path: Path) -> None:
    save(spark, tmp_path / "archive", [row(number) for number in range(3)])
    job = PACKAGE / "spark" / "__main__.py"
    done = submit(job, "order-audit", tmp_path / "archive", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["messages"] == 3


def test_the_master_is_the_one_that_was_submitted_to(spark: SparkSession, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from nsqsmart.spark import session\n"
        "spark = session('x', spark_ui_enabled='false')\n"
        "print('master', spark.sparkContext.master)\n"
        "spark.stop()\n"
    )
    assert "master local[3]" in submit(program).stdout
