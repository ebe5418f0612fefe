"""All jobs in a row, and the demo's own judgement of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'nsqsmart[spark]'")

from tests.rooms.spark.jobs.conftest import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(400)]


def test_every_count_is_checked_and_holds(run: Run, spark: SparkSession, tmp_path: Path) -> None:
    code, summary = run("demo", "--messages", 1500, "--keep", tmp_path)
    assert code == 0, summary
    assert (summary["ok"], summary["messages"], summary["requeued"]) == (True, 1500, 2)
    assert len(summary["checks"]) == 12
    assert all(summary["checks"].values())
    assert (tmp_path / "report.html").read_bytes().startswith(b"<!DOCTYPE html>")
    assert run("demo", "--keep", tmp_path)[0] == 1
