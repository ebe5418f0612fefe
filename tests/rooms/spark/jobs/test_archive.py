"""The archive, its compaction, and what goes back from it: each row once, in its place."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'nsqsmart[spark]'")

import nsqsmart
from nsqsmart.embedded import Cluster
from tests.helpers import eventually
from tests.rooms.spark.jobs.conftest import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("spark"),
]

Publish = Callable[[int], list[bytes]]


@pytest.fixture
def archive(run: Run, cluster: Cluster, publish: Publish, tmp_path: Path) -> Path:
    """An archive of 1000 messages."""
    publish(1000)
    out = tmp_path / "archive"
    code, summary = run(
        *("archive", "--address", cluster.url, "--topic", "orders", "--out", out, "--once")
    )
    assert (code, summary["rows"]) == (0, 1000)
    return out


def bodies(spark: SparkSession, path: Path) -> list[bytes]:
    rows = spark.read.parquet(str(path)).select("value").collect()
    return sorted(bytes(row.value) for row in rows)


def test_all_there_is_then_what_came_later_then_few_files_for_each_hour(
    run: Run, spark: SparkSession, cluster: Cluster, publish: Publish, archive: Path
) -> None:
    (hour,) = {file.parent for file in archive.glob("topic=orders/date=*/hour=*/*.parquet")}
    files = len(list(hour.glob("*.parquet")))
    more = publish(10)
    code, summary = run(
        *("archive", "--address", cluster.url, "--topic", "orders", "--out", archive, "--once"),
        *("--compact", archive.with_name("compacted"), "--settle", "0s"),
    )
    assert (code, summary["rows"], summary["ended"]) == (0, 10, "drained")
    assert len(bodies(spark, archive)) == 1010
    assert set(more) <= set(bodies(spark, archive))
    assert len(list(hour.glob("*.parquet"))) > files
    # The hour of a message published just now is not over.
    assert (summary["compacted"]["hours"], summary["compacted"]["open"]) == (0, 1)


def test_what_is_not_an_archive_is_refused_by_name(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("something else")
    (tmp_path / "empty").mkdir()
    for job in (["replay"], ["order-audit"]):
        code, summary = run(*job, tmp_path / "missing")
        assert code == 1
        assert "missing is no archive: there is no such folder" in summary["error"]
        assert run(*job, tmp_path / "empty")[0] == 1
    with Cluster(nsqds=1) as cluster:
        nsqsmart.Admin(cluster.url).create_topic("orders", partitions=1)
        code, summary = run(
            *("archive", "--address", cluster.url, "--topic", "orders", "--out", tmp_path, "--once")
        )
    assert code == 1
    assert "is not empty and not an archive: it holds" in summary["error"]


def test_a_new_checkpoint_for_an_old_archive_is_refused(
    run: Run, cluster: Cluster, archive: Path, tmp_path: Path
) -> None:
    code, summary = run(
        *("archive", "--address", cluster.url, "--topic", "orders", "--out", archive, "--once"),
        *("--checkpoint", tmp_path / "another"),
    )
    assert code == 1
    assert "written with another checkpoint" in summary["error"]


def test_one_that_goes_on_ends_cleanly_when_told_to(
    run: Run, spark: SparkSession, cluster: Cluster, publish: Publish, tmp_path: Path
) -> None:
    publish(100)
    out = tmp_path / "archive"

    def end_it() -> None:
        try:
            eventually(lambda: any(out.glob("topic=orders/date=*/hour=*/*.parquet")), 150)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    ending = threading.Thread(target=end_it)
    ending.start()
    before = signal.getsignal(signal.SIGTERM)
    code, summary = run(
        *("archive", "--address", cluster.url, "--topic", "orders", "--out", out),
        *("--every", "100ms"),
    )
    ending.join()
    assert (code, summary["rows"], summary["ended"]) == (0, 100, "signal")
    assert signal.getsignal(signal.SIGTERM) is before
    assert len(bodies(spark, out)) == 100
    assert not spark.streams.active


def test_what_cannot_be_archived_is_told_before_spark_is_asked(run: Run, tmp_path: Path) -> None:
    def refusal(*arguments: object) -> tuple[int, str]:
        code, summary = run("archive", "--out", tmp_path / "out", *arguments)
        return code, summary["error"]

    unreachable = ("--address", "nsq+lookupd://127.0.0.1:1", "--topic", "orders", "--once")
    assert refusal(*unreachable)[0] == 75
    assert refusal()[0] == 1
    assert "--compact goes with --once" in refusal("--topic", "orders", "--compact", "x")[1]
    with Cluster(nsqds=1) as cluster:
        nsqsmart.Admin(cluster.url).create_topic("orders", partitions=1)
        code, error = refusal("--address", cluster.url, "--topic", "odrers", "--once")
    assert code == 1
    assert "knows topic 'odrers': did you mean orders?" in error
    assert not (tmp_path / "out").exists()
