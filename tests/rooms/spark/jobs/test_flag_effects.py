"""What a flag of a job says it does is done."""

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

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240), pytest.mark.usefixtures("spark")]


@pytest.fixture
def extended() -> Iterator[Cluster]:
    """A topic that takes headers, with a channel that has missed nothing, and one that has not."""
    with Cluster(nsqds=1, lookupds=1) as cluster:
        admin = nsqsmart.Admin(cluster.url)
        for topic, takes_headers in (("orders", True), ("plain", False)):
            admin.create_topic(topic, partitions=1, extend_support=takes_headers)
            admin.create_channel(topic, "c")
        yield cluster


def test_an_archive_begins_holds_and_is_cut_as_told(
    run: Run, spark: SparkSession, extended: Cluster, tmp_path: Path
) -> None:
    with nsqsmart.Producer(extended.url) as producer:
        for number in range(12):
            producer.publish("orders", b"%d" % number, headers={"n": str(number)})
    out = tmp_path / "archive"
    # A channel of its own that is made now begins at the end of the topic, unless told otherwise.
    code, summary = run(
        *("archive", "--address", extended.url, "--topic", "orders", "--out", out, "--once"),
        *("--start", "earliest", "--headers", "--positions", "--most", 6),
    )
    assert (code, summary["rows"]) == (0, 12)
    assert summary["batches"] >= 2
    rows = {int(each.value): each for each in spark.read.parquet(str(out)).collect()}
    stored = {int(each.body): each for each in extended.stored("orders")}
    assert set(rows) == set(stored)
    for number, each in rows.items():
        assert each.headers["n"] == str(number)
        assert each.offset == stored[number].offset
        assert each.size > 0


def test_no_compacted_file_has_more_rows_than_told(
    run: Run, spark: SparkSession, tmp_path: Path
) -> None:
    out, into = tmp_path / "archive", tmp_path / "compacted"
    save(spark, out, [row(number) for number in range(25)])
    assert run("archive", "--out", out, "--compact", into, "--rows-per-file", 10)[0] == 0
    files = list(into.glob("topic=orders/date=*/hour=7/*.parquet"))
    assert sorted(spark.read.parquet(str(each)).count() for each in files) == [5, 10, 10]


def test_a_replay_leaves_headers_out_and_writes_its_manifest_where_told(
    run: Run, spark: SparkSession, extended: Cluster, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    save(spark, tmp_path / "made", [row(number) for number in range(3)])
    archive, manifest = tmp_path / "archive", tmp_path / "elsewhere" / "replayed.json"
    headers = f.create_map(f.lit("n"), f.lit("1"))
    made = spark.read.parquet(str(tmp_path / "made")).withColumn("headers", headers)
    made.write.parquet(str(archive))
    arguments = ("replay", archive, "--address", extended.url, "--to-topic", "plain")
    assert run(*arguments)[0] != 0  # the topic takes no headers
    code, summary = run(*arguments, "--drop-headers", "--manifest", manifest)
    assert (code, summary["rows"]) == (0, 3)
    assert len(extended.stored("plain")) == 3
    said = json.loads(manifest.read_text())
    assert (said["state"], said["rows"]) == ("finished", 3)
    # Only the one that failed said so beside the archive.
    assert len(list((archive / "_nsqsmart" / "replays").glob("*.json"))) == 1
