"""The rows of the failure table that need no Spark: servers, spools and clocks that fail.

What Spark itself does wrong is in test_failures_kills.py and test_failures_spark.py; attempts that
die, races and deleted folders are in test_spooling.py.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

pa = pytest.importorskip(
    "pyarrow", reason="pyarrow is not installed: pip install 'nsqsmart[spark]'"
)

from nsqsmart import Admin, ConsumerConfig, Message, Producer, PullSubscription
from nsqsmart.embedded import Cluster
from nsqsmart.embedded.faults import on
from nsqsmart.errors import ConfigError, DiscoveryError
from nsqsmart.spark.options import ReadOptions, WriteOptions
from nsqsmart.spark.sink.publishing import Publishing
from nsqsmart.spark.source import filling, spooling
from nsqsmart.spark.source.spooling import Offset, SpoolSource, reading
from nsqsmart.spark.source.survey import Survey, pull
from nsqsmart.spark.spool.plan import Task
from tests.helpers import eventually
from tests.rooms.spark.conftest import CHANNEL, TOPIC

Tell = Callable[..., ReadOptions]
Publish = Callable[[int], list[bytes]]

one_dialect = pytest.mark.parametrize("cluster", ["redesigned"], indirect=True)
original_only = pytest.mark.parametrize("cluster", ["original"], indirect=True)
QUICK = {"nsq.dial_timeout": "0.5", "nsq.handshake_timeout": "0.5", "nsq.close_timeout": "0.5"}


class Query:
    """A query without Spark: epochs one after the other."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.source = SpoolSource(options)
        self.at: Offset = self.source.initial_offset()
        self.rows: list[bytes] = []

    def plan(self, most: int | None = None) -> tuple[Task, ...]:
        """Wait until there is something to read."""

        def moved() -> Offset | None:
            end = self.source.latest_offset(self.at, most)
            return end if end != self.at else None

        end = eventually(moved)
        assert end is not None
        start, self.at = self.at, end
        return self.source.tasks(start, end)

    def reading(self, task: Task) -> filling.Reading:
        return reading(self.options, self.at, task)

    def read(self, most: int | None = None) -> list[bytes]:
        """One epoch."""
        found = [body for task in self.plan(most) for body in values(self.reading(task))]
        self.rows += found
        return found

    def read_all(self, count: int) -> list[bytes]:
        """Until so many rows are there, and nothing waits or is held."""
        while len(self.rows) < count:
            self.read()
        return sorted(self.rows)


def values(one: filling.Reading) -> list[bytes]:
    return [body for batch in filling.read(one) for body in batch.column("value").to_pylist()]


def held(cluster: Cluster) -> int:
    stats = Admin(cluster.url).stats(TOPIC, CHANNEL)
    return sum(channel.in_flight for entry in stats.topics for channel in entry.channels)


def unfinished(cluster: Cluster) -> int:
    stats = Admin(cluster.url).stats(TOPIC, CHANNEL)
    return sum(channel.unfinished for entry in stats.topics for channel in entry.channels)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


# --------------------------------------------------------------------- slow storage, slow tasks


def test_messages_that_time_out_while_they_are_stored_come_once(
    cluster: Cluster, told: Tell, publish: Publish
) -> None:
    """A disk that takes longer than msg_timeout: no server takes the FINs, and all comes again."""
    sent = publish(200)
    query = Query(told(messageTimeoutMs=1000))
    for task in query.plan():
        one = query.reading(task)
        opened: list[PullSubscription] = []

        def connect(one: filling.Reading = one, opened: list[Any] = opened) -> PullSubscription:
            opened.append(one.connect())
            return opened[-1]

        def slow(step: str, opened: list[Any] = opened) -> None:
            if step == "before FIN":
                opened[-1].set_rdy(0)
                eventually(lambda: held(cluster) == 0)

        query.rows += values(replace(one, connect=connect, watch=slow))
    assert sorted(query.rows) == sent
    # They are delivered again, and are known.
    eventually(lambda: unfinished(cluster) > 0)
    while unfinished(cluster):
        assert query.read() == []


