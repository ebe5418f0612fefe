"""Offsets mode without Spark: ranges that are read again the same, holes, where queries begin."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'nsqsmart[spark]'")

import itertools

import nsqsmart
from nsqsmart.embedded import Cluster
from nsqsmart.errors import ConfigError
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


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(dialect="redesigned", nsqds=2, lookupds=1) as cluster:
        cluster.create_topic(TOPIC, partitions=2, replicas=2)
        cluster.create_channel(TOPIC, CHANNEL)
        yield cluster


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


def test_ranges_tile_the_log(told: Tell, publish: Publish) -> None:
    options = told(readMode="offsets", startingOffsets="earliest")
    source = OffsetsSource(options)
    start = source.initial_offset()
    sent, found = [], []
    for _ in range(3):
        sent += publish(300)
        end = moved(source, start)
        assert rows(options, source.tasks(start, end)) == rows(options, source.tasks(start, end))
        found += rows(options, source.tasks(start, end))
        start = {name: end[name] for name in ("v", "offsets")}
    assert sorted(found) == sent


def test_rows_are_in_the_order_of_the_log(told: Tell, publish: Publish) -> None:
    publish(500)
    options = told(readMode="offsets", startingOffsets="earliest")
    source = OffsetsSource(options)
    start = source.initial_offset()
    for task in source.tasks(start, moved(source, start)):
        offsets = [
            (offset, size)
            for batch in read_range(options, task)
            for offset, size in zip(
                batch.column("offset").to_pylist(), batch.column("size").to_pylist(), strict=True
            )
        ]
        assert offsets[0][0] == task.first
        assert all(a + b == c for (a, b), (c, _) in itertools.pairwise(offsets))
        assert sum(offsets[-1]) == task.end


def test_a_limit_ends_where_a_message_does(told: Tell, publish: Publish) -> None:
    sent = publish(2000)
    options = told(readMode="offsets", startingOffsets="earliest")
    source = OffsetsSource(options)
    start = source.initial_offset()
    found: list[bytes] = []
    batches = 0
    while len(found) < 2000:
        end = moved(source, start, 200)
        found += rows(options, source.tasks(start, end))
        start, batches = end, batches + 1
    assert sorted(found) == sent
    assert batches > 3


def test_batch_0_is_replayed_from_where_it_began(told: Tell, publish: Publish) -> None:
    options = told(readMode="offsets", startingOffsets="latest")
    first = OffsetsSource(options)
    start = first.initial_offset()
    sent = publish(50)
    end = moved(first, start)
    anew = OffsetsSource(options)
    assert anew.initial_offset() != start  # the end of the log is elsewhere by now
    assert sorted(rows(options, anew.tasks(anew.initial_offset(), end))) == sent


def test_the_leader_moves_in_the_middle(cluster: Cluster, told: Tell, publish: Publish) -> None:
    sent = publish(1000)
    options = told(readMode="offsets", startingOffsets="earliest", chunkMessages=50)
    source = OffsetsSource(options)
    start = source.initial_offset()
    found: list[bytes] = []
    for task in source.tasks(start, moved(source, start)):
        for number, batch in enumerate(read_range(options, task)):
            found += batch.column("value").to_pylist()
            if number == 2:
                assert task.partition is not None
                cluster.move_leader(TOPIC, task.partition)
    assert sorted(found) == sent


def test_the_channel_is_parked_at_what_is_committed(
    cluster: Cluster, told: Tell, publish: Publish
) -> None:
    publish(100)
    options = told(readMode="offsets", startingOffsets="earliest")
    source = OffsetsSource(options)
    start = source.initial_offset()
    end = moved(source, start)
    source.latest_offset(end, None)

    def stands() -> bool:
        stats = nsqsmart.Admin(cluster.url).stats(TOPIC, CHANNEL)
        return all(
            channel.position == end["offsets"][TOPIC][str(entry.partition)]
            for entry in stats.topics
            for channel in entry.channels
        )

    eventually(stands)


def test_available_now_ends_where_the_log_did(told: Tell, publish: Publish) -> None:
    sent = publish(100)
    options = told(readMode="offsets", startingOffsets="earliest")
    source = OffsetsSource(options)
    source.prepare_available_now()
    start = source.initial_offset()
    publish(100)
    end = source.latest_offset(start, None)
    assert sorted(rows(options, source.tasks(start, end))) == sent
    assert source.latest_offset(end, None) == end


def test_a_batch_reads_a_range(told: Tell, publish: Publish) -> None:
    sent = publish(100)
    middle = OffsetsSource(told(readMode="offsets", startingOffsets="latest")).initial_offset()
    more = publish(100)
    text = json.dumps(middle["offsets"])
    before = told(readMode="offsets", startingOffsets="earliest", endingOffsets=text)
    behind = told(readMode="offsets", startingOffsets=text)
    assert sorted(rows(before, OffsetsSource(before).batch())) == sent
    assert sorted(rows(behind, OffsetsSource(behind).batch())) == more


def test_a_batch_begins_at_a_time(told: Tell, publish: Publish) -> None:
    sent = publish(100)
    now = round(datetime.now(UTC).timestamp() * 1000)
    early = told(readMode="offsets", startingTimestamp=now - 3_600_000)
    late = told(readMode="offsets", startingTimestamp=now + 3_600_000)
    assert sorted(rows(early, OffsetsSource(early).batch())) == sent
    assert rows(late, OffsetsSource(late).batch()) == []


def test_what_retention_took_is_said(told: Tell, publish: Publish) -> None:
    publish(10)
    options = told(readMode="offsets", startingOffsets="earliest")
    source = OffsetsSource(options)
    start = source.initial_offset()
    gone = {"v": 1, "offsets": {TOPIC: dict.fromkeys(start["offsets"][TOPIC], -100)}}
    with pytest.raises(DataLoss, match="retention has overtaken"):
        source.latest_offset(gone, None)


def test_an_original_topic_has_no_offsets(tmp_path: Path) -> None:
    with Cluster(dialect="original", nsqds=1, lookupds=1) as cluster:
        nsqsmart.Admin(cluster.url).create_topic(TOPIC)
        options = ReadOptions.parse(
            {"address": cluster.url, "subscribe": TOPIC, "channel": CHANNEL, "readMode": "offsets"}
        )
        with pytest.raises(ConfigError, match="readMode=spool"):
            OffsetsSource(options).initial_offset()
