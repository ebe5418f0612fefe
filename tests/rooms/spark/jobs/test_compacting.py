"""Hours that are over become few files, whatever is killed when."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'nsqsmart[spark]'")

from nsqsmart.spark.jobs import archive_files
from tests.rooms.spark.jobs.conftest import Run
from tests.rooms.spark.jobs.made import row, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def numbers(spark: SparkSession, path: Path) -> list[int]:
    return sorted(int(each.value) for each in spark.read.parquet(str(path)).collect())


def test_closed_hours_are_rewritten_once_and_again_when_something_came_late(
    run: Run, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, into = tmp_path / "archive", tmp_path / "compacted"
    for first in range(0, 40, 10):
        save(spark, out, [row(number) for number in range(first, first + 10)])
    save(spark, out, [row(5000)])  # the hour after
    save(spark, out, [row(9000, topic="123", timestamp=datetime.now(UTC))])

    note = archive_files._note
    monkeypatch.setattr(archive_files, "_note", lambda *_: (_ for _ in ()).throw(OSError("killed")))
    assert run("archive", "--out", out, "--compact", into)[0] == 1
    monkeypatch.setattr(archive_files, "_note", note)

    def compact() -> tuple[int, int, int]:
        code, summary = run("archive", "--out", out, "--compact", into)
        assert code == 0
        done = summary["compacted"]
        return done["hours"], done["unchanged"], done["open"]

    assert compact() == (2, 0, 1)
    assert numbers(spark, into) == [*range(40), 5000]
    assert len(list(into.glob("topic=orders/date=2026-03-01/hour=7/*.parquet"))) == 1
    assert compact() == (0, 2, 1)
    save(spark, out, [row(41)])
    assert compact() == (1, 1, 1)
    assert numbers(spark, into) == [*range(40), 41, 5000]


def test_an_archive_is_not_compacted_into_itself(
    run: Run, spark: SparkSession, tmp_path: Path
) -> None:
    save(spark, tmp_path / "archive", [row(1)])
    code, summary = run("archive", "--out", tmp_path / "archive", "--compact", tmp_path / "archive")
    assert code == 1
    assert "is inside the archive" in summary["error"]
