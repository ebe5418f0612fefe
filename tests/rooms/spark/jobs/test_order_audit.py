"""What is out of order, missing or there twice, and what only looks like it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'nsqsmart[spark]'")

from tests.rooms.spark.jobs.conftest import Run
from tests.rooms.spark.jobs.made import SIZE, row, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

KEYED = (
    *("--key", "substring(CAST(value AS STRING), 1, 1)"),
    *("--sequence", "CAST(substring(CAST(value AS STRING), 2) AS INT)"),
)


def figures(summary: dict[str, Any]) -> tuple[int, int, int, int]:
    names = ("duplicates", "inversions", "holes", "key_inversions")
    return tuple(summary[name] for name in names)


def test_an_archive_in_order_and_one_that_is_not(
    run: Run, spark: SparkSession, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    rows = [row(number, value=b"%c%d" % (97 + number % 2, number)) for number in range(20)]
    save(spark, good, rows)
    code, summary = run("order-audit", good, *KEYED)
    assert (code, figures(summary)) == (0, (0, 0, 0, 0))
    assert (summary["messages"], summary["with_offsets"]) == (20, 20)

    rows[5]["internal_id"], rows[6]["internal_id"] = 7, 6  # an inversion by id
    rows[10]["value"], rows[12]["value"] = b"a12", b"a10"  # an inversion of a key
    del rows[15]  # a hole
    rows.append(rows[3] | {"attempts": 2})  # a duplicate
    # Another partition has its own order.
    rows.append(row(0, partition=1, internal_id=1 << 50, value=b"a0"))
    save(spark, bad, rows)
    code, summary = run("order-audit", bad, *KEYED)
    assert (code, figures(summary)) == (1, (1, 1, 1, 1))
    assert [(each["place"], each["messages"]) for each in summary["partitions"]] == [
        ("0", 19),
        ("1", 1),
    ]
    kinds = [each["what"] for each in summary["findings"]]
    assert kinds == ["inversion", "key inversion", "hole", "duplicate"]
    hole = summary["findings"][2]
    assert (hole["expected"], hole["offset"]) == (15 * SIZE, 16 * SIZE)


def test_holes_and_duplicates_fail_only_a_strict_audit(
    run: Run, spark: SparkSession, tmp_path: Path
) -> None:
    save(spark, tmp_path / "a", [row(0), row(1), row(1), row(3)])
    assert run("order-audit", tmp_path / "a")[0] == 0
    assert run("order-audit", tmp_path / "a", "--strict")[0] == 1


def test_without_offsets_nothing_is_claimed_of_order(
    run: Run, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original = {"partition": None, "internal_id": None, "trace_id": None, "offset": None}
    rows = [row(n, **original, message_id=f"{n:016d}", size=None) for n in (0, 1, 2, 2)]
    save(spark, tmp_path / "a", rows)
    code, summary = run("order-audit", tmp_path / "a")
    assert (code, figures(summary)) == (0, (1, 0, 0, 0))
    assert summary["with_offsets"] == 0


def test_trace_logs_tell_the_same(run: Run, spark: SparkSession, tmp_path: Path) -> None:
    def line(number: int, event: str, **more: object) -> str:
        fields = {
            "v": 1,
            "ts": "2026-03-01T07:00:00.000001Z",
            "event": event,
            "nsq_trace_id": str(2**64 - 1 - number),
            "nsq_internal_id": str((1 << 50) + number),
            "topic": "orders",
            "partition": 1,
        }
        return json.dumps(fields | more, separators=(",", ":"))

    lines = [
        line(n, "published", nsq_disk_offset=str(n * SIZE), nsq_disk_size=SIZE)
        for n in range(10)
        if n != 4
    ]
    lines += [line(n, "finished", channel="c") for n in (0, 1, 1)]
    lines.append(line(20, "published", nsq_disk_offset=str(3 * SIZE + 1), nsq_disk_size=1))
    (tmp_path / "trace.jsonl").write_text("\n".join(["noise", *lines]))
    code, summary = run("order-audit", "--trace-log", tmp_path / "trace.jsonl")
    assert (code, figures(summary)) == (1, (1, 1, 2, 0))
    assert summary["messages"] == 10


def test_usage_that_cannot_be_meant(run: Run, tmp_path: Path) -> None:
    for arguments in ([], ["x", "--trace-log", "y"], ["x", "--key", "a"]):
        assert run("order-audit", *arguments)[0] == 1