def test_what_times_out_while_a_slot_fills_is_in_it_once(
    cluster: Cluster, told: Tell, publish: Publish
) -> None:
    """Messages trickle in; the first ones are delivered again before the slot is full."""
    sent = publish(60)
    query = Query(told(messageTimeoutMs=1000, chunkMessages=1000, pollTimeoutMs=60000))

    class Trickle(PullSubscription):
        def pull(self, max_messages: int = 1, timeout: float | None = None) -> list[Message]:
            found = super().pull(min(20, max_messages), timeout)
            first = [each.deadline for each in found if each.attempts == 1]
            if first and first[0] - monotonic() > 0:
                threading.Event().wait(first[0] - monotonic() + 0.05)
            return found

    def connect(task: Task) -> PullSubscription:
        options = query.options
        given = {"msg_timeout": options.msg_timeout, **options.of(ConsumerConfig)}
        where = {"nsqd": task.nsqd} if task.partition is None else {"partition": task.partition}
        return Trickle(options.address, TOPIC, CHANNEL, **where, **given)

    for task in query.plan():
        one = replace(query.reading(task), connect=lambda task=task: connect(task))
        query.rows += values(one)
    assert query.read_all(60) == sent
    eventually(lambda: unfinished(cluster) == 0)


def test_a_batch_longer_than_msg_timeout_holds_nothing(
    cluster: Cluster, told: Tell, publish: Publish
) -> None:
    sent = publish(500)
    query = Query(told(messageTimeoutMs=20_000))
    rows: list[bytes] = []
    for task in query.plan():
        batches = filling.read(query.reading(task))
        rows += next(batches).column("value").to_pylist()
        # Spark has taken one batch of rows, and works on it; all of the task is finished.
        eventually(lambda: held(cluster) == 0)
        rows += [body for batch in batches for body in batch.column("value").to_pylist()]
    assert sorted(rows) == sent
    eventually(lambda: unfinished(cluster) == 0)


@pytest.mark.parametrize("step", ["before the slot", "before FIN", "after FIN", "before the end"])
def test_an_attempt_that_was_given_up_wakes_up_again(
    cluster: Cluster, told: Tell, publish: Publish, step: str
) -> None:
    """A zombie, or the slower of two copies: another has done all its work meanwhile."""
    sent = publish(600)
    query = Query(told(messageTimeoutMs=1000))
    for task in query.plan():
        others: list[list[bytes]] = []

        def sleep(now: str, task: Task = task, others: list[list[bytes]] = others) -> None:
            if now == step and not others:
                others.append([])
                others[0] = values(query.reading(task))

        late = values(replace(query.reading(task), watch=sleep))
        assert late == others[0]
        query.rows += late
    assert query.read_all(600) == sent
    eventually(lambda: held(cluster) == 0)
    while unfinished(cluster):
        assert query.read() == []


# -------------------------------------------------------------------------------- the spool fails


