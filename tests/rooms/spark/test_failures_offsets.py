"""The rows of the failure table in offsets mode: leaders that are away, logs that were cut."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'nsqsmart[spark]'")

from nsqsmart.embedded import Cluster
from nsqsmart.embedded.faults import on
from nsqsmart.errors import DiscoveryError
from nsqsmart.spark.options import ReadOptions
from nsqsmart.spark.source.offsets import OffsetsSource
from nsqsmart.spark.source.ranges import read_range
from nsqsmart.spark.source.spooling import Offset
from nsqsmart.spark.source.survey import DataLoss
from nsqsmart.spark.spool.plan import Task
from tests.helpers import eventually
from tests.rooms.spark.conftest import CHANNEL, TOPIC

Tell = Callable[..., ReadOptions]
Publish = Callable[[int], list[bytes]]
QUICK = {"nsq.dial_timeout": "1", "nsq.handshake_timeout": "1", "nsq.close_timeout": "1"}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(dialect="redesigned", nsqds=2, lookupds=1) as cluster:
        cluster.create_topic(TOPIC, partitions=2, replicas=2)
        cluster.create_channel(TOPIC, CHANNEL)
        yield cluster


@pytest.fixture
def options(told: Tell) -> ReadOptions:
    return told(readMode="offsets", startingOffsets="earliest", **QUICK)


def rows(options: ReadOptions, tasks: tuple[Task, ...]) -> list[bytes]:
    return [
        body
        for task in tasks
        for batch in read_range(options, task)
        for body in batch.column("value").to_pylist()
    ]


def moved(source: OffsetsSource, start: Offset, most: int | None = None) -> Offset:
    def look() -> Offset | None:
        end = source.latest_offset(start, most)
        return end if end != start else None

    found = eventually(look)
    assert found is not None
    return found


def cut(cluster: Cluster, count: int) -> None:
    """Retention takes the first *count* messages of every partition."""
    for _, shard in cluster._backend.shards(TOPIC):
        with shard.lock:
            log = shard.partition.log
            log._make(log.end)
            del log._records[:count]
            log.base += count


def test_a_nsqd_that_fails_while_batches_are_bounded_ends_no_query(
    cluster: Cluster, options: ReadOptions, publish: Publish, caplog: pytest.LogCaptureFixture
) -> None:
    """To find where so many messages end, the driver reads them: that may fail for a moment."""
    sent = publish(2000)
    source = OffsetsSource(options)
    start = source.initial_offset()
    fault = cluster.faults.add(on("SUB_ADVANCED", times=100).reset())
    with caplog.at_level(logging.WARNING, "nsqsmart.spark"):
        assert source.latest_offset(start, 100) == start
    assert fault.acted
    cluster.faults.clear()
    found: list[bytes] = []
    while len(found) < 2000:
        end = moved(source, start, 500)
        found += rows(options, source.tasks(start, end))
        start = {name: end[name] for name in ("v", "offsets")}
    assert sorted(found) == sent


def test_a_partition_that_is_new_is_read_from_its_beginning(
    cluster: Cluster, options: ReadOptions, publish: Publish
) -> None:
    """Retention has taken some of it already; that is no hole."""
    sent = publish(200)
    cut(cluster, 10)
    kept = sorted(each.body for each in cluster.stored(TOPIC))
    assert len(kept) < len(sent)
    source = OffsetsSource(options)
    known = source.initial_offset()
    known["offsets"][TOPIC].pop("1")
    found: list[bytes] = []
    start: Any = {"v": 1, "offsets": known["offsets"]}
    while len(found) < len(kept):
        end = moved(source, start)
        # A replay after a restart has to find the same.
        found += rows(options, OffsetsSource(options).tasks(start, end))
        start = {name: end[name] for name in ("v", "offsets")}
    assert sorted(found) == kept


def test_a_start_without_a_leader_is_refused(
    cluster: Cluster, options: ReadOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition would be read from elsewhere than the options say."""
    source = OffsetsSource(options)
    ask = source._ask
    monkeypatch.setattr(source, "_ask", lambda: list(ask())[:1])
    with pytest.raises(DiscoveryError, match="partition"):
        source.initial_offset()


def test_retention_that_overtakes_the_query(
    cluster: Cluster,
    told: Tell,
    options: ReadOptions,
    publish: Publish,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Between two batches it is seen by the driver, and said; or passed over."""
    publish(200)
    source = OffsetsSource(options)
    start = source.initial_offset()
    cut(cluster, 50)
    kept = sorted(each.body for each in cluster.stored(TOPIC))
    with pytest.raises(DataLoss, match="retention has overtaken"):
        source.latest_offset(start, None)
    lenient = told(readMode="offsets", failOnDataLoss="false", **QUICK)
    source = OffsetsSource(lenient)
    with caplog.at_level(logging.ERROR, "nsqsmart.spark"):
        end = moved(source, start)
        assert sorted(rows(lenient, source.tasks(start, end))) == kept
    assert any("retention has overtaken" in each.getMessage() for each in caplog.records)


def test_retention_that_overtakes_a_task(
    cluster: Cluster, options: ReadOptions, publish: Publish
) -> None:
    """Between the plan and the reading it is seen by the task."""
    publish(200)
    source = OffsetsSource(options)
    start = source.initial_offset()
    end = moved(source, start)
    cut(cluster, 50)
    with pytest.raises(DataLoss, match="retention has overtaken"):
        rows(options, source.tasks(start, end))


def test_a_leader_that_is_killed_in_the_middle(
    cluster: Cluster, told: Tell, publish: Publish
) -> None:
    sent = publish(1000)
    options = told(readMode="offsets", startingOffsets="earliest", chunkMessages=50)
    source = OffsetsSource(options)
    start = source.initial_offset()
    tasks = source.tasks(start, moved(source, start))
    found: list[bytes] = []
    for number, batch in enumerate(read_range(options, tasks[0])):
        found += batch.column("value").to_pylist()
        if number == 2:
            assert tasks[0].partition is not None
            cluster.kill(cluster.leader(TOPIC, tasks[0].partition))
    found += rows(options, tasks[1:])
    assert sorted(found) == sent
