"""What goes back to NSQ: each row, where it was, in its order, with its trace id."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'nsqsmart[spark]'")

import nsqsmart
from nsqsmart.embedded import Cluster
from tests.rooms.spark.jobs.conftest import Run
from tests.rooms.spark.jobs.made import row, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

HIGHEST = -1  # 2**64 - 1, as Spark's BIGINT holds it


@pytest.fixture
def target() -> Iterator[Cluster]:
    with Cluster(dialect="redesigned", nsqds=2, lookupds=1) as cluster:
        admin = nsqsmart.Admin(cluster.url)
        admin.create_topic("again", partitions=2)
        admin.create_channel("again", "c")
        yield cluster


@pytest.fixture
def archive(spark: SparkSession, tmp_path: Path) -> Path:
    """Two partitions, not written in their order."""
    made = tmp_path / "archive"
    rows = [row(n, trace_id=n + 1) for n in range(100)]
    rows += [row(n, partition=1, value=b"x%d" % n, trace_id=HIGHEST) for n in range(30)]
    save(spark, made, rows[::-1])
    return made


def test_partitions_order_and_trace_ids_are_kept_and_the_manifest_says_what_was_done(
    run: Run, target: Cluster, archive: Path
) -> None:
    code, summary = run(
        *("replay", archive, "--address", target.url, "--to-topic", "again", "--keep-partitions"),
        *("--since", "2026-03-01T07:00:10Z", "--until", "2026-03-01T08:01:00+01:00"),
        *("--rate", 1_000_000),
    )
    assert (code, summary["rows"]) == (0, 50 + 20)
    first, second = target.stored("again", 0), target.stored("again", 1)
    assert [each.body for each in first] == [b"%08d" % n for n in range(10, 60)]
    assert [each.trace_id for each in first] == list(range(11, 61))
    assert [each.body for each in second] == [b"x%d" % n for n in range(10, 30)]
    assert {each.trace_id for each in second} == {2**64 - 1}
    (manifest,) = (archive / "_nsqsmart" / "replays").glob("*.json")
    said = json.loads(manifest.read_text())
    assert (said["state"], said["rows"], said["since"]) == (
        "finished",
        70,
        "2026-03-01T07:00:10+00:00",
    )
    assert said["partitions"] == [
        {"topic": "orders", "partition": 0, "rows": 50},
        {"topic": "orders", "partition": 1, "rows": 20},
    ]


def test_what_would_fail_in_every_task_is_refused_before(
    run: Run, spark: SparkSession, target: Cluster, archive: Path
) -> None:
    def refusal(*arguments: object) -> str:
        code, summary = run("replay", archive, *arguments)
        assert code == 1
        return summary["error"]

    here = ("--address", target.url)
    assert "knows topic 'agian': did you mean again?" in refusal(*here, "--to-topic", "agian")
    assert "holds nothing of topic 'clicks'" in refusal(*here, "--topic", "clicks")
    assert "is not before" in refusal(*here, "--since", "2026-03-02", "--until", "2026-03-01")
    nsqsmart.Admin(target.url).create_topic("narrow", partitions=1)
    arguments = ("--to-topic", "narrow", "--keep-partitions")
    assert "has 1 partitions only" in refusal(*here, *arguments)
    with Cluster(dialect="original", nsqds=1, lookupds=1) as original:
        there = ("--address", original.url, "--to-topic", "again")
        assert "give --drop-trace-ids" in refusal(*there)
        assert "has none" in refusal(*there, "--keep-partitions")
        code, summary = run("replay", archive, *there, "--drop-trace-ids")
        assert (code, summary["rows"]) == (0, 130)
        assert len(original.stored("again")) == 130