def test_a_full_spool_fails_before_fin(
    cluster: Cluster, told: Tell, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = publish(400)
    query = Query(told(messageTimeoutMs=1000))
    tasks = query.plan()
    sync, room = os.fsync, [4]  # a slot is two: its file, its folder

    def full(descriptor: int) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            values(query.reading(tasks[0]))
    # Two slots were durable; of their FINs the server may have read fewer before the end.
    eventually(lambda: held(cluster) == 0)
    assert unfinished(cluster) >= 400 - 200
    for task in tasks:
        query.rows += values(query.reading(task))
    assert query.read_all(400) == sent


def test_a_read_only_spool_fails_before_fin(
    cluster: Cluster, told: Tell, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = publish(100)
    query = Query(told(messageTimeoutMs=1000))
    tasks = query.plan()

    opens = Path.open

    def refuse(path: Path, mode: str = "r", **more: Any) -> Any:
        if mode == "xb":
            raise OSError(errno.EROFS, "Read-only file system")
        return opens(path, mode, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        with pytest.raises(OSError, match="Read-only"):
            values(query.reading(tasks[0]))
    assert unfinished(cluster) == 100
    for task in tasks:
        query.rows += values(query.reading(task))
    assert query.read_all(100) == sent


def test_a_spool_that_goes_away_while_it_is_read_is_an_error(
    told: Tell, publish: Publish, tmp_path: Path
) -> None:
    """Half of a batch must not look like a whole one."""
    publish(1000)
    query = Query(told())
    task = query.plan()[0]
    batches = filling.read(query.reading(task))
    next(batches)
    shutil.rmtree(tmp_path / "spool")
    with pytest.raises(filling.Unreadable, match="is gone"):
        list(batches)


def test_a_spool_that_is_not_shared_fails_before_fin(
    cluster: Cluster, told: Tell, publish: Publish, tmp_path: Path
) -> None:
    """The executor's folder is not the driver's: nothing has made the folders there."""
    publish(100)
    query = Query(told())
    task = query.plan()[0]
    elsewhere = replace(query.options, spool_location=str(tmp_path / "another machine"))
    with pytest.raises(FileNotFoundError):
        values(reading(elsewhere, query.at, task))
    assert unfinished(cluster) == 100


@one_dialect
def test_a_spool_that_is_no_folder_is_refused(
    told: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder called "hdfs:" on each machine would not be shared."""
    for name, place in [("spoolLocation", "hdfs://n1/spool"), ("checkpointLocation", "s3a://b/c")]:
        options = told(**{"spoolLocation": "", name: place})
        with pytest.raises(ConfigError, match=f"{name}.*{place}"):
            _ = options.spool
    assert told(checkpointLocation="hdfs://n1/c").spool == str(tmp_path / "spool")
    assert told(spoolLocation="file:/mnt/spool").spool == "/mnt/spool"
    assert told(spoolLocation="file:///mnt/spool").spool == "/mnt/spool"
    # Executors are elsewhere: a relative one is the driver's.
    monkeypatch.chdir(tmp_path)
    assert told(spoolLocation="here").spool == str(tmp_path / "here")


# ------------------------------------------------------------------------------ the servers fail


def test_lookups_that_are_down_make_no_new_batch(
    cluster: Cluster, told: Tell, publish: Publish, caplog: pytest.LogCaptureFixture
) -> None:
    sent = publish(10)
    query = Query(told(**{"nsq.admin_timeout": "0.5", "nsq.lookupd_request_timeout": "0.2"}))
    query.read()
    cluster.kill(cluster.lookupds[0])
    sent += publish(10)
    assert query.source.latest_offset(query.at, None) == query.at
    assert any("no figures" in each for each in warnings(caplog))
    cluster.restart(cluster.lookupds[0])
    assert query.read_all(20) == sent


def test_statistics_that_fail_make_no_new_batch(
    cluster: Cluster, told: Tell, publish: Publish
) -> None:
    sent = publish(10)
    query = Query(told(**{"nsq.admin_timeout": "0.5"}))
    query.read()
    fault = cluster.faults.add(on("/stats", times=1000).reply("500"))
    sent += publish(10)
    for _ in range(3):
        assert query.source.latest_offset(query.at, None) == query.at
    assert fault.acted
    cluster.faults.clear()
    assert query.read_all(20) == sent


@pytest.mark.parametrize("trouble", ["kill", "hang"])
@original_only
def test_a_node_that_is_down_is_skipped(
    cluster: Cluster,
    told: Tell,
    publish: Publish,
    caplog: pytest.LogCaptureFixture,
    trouble: str,
) -> None:
    sent = publish(400)
    query = Query(told(**QUICK))
    tasks = query.plan()
    assert len(tasks) == 2
    lost = next(each for each in cluster.nsqds if each.name == tasks[0].nsqd)
    getattr(cluster, trouble)(lost)
    for task in tasks:
        query.rows += values(query.reading(task))
    assert len(query.rows) == tasks[1].budget
    assert any("its nsqd is gone" in each for each in warnings(caplog))
    if trouble == "hang":
        # Its backlog waits for it.
        cluster.wake(lost)
        assert query.read_all(400) == sent


@original_only
def test_a_node_that_is_down_fails_the_batch_if_it_shall(
    cluster: Cluster, told: Tell, publish: Publish
) -> None:
    sent = publish(400)
    query = Query(told(onNodeFailure="fail", **QUICK))
    tasks = query.plan()
    lost = next(each for each in cluster.nsqds if each.name == tasks[0].nsqd)
    cluster.hang(lost)
    with pytest.raises(filling.Unreadable, match=tasks[0].name):
        values(query.reading(tasks[0]))
    cluster.wake(lost)
    for task in tasks:
        query.rows += values(query.reading(task))
    assert query.read_all(400) == sent


@one_dialect
def test_a_leader_that_moves_in_the_middle(cluster: Cluster, told: Tell, publish: Publish) -> None:
    sent = publish(1000)
    query = Query(told())
    for task in query.plan():
        seen: list[str] = []

        def move(step: str, task: Task = task, seen: list[str] = seen) -> None:
            seen.append(step)
            if seen.count("before FIN") == 2 and step == "before FIN":
                assert task.partition is not None
                cluster.move_leader(TOPIC, task.partition)

        query.rows += values(replace(query.reading(task), watch=move))
    assert query.read_all(1000) == sent
    eventually(lambda: unfinished(cluster) == 0)


@pytest.fixture
def replicated(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(dialect="redesigned", nsqds=2, lookupds=1) as cluster:
        cluster.create_topic(TOPIC, partitions=2, replicas=2)
        cluster.create_channel(TOPIC, CHANNEL)
        yield cluster


def test_a_leader_that_is_killed_in_the_middle(replicated: Cluster, tmp_path: Path) -> None:
    sent = [b"%d" % number for number in range(1000)]
    with Producer(replicated.url) as producer:
        for partition in range(2):
            producer.publish_many(TOPIC, sent[partition::2], partition=partition)
    base = {"address": replicated.url, "subscribe": TOPIC, "channel": CHANNEL}
    more = {"spoolLocation": str(tmp_path), "chunkMessages": "100", "idleTimeoutMs": "50"}
    query = Query(ReadOptions.parse({**base, **more, "statsIntervalMs": "1"}))
    tasks = query.plan()
    killed: list[str] = []

    def kill(step: str) -> None:
        if step == "before FIN" and not killed:
            killed.append(step)
            assert tasks[0].partition is not None
            replicated.kill(replicated.leader(TOPIC, tasks[0].partition))

    for task in tasks:
        query.rows += values(replace(query.reading(task), watch=kill))
    assert killed
    assert query.read_all(1000) == sorted(sent)


@pytest.mark.parametrize("dialect", ["original", "redesigned"])
def test_a_server_that_lets_little_in_flight_is_read_to_the_end(
    dialect: str, tmp_path: Path
) -> None:
    """Slots are larger than the server's max_rdy_count: the silence then is no end."""
    with Cluster(dialect=dialect, max_rdy_count=20) as cluster:
        cluster.create_topic(TOPIC)
        assert read_in_one(cluster, tmp_path) == 300


def test_an_ordered_topic_is_read_to_the_end(tmp_path: Path) -> None:
    """Its server sends a message when the one before is finished."""
    with Cluster(dialect="redesigned") as cluster:
        cluster.create_topic(TOPIC, ordered=True)
        assert read_in_one(cluster, tmp_path) == 300


def read_in_one(cluster: Cluster, tmp_path: Path) -> int:
    """The rows of the first epoch, of 300 messages."""
    cluster.create_channel(TOPIC, CHANNEL)
    with Producer(cluster.url) as producer:
        producer.publish_many(TOPIC, [b"%d" % number for number in range(300)])
    base = {"address": cluster.url, "subscribe": TOPIC, "channel": CHANNEL}
    more = {"spoolLocation": str(tmp_path), "idleTimeoutMs": "1500", "pollTimeoutMs": "30000"}
    query = Query(ReadOptions.parse({**base, **more}))
    eventually(lambda: unfinished(cluster) == 300)
    return len(query.read())


@pytest.mark.parametrize("dialect", ["original", "redesigned"])
def test_a_nsqd_that_is_lost_while_rows_are_published(dialect: str) -> None:
    """The sink: at least once."""
    with Cluster(dialect=dialect, nsqds=3) as cluster:
        replicas = {"partitions": 2, "replicas": 3} if dialect == "redesigned" else {}
        cluster.create_topic(TOPIC, **replicas)
        cluster.create_channel(TOPIC, CHANNEL)
        sent = [b"%d" % number for number in range(3000)]

        def batches() -> Iterator[pa.RecordBatch]:
            for first in range(0, 3000, 500):
                yield pa.record_batch({"value": pa.array(sent[first : first + 500], pa.binary())})
                if first == 1000:
                    lost = cluster.leader(TOPIC) if replicas else cluster.nsqds[0]
                    cluster.hang(lost) if dialect == "original" else cluster.kill(lost)

        times = {"nsq.publish_timeout": "20", "nsq.response_timeout": "1"}
        options = WriteOptions.parse({"address": cluster.url, "topic": TOPIC, **times})
        result = Publishing(options, None).run(batches())
        assert result == 3000
        assert {each.body for each in cluster.stored(TOPIC)} == set(sent)


# ------------------------------------------------------------------------------------ the channel


def test_a_channel_that_is_missing_is_made(cluster: Cluster, told: Tell, publish: Publish) -> None:
    query = Query(told(channel="new"))
    assert query.source.latest_offset(query.at, None) == query.at
    sent = publish(100)
    assert query.read_all(100) == sent


def test_a_channel_that_others_use_is_said(
    cluster: Cluster, told: Tell, publish: Publish, caplog: pytest.LogCaptureFixture
) -> None:
    publish(10)
    task = Task(TOPIC, 0, "") if cluster.dialect == "redesigned" else None
    where = {"partition": 0} if task else {"nsqd": cluster.nsqds[0].name}
    with PullSubscription(cluster.url, TOPIC, CHANNEL, **where):
        Query(told()).plan()
    assert any("1 consumers besides" in each for each in warnings(caplog))


def test_two_queries_on_one_channel_share_its_messages(
    told: Tell, publish: Publish, tmp_path: Path
) -> None:
    sent = publish(400)
    one = Query(told(spoolLocation=tmp_path / "one"))
    other = Query(told(spoolLocation=tmp_path / "other"))
    one.read(200)
    while len(one.rows) + len(other.rows) < 400:
        other.read()
    assert sorted(one.rows + other.rows) == sent
    assert one.rows
    assert other.rows


def test_topics_that_appear_later_are_read(cluster: Cluster, told: Tell, publish: Publish) -> None:
    query = Query(replace(told(), subscribe=None, subscribe_pattern="ord.*"))
    sent = publish(10)
    query.read()
    cluster.create_topic("ordinary")
    eventually(lambda: "ordinary" in Admin(cluster.url).topics())
    # Spark asks again and again; that is when it is noticed.
    admin = Admin(cluster.url)
    if cluster.dialect == "redesigned":

        def known() -> bool:
            query.source.latest_offset(query.at, None)
            found = admin.stats("ordinary").topics
            return any(each.channels for each in found)

        eventually(known)
    with Producer(cluster.url) as producer:
        producer.publish("ordinary", b"later")
    assert query.read_all(11) == sorted([*sent, b"later"])


def test_a_start_that_cannot_be_is_said(told: Tell, publish: Publish, cluster: Cluster) -> None:
    """What no time will mend must not be tried for ever."""
    publish(10)
    if cluster.dialect == "original":
        query = Query(told(startingOffsets="latest"))
        wanted = "allowChannelReset"
    else:
        query = Query(told(startingOffsets="yesterday"))
        wanted = "startingOffsets is 'yesterday'"
    with pytest.raises(ConfigError, match=wanted):
        query.source.latest_offset(query.at, None)


def test_an_address_without_lookups_is_refused(
    cluster: Cluster, told: Tell, publish: Publish
) -> None:
    """No server would say what waits; a query that was begun with lookups says so too."""
    publish(10)
    query = Query(told())
    query.read()
    direct = told(address=f"nsq://{cluster.nsqds[0].name}")
    with pytest.raises(ConfigError, match="lookupd"):
        SpoolSource(direct).latest_offset(query.at, None)


@one_dialect
def test_times_that_no_server_takes_are_said_at_once(told: Tell) -> None:
    """Before a task is started, in which they would be an error as well."""
    with pytest.raises(ConfigError, match="msg_timeout"):
        told(messageTimeoutMs=500)
    assert told(pollTimeoutMs=900_000).msg_timeout == 900


# ------------------------------------------------------------------------------- AvailableNow


def test_available_now_waits_for_what_a_dead_consumer_held(
    cluster: Cluster, told: Tell, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the run has taken by then."""
    sent = publish(200)
    query = Query(told(messageTimeoutMs=1000))
    query.source.prepare_available_now()
    tasks = query.plan()
    task = tasks[0]
    dead = pull(query.options, task)
    dead.set_rdy(10)
    eventually(lambda: dead.pull(10, 1))
    for each in tasks:
        query.rows += values(query.reading(each))
    dead.close()  # without a word
    run = query.source._run
    assert run is not None
    # The run has taken an hour so far.
    for name, value in vars(run).items():
        if isinstance(value, float):
            monkeypatch.setattr(run, name, value - 3600)
    rows = sorted(query.rows)
    while (end := query.source.latest_offset(query.at, None)) != query.at:
        start, query.at = query.at, end
        for each in query.source.tasks(start, end):
            rows += values(query.reading(each))
    assert sorted(rows) == sent


def test_available_now_waits_for_lookups_at_its_start(
    told: Tell, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ends at once, with nothing read, would look like success."""
    sent = publish(10)
    prepare, left = spooling.prepare, [3]

    def fail(options: ReadOptions, survey: Survey) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise DiscoveryError("no lookup answers")
        prepare(options, survey)

    monkeypatch.setattr(spooling, "prepare", fail)
    query = Query(told())
    query.source.prepare_available_now()
    query.rows = []
    end = query.source.latest_offset(query.at, None)
    assert end != query.at
    start, query.at = query.at, end
    for task in query.source.tasks(start, end):
        query.rows += values(query.reading(task))
    assert sorted(query.rows) == sent


def test_what_discarding_left_is_taken_away(told: Tell, publish: Publish, tmp_path: Path) -> None:
    """A driver that was killed between the two steps leaves a folder of another name."""
    publish(10)
    query = Query(told(spoolRetainEpochs=1))
    query.read()
    folder = tmp_path / "spool" / query.at["src"]
    left = folder / ".gone-0123"
    (left / "x").mkdir(parents=True)
    publish(10)
    query.read()
    query.source.latest_offset(query.at, None)
    assert not left.exists()
