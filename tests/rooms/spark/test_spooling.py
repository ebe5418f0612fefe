"""The source without Spark: epochs, replays, races, deleted folders."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'nsqsmart[spark]'")

from nsqsmart import Admin, PullSubscription
from nsqsmart.embedded import Cluster
from nsqsmart.spark.options import ReadOptions
from nsqsmart.spark.source import filling
from nsqsmart.spark.source.spooling import Offset, SpoolSource, reading
from nsqsmart.spark.source.survey import DataLoss
from nsqsmart.spark.spool.plan import Task
from tests.helpers import eventually
from tests.rooms.spark.conftest import CHANNEL, TOPIC

Tell = Callable[..., ReadOptions]
Publish = Callable[[int], list[bytes]]


class Killed(BaseException):
    """The process ended here."""


def bodies(options: ReadOptions, source: SpoolSource, start: Offset, end: Offset) -> list[bytes]:
    """All rows of an epoch, as Spark's tasks would read them."""
    return [body for task in source.tasks(start, end) for body in rows_of(options, end, task)]


def rows_of(options: ReadOptions, end: Offset, task: Task) -> list[bytes]:
    """What one attempt at a task yields."""
    batches = filling.read(reading(options, end, task))
    return [body for batch in batches for body in batch.column("value").to_pylist()]


def next_epoch(source: SpoolSource, start: Offset, most: int | None = None) -> Offset:
    """Wait for the servers' figures to show that there is something."""

    def moved() -> Offset | None:
        end = source.latest_offset(start, most)
        return end if end != start else None

    found = eventually(moved)
    assert found is not None
    return found


def drain(options: ReadOptions, source: SpoolSource, start: Offset, count: int) -> list[bytes]:
    """Epoch after epoch, until *count* rows are there."""
    found: list[bytes] = []
    while len(found) < count:
        end = next_epoch(source, start)
        found += bodies(options, source, start, end)
        start = end
    return found


def unfinished(cluster: Cluster) -> int:
    """What the servers still hold of the channel."""
    stats = Admin(cluster.url).stats(TOPIC, CHANNEL)
    return sum(channel.unfinished for entry in stats.topics for channel in entry.channels)


def test_every_message_is_in_one_epoch(cluster: Cluster, told: Tell, publish: Publish) -> None:
    sent = publish(1000)
    options = told()
    source = SpoolSource(options)
    start = source.initial_offset()
    assert sorted(drain(options, source, start, 1000)) == sent
    eventually(lambda: unfinished(cluster) == 0)


def test_an_epoch_takes_no_more_than_it_may(told: Tell, publish: Publish) -> None:
    publish(1000)
    options = told()
    source = SpoolSource(options)
    start = source.initial_offset()
    end = next_epoch(source, start, 300)
    assert sum(task.budget for task in source.tasks(start, end)) == 300
    assert len(bodies(options, source, start, end)) == 300


def test_a_task_that_has_its_budget_waits_for_no_silence(told: Tell, publish: Publish) -> None:
    publish(300)
    options = told(idleTimeoutMs=40_000, pollTimeoutMs=80_000)
    source = SpoolSource(options)
    start = source.initial_offset()
    end = next_epoch(source, start, 200)
    with ThreadPoolExecutor(1) as threads:
        rows = threads.submit(bodies, options, source, start, end)
        assert len(rows.result(timeout=20)) == 200


def test_a_replay_gives_the_same_rows(told: Tell, publish: Publish) -> None:
    publish(500)
    options = told()
    source = SpoolSource(options)
    start = source.initial_offset()
    end = next_epoch(source, start)
    first = bodies(options, source, start, end)
    publish(500)
    other = SpoolSource(options)  # the driver was started anew
    assert bodies(options, other, start, end) == first


def test_nothing_to_read_is_no_epoch(told: Tell) -> None:
    source = SpoolSource(told())
    start = source.initial_offset()
    assert source.initial_offset() == start
    assert source.latest_offset(start, None) == start
    assert source.tasks(start, start) == ()


@pytest.mark.parametrize(
    ("step", "nth"),
    [
        ("before the slot", 1),
        ("before the slot", 2),
        ("before FIN", 1),
        ("before FIN", 2),
        ("after FIN", 1),
        ("after FIN", 2),
        ("before the end", 1),
    ],
)
def test_an_attempt_that_dies_loses_nothing(
    cluster: Cluster, told: Tell, publish: Publish, step: str, nth: int
) -> None:
    sent = publish(600)
    options = told(messageTimeoutMs=1000)
    source = SpoolSource(options)
    start = source.initial_offset()
    end = next_epoch(source, start)
    rows: list[bytes] = []
    for task in source.tasks(start, end):
        with pytest.raises(Killed):
            list(filling.read(dying(reading(options, end, task), step, nth)))
        rows += rows_of(options, end, task)
    while len(rows) < 600:
        # An original nsqd gives what a dead task held to a later epoch, after its msg_timeout.
        start, end = end, next_epoch(source, end)
        rows += bodies(options, source, start, end)
    assert sorted(rows) == sent
    eventually(lambda: unfinished(cluster) == 0)


def dying(one: filling.Reading, step: str, nth: int) -> filling.Reading:
    """An attempt whose process ends before the *nth* time of *step*, without a word."""
    opened: list[PullSubscription] = []
    seen = 0

    def connect() -> PullSubscription:
        opened.append(one.connect())
        return opened[-1]

    def watch(now: str) -> None:
        nonlocal seen
        seen += now == step
        if seen == nth:
            opened[-1].close()
            raise Killed

    return replace(one, connect=connect, watch=watch)


def test_attempts_at_the_same_time_end_with_the_same_rows(told: Tell, publish: Publish) -> None:
    sent = publish(2000)
    options = told(messageTimeoutMs=1000)
    source = SpoolSource(options)
    start = source.initial_offset()
    seen: set[bytes] = set()
    while len(seen) < 2000:
        end = next_epoch(source, start, 500)
        for task in source.tasks(start, end):
            one = partial(rows_of, options, end, task)
            with ThreadPoolExecutor(3) as pool:
                results = [each.result() for each in [pool.submit(one) for _ in range(3)]]
            assert results[0] == results[1] == results[2]
            assert not seen.intersection(results[0])
            seen.update(results[0])
        start = end
    assert sorted(seen) == sent


def test_committed_epochs_are_forgotten(told: Tell, publish: Publish, tmp_path: Path) -> None:
    options = told(spoolRetainEpochs=1)
    source = SpoolSource(options)
    start = source.initial_offset()
    for _ in range(4):
        publish(50)
        end = next_epoch(source, start)
        bodies(options, source, start, end)
        start = end
    source.latest_offset(start, None)
    folder = tmp_path / "spool" / start["src"]
    kept = sorted(each.name for each in folder.iterdir() if each.name.startswith("epoch"))
    assert kept == [f"epoch-{start['epoch']:09d}"]


def test_a_deleted_spool_is_no_empty_one(told: Tell, publish: Publish, tmp_path: Path) -> None:
    publish(10)
    options = told()
    source = SpoolSource(options)
    start = source.initial_offset()
    end = next_epoch(source, start)
    shutil.rmtree(tmp_path / "spool")
    with pytest.raises(DataLoss, match=rf"epoch 1 of source {end['src']} .*deleted"):
        SpoolSource(options).tasks(start, end)
    assert SpoolSource(told(failOnDataLoss="false")).tasks(start, end) == ()


def test_a_spool_without_its_checkpoint(
    told: Tell, publish: Publish, caplog: pytest.LogCaptureFixture
) -> None:
    sent = publish(10)
    options = told()
    source = SpoolSource(options)
    start = source.initial_offset()
    end = next_epoch(source, start)
    assert sorted(bodies(options, source, start, end)) == sent
    # The checkpoint is gone: a new query begins, and it is unknown whether these were written.
    anew = SpoolSource(options)
    first = anew.initial_offset()
    with pytest.raises(DataLoss, match="orphanSpool=adopt"):
        anew.latest_offset(first, None)
    adopting = SpoolSource(told(orphanSpool="adopt"))
    first = adopting.initial_offset()
    assert sorted(bodies(options, adopting, first, next_epoch(adopting, first))) == sent
    ignoring = SpoolSource(told(orphanSpool="ignore"))
    first = ignoring.initial_offset()
    assert ignoring.latest_offset(first, None) == first


def test_available_now_ends_with_what_there_was(told: Tell, publish: Publish) -> None:
    sent = publish(500)
    options = told()
    source = SpoolSource(options)
    source.prepare_available_now()
    start = source.initial_offset()
    rows: list[bytes] = []
    while (end := source.latest_offset(start, 200)) != start:
        rows += bodies(options, source, start, end)
        start = end
        if len(rows) == 200:
            publish(50)
    assert sorted(rows)[:500] == sent
    assert len(rows) < 800


def test_available_now_ends_where_others_take_the_messages(
    cluster: Cluster, told: Tell, publish: Publish, caplog: pytest.LogCaptureFixture
) -> None:
    publish(10)
    options = told()
    source = SpoolSource(options)
    source.prepare_available_now()
    start = source.initial_offset()
    end = next_epoch(source, start)
    Admin(cluster.url).empty_channel(TOPIC, CHANNEL)
    rows = bodies(options, source, start, end)
    assert len(rows) <= 2  # a redesigned nsqd may have read one of each partition before
    while (following := source.latest_offset(end, None)) != end:
        bodies(options, source, end, following)
        end = following


def test_failing_lookups_end_no_query(
    cluster: Cluster, told: Tell, publish: Publish, caplog: pytest.LogCaptureFixture
) -> None:
    publish(10)
    options = told(**{"nsq.admin_timeout": "0.5", "nsq.lookupd_request_timeout": "0.2"})
    source = SpoolSource(options)
    start = source.initial_offset()
    end = next_epoch(source, start)
    rows = bodies(options, source, start, end)
    assert len(rows) == 10
    cluster.kill(cluster.lookupds[0])
    with caplog.at_level(logging.WARNING, "nsqsmart.spark"):
        for _ in range(3):
            assert source.latest_offset(end, None) == end
    assert len([each for each in caplog.records if "no figures" in each.message]) <= 1


def test_a_minimum_waits_for_more(told: Tell, publish: Publish) -> None:
    options = told(minMessagesPerTrigger=100, maxTriggerDelay="1h")
    source = SpoolSource(options)
    start = source.initial_offset()
    publish(50)
    eventually(lambda: (source.report() or {}).get("depth") == 50)
    assert source.latest_offset(start, None) == start
    publish(50)
    assert next_epoch(source, start)["epoch"] == 1
