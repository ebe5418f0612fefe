"""PullSubscription: one connection, read by its caller; on every kind of server."""

from __future__ import annotations

import logging
import os
import pickle
from collections import Counter
from collections.abc import Iterator
from itertools import count
from time import monotonic

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import (
    AlreadyResponded,
    ClientClosed,
    ConfigError,
    ConnectError,
    ConnectionLost,
    DiscoveryError,
    NotAuthorized,
    ProtocolError,
    SubscribeError,
    UsedAfterFork,
)
from nsqsmart.wire.frames import ERROR, HEARTBEAT_FRAME, encode_frame
from tests.conftest import our_threads
from tests.helpers import eventually
from tests.integration.consuming import channels, numbered, publish
from tests.peers import Peer, message_frame, subscribed
from tests.sites import CHANNEL, Site, Start, running_sites, sites

pytestmark = pytest.mark.timeout(300)
_numbers = count(1)


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> Iterator[Start]:
    with running_sites(tmp_path_factory.mktemp) as find:
        yield find


@pytest.fixture(scope="module", params=sites("original", "redesigned"))
def site(request, start) -> Site:
    return start(request.param)


def topic_of(site: Site, *, ordered: bool = False) -> tuple[str, dict[str, object]]:
    """A topic with all its messages in one place, and how a puller finds that."""
    kind = (1, 1, ordered)
    name = site.reusable.get(kind) or f"pulled{next(_numbers)}"
    if kind not in site.reusable:
        site.make_topic(name, partitions=1, replicas=1, ordered=ordered)
        if site.slow:
            site.reusable[kind] = name
    if site.dialect == "redesigned":
        return name, {"partition": 0}
    admin = nsqsmart.Admin(site.url)
    return name, {"nsqd": admin.nodes()[0].nsqd}


def fill(site: Site, topic: str, where: dict[str, object], bodies: list[bytes]) -> None:
    url = site.url if "partition" in where else f"nsq://{where['nsqd']}"
    with nsqsmart.Producer(url) as producer:
        producer.publish_many(topic, bodies, timeout=60, partition=where.get("partition"))


def collect(source: nsqsmart.PullSubscription, wanted: int) -> list[nsqsmart.Message]:
    """So many messages, not answered."""
    found: list[nsqsmart.Message] = []
    deadline = monotonic() + 30
    while len(found) < wanted and monotonic() < deadline:
        found += source.pull(wanted - len(found), timeout=1)
    return found


def pull_on(source: nsqsmart.PullSubscription) -> None:
    while True:
        source.pull(10, timeout=5)


def test_all_is_pulled_and_finished(site):
    topic, where = topic_of(site)
    before = {each.name for each in our_threads() if "embedded" not in each.name}
    bodies = numbered(3000)
    fill(site, topic, where, bodies)
    seen: Counter[bytes] = Counter()
    with nsqsmart.PullSubscription(site.url, topic, CHANNEL, max_in_flight=500, **where) as source:
        while sum(seen.values()) < 3000 and (messages := source.pull(300, timeout=10)):
            assert len(messages) <= 300
            seen.update(message.body for message in messages)
            assert source.finish(messages) == len(messages)
        assert {each.name for each in our_threads() if "embedded" not in each.name} == before
        assert source.in_flight == 0
        report = source.drain()
    assert seen == Counter(bodies)
    assert report == nsqsmart.PullReport(3000, 0, 0, (), 0, True)
    with nsqsmart.PullSubscription(site.url, topic, CHANNEL, **where) as again:
        assert again.pull(10, timeout=0.3) == []


def test_what_is_not_answered_is_there_for_the_next_one(site):
    topic, where = topic_of(site)
    fill(site, topic, where, numbered(100))
    first = nsqsmart.PullSubscription(site.url, topic, CHANNEL, max_in_flight=50, **where)
    mine = collect(first, 40)
    assert first.finish(mine[:10]) == 10
    assert first.requeue(mine[10:20]) == 10
    assert [message.touch() for message in mine[20:22]] == [True, True]
    assert first.touch(mine[22:25]) == 3
    report = first.drain()
    assert (report.finished, report.expired, report.refused) == (10, 0, ())
    assert report.requeued >= 40
    assert report.confirmed
    # Given back by drain(): they can no longer be answered.
    assert mine[30].finish() is False
    assert first.drain() is report
    with nsqsmart.PullSubscription(site.url, topic, CHANNEL, **where) as second:
        rest = collect(second, 90)
        assert second.finish(rest) == 90
        assert {message.body for message in rest}.isdisjoint({each.body for each in mine[:10]})


def test_an_answer_that_the_server_refuses_is_named(site, caplog):
    """The server gives it to another consumer meanwhile: msg_timeout is 1 s, the answer forged."""
    topic, where = topic_of(site)
    fill(site, topic, where, [b"slow", b"fine"])
    options = {"msg_timeout": 1, "max_in_flight": 2, **where}
    with nsqsmart.PullSubscription(site.url, topic, CHANNEL, **options) as source:
        slow, fine = sorted(collect(source, 2), key=lambda message: message.body, reverse=True)
        assert source.finish([fine]) == 1
        again: list[nsqsmart.Message] = []
        while not again:
            again = source.pull(1, timeout=10)
        assert again[0].id == slow.id
        assert not caplog.records
        assert source.finish([slow]) == 0
        (record,) = caplog.records
        assert "messages were not answered within 1 s" in record.getMessage()
        assert source.finish(again) == 1
        forged = collect_forged(source, slow)
        report = source.drain()
    assert report.refused == (slow.id,) * forged
    assert (report.finished, report.expired, report.confirmed) == (2, 1, True)


def collect_forged(source: nsqsmart.PullSubscription, message: nsqsmart.Message) -> int:
    """FIN once more of what is finished, behind the back of the client."""
    source._line._say(b"FIN " + message.id + b"\n")
    return 1


def test_rdy_is_the_most_that_is_in_flight(site):
    topic, where = topic_of(site)
    fill(site, topic, where, numbered(30))
    with nsqsmart.PullSubscription(site.url, topic, CHANNEL, max_in_flight=5, **where) as source:
        mine = collect(source, 5)
        assert source.pull(10, timeout=0.2) == []
        assert source.set_rdy(8) == 8
        mine += collect(source, 3)
        assert source.pull(10, timeout=0.2) == []
        # Before the last FINs: no new window.
        assert source.set_rdy(0) == 0
        assert source.finish(mine) == 8
        assert source.pull(10, timeout=0.2) == []
        assert source.set_rdy(10_000_000) == 2500
        assert source.finish(collect(source, 22)) == 22


def test_large_and_small_messages_compressed(site):
    topic, where = topic_of(site)
    bodies = [bytes([number % 256]) * (number * 997) for number in range(1, 60)]
    fill(site, topic, where, bodies)
    with nsqsmart.PullSubscription(site.url, topic, CHANNEL, snappy=True, **where) as source:
        mine = collect(source, 59)
        assert source.finish(mine) == 59
    assert Counter(message.body for message in mine) == Counter(bodies)


@pytest.fixture(scope="module", params=sites("redesigned"))
def redesigned(request, start) -> Site:
    return start(request.param)


def test_an_ordered_topic_one_by_one(redesigned):
    topic, where = topic_of(redesigned, ordered=True)
    fill(redesigned, topic, where, numbered(20))
    bodies, offsets = [], []
    with nsqsmart.PullSubscription(redesigned.url, topic, CHANNEL, **where) as source:
        assert source.ordered
        while len(bodies) < 20 and (messages := source.pull(10, timeout=10)):
            (message,) = messages
            # Sometimes sent twice: never two of them in hand.
            assert source.pull(10, timeout=0.02) == []
            if len(bodies) == 7 and message.attempts == 1:
                assert source.requeue(messages, delay=60) == 1
                continue
            bodies.append(message.body)
            offsets.append(message.offset)
            assert message.finish()
        report = source.drain()
    assert bodies == numbered(20)
    assert offsets == sorted(set(offsets))
    assert (report.finished, report.requeued, report.refused) == (20, 1, ())


# ------------------------------------------------------------------------------ embedded alone


@pytest.fixture
def cluster():
    with Cluster(nsqds=2, lookupds=1, election_delay=0.2) as made:
        made.create_topic("t", partitions=2, replicas=2)
        made.create_channel("t", "c")
        yield made


def left(cluster: Cluster) -> int:
    """Messages that are not finished, as the leaders say."""
    found = nsqsmart.Admin(cluster.url).stats("t", "c")
    return sum(channel.unfinished for topic in found.topics for channel in topic.channels)


def test_a_message_at_a_time(cluster):
    publish(cluster, *numbered(4), partition=1)
    options = {"partition": 1, "default_requeue_delay": 0}
    with nsqsmart.PullSubscription(cluster.url, "t", "c", **options) as source:
        assert (source.partition, source.nsqd) == (1, cluster.leader("t", 1).name)
        for message in collect(source, 4):
            with message:
                if message.body == b"2":
                    raise nsqsmart.Requeue
        (message,) = source.pull(timeout=None)
        assert (message.body, message.attempts) == (b"2", 2)
        assert message.skip()
        with pytest.raises(AlreadyResponded):
            message.finish()
        publish(cluster, b"x", partition=1)
        (message,) = source.pull(timeout=10)
        with pytest.raises(RuntimeError, match="was pulled"):
            message.detach()


def test_mistakes_in_a_list_are_told_and_nothing_is_sent(cluster):
    publish(cluster, *numbered(3), partition=0)
    publish(cluster, b"elsewhere", partition=1)
    with (
        nsqsmart.PullSubscription(cluster.url, "t", "c", partition=0) as source,
        nsqsmart.PullSubscription(cluster.url, "t", "c", partition=1) as other,
    ):
        a, b, c = collect(source, 3)
        (foreign,) = collect(other, 1)
        a.finish()
        with pytest.raises(AlreadyResponded, match="before"):
            source.finish([b, a])
        with pytest.raises(AlreadyResponded, match="twice"):
            source.finish([b, b])
        with pytest.raises(ConfigError, match="another PullSubscription"):
            source.finish([b, foreign])
        with pytest.raises(ConfigError, match="delay"):
            source.requeue([b], delay=-1)
        assert source.finish([]) == 0
        assert source.finish([b, c]) == 2
        assert other.finish([foreign]) == 1
    eventually(lambda: left(cluster) == 0)


def test_it_survives_heartbeats_while_nobody_pulls(cluster):
    """Two intervals and more go by with messages in hand; each call answers what has come."""
    publish(cluster, *numbered(50), partition=0)
    options = {"partition": 0, "heartbeat_interval": 1, "max_in_flight": 50}
    with nsqsmart.PullSubscription(cluster.url, "t", "c", **options) as source:
        collect(source, 1)
        deadline = monotonic() + 3.5
        taken = 1
        while monotonic() < deadline:
            # What waits here is enough: it looks at the socket all the same.
            taken += len(source.pull(1, timeout=0)) if taken < 45 else 0
            eventually(lambda: True, every=0.1)
            publish(cluster, b"x", partition=1)
            _pause(0.1)
        assert source.pull(100, timeout=1)
        assert source._line.live


def _pause(seconds: float) -> None:
    until = monotonic() + seconds
    eventually(lambda: monotonic() >= until, every=0.02)


def test_the_end_of_the_connection_is_told_and_what_was_held_is_the_servers(cluster):
    publish(cluster, *numbered(10), partition=0)
    source = nsqsmart.PullSubscription(cluster.url, "t", "c", partition=0).open()
    mine = collect(source, 10)
    cluster.move_leader("t", 0)
    with pytest.raises(ConnectionLost):
        pull_on(source)
    with pytest.raises(ConnectionLost):
        source.pull(1, timeout=0)
    assert source.finish(mine) == 0
    assert mine[0].answered
    report = source.drain()
    assert (report.finished, report.lost, report.confirmed) == (0, 10, False)
    with nsqsmart.PullSubscription(cluster.url, "t", "c", partition=0) as again:
        assert again.finish(collect(again, 10)) == 10


def test_it_waits_for_a_new_leader(cluster):
    publish(cluster, *numbered(10), partition=0)
    old = cluster.leader("t", 0)
    cluster.kill(old)
    with nsqsmart.PullSubscription(cluster.url, "t", "c", partition=0) as source:
        assert source.nsqd != old.name
        assert source.finish(collect(source, 10)) == 10


def test_what_is_not_there_is_named(cluster):
    cases = [
        ({"partition": 2}, ConfigError, "no 2"),
        ({}, ConfigError, "say which"),
        ({"partition": 0, "nsqd": "127.0.0.1:1"}, DiscoveryError, "not by 127.0.0.1:1"),
        ({"partition": 0, "ordered": True}, ConfigError, "force_ordered"),
    ]
    for where, error, says in cases:
        source = nsqsmart.PullSubscription(cluster.url, "t", "c", **where)
        with pytest.raises(error, match=says):
            source.open(timeout=0.3)
    with pytest.raises(DiscoveryError, match="no nsqd has topic 'absent'"):
        nsqsmart.PullSubscription(cluster.url, "absent", "c").open(timeout=0.3)
    with pytest.raises(ConnectError, match="cannot connect"):
        nsqsmart.PullSubscription("nsq://127.0.0.1:1", "t", "c").open(timeout=0.3)
    with pytest.raises(TypeError, match="made inside|make it inside"):
        pickle.dumps(nsqsmart.PullSubscription(cluster.url, "t", "c"))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"E_UNAUTHORIZED no", NotAuthorized),
        (b"E_BAD_CHANNEL no", SubscribeError),
        (b"E_FAILED_ON_NOT_LEADER ", SubscribeError),
    ],
)
def test_a_refused_subscription(answer, error):
    def script(talk):
        talk.greet()
        talk.line()
        talk.send(encode_frame(ERROR, answer))

    with Peer(script) as peer, pytest.raises(error) as caught:
        nsqsmart.PullSubscription(peer.url, "t", "c").open(timeout=1.5)
    assert caught.value.code == answer.split()[0].decode()
    # What may pass was tried again.
    assert (peer.accepted > 1) == (error is SubscribeError and b"LEADER" in answer)


@pytest.mark.parametrize(
    ("bad", "error", "says"),
    [
        (message_frame(1, b"x" * 5000), ProtocolError, "max_frame_size"),
        (b"\0\0\0\x09\0\0\0\x02short", ProtocolError, "shorter than its head"),
        (b"\0\0\0\x06\0\0\0\x07oh", ProtocolError, "type"),
        (encode_frame(ERROR, b"E_INVALID oops"), SubscribeError, "E_INVALID oops"),
        (encode_frame(ERROR, b"E_FAILED_ON_NOT_WRITABLE "), ConnectionLost, "NOT_WRITABLE"),
        (encode_frame(ERROR, b"E_UNAUTHORIZED late"), NotAuthorized, "late"),
    ],
)
def test_what_a_server_must_not_send(bad, error, says):
    script = subscribed(lambda _: None, message_frame(1, b"fine"), bad)
    with Peer(script) as peer:
        source = nsqsmart.PullSubscription(peer.url, "t", "c", max_frame_size=1024)
        with pytest.raises(error, match=says):
            pull_on(source)
        report = source.drain()
        assert not report.confirmed
        assert peer.accepted == 1


def test_a_silent_server_is_noticed_by_who_waits_for_ever():
    with Peer(subscribed(lambda _: None)) as peer:
        source = nsqsmart.PullSubscription(peer.url, "t", "c", heartbeat_interval=1)
        with pytest.raises(ConnectionLost, match="silent"):
            source.pull(10, timeout=None)
        source.close()


def test_heartbeats_without_end_do_not_hold_a_pull_beyond_its_time():
    def chatter(talk):
        while True:
            talk.send(HEARTBEAT_FRAME)

    with Peer(subscribed(lambda _: None, speak=chatter)) as peer:
        source = nsqsmart.PullSubscription(peer.url, "t", "c")
        assert source.pull(10, timeout=0.2) == []
        source.close()


def test_a_server_that_never_confirms_is_not_waited_for():
    def deaf(talk):
        talk.stall()

    with Peer(subscribed(lambda _: None, message_frame(1, b"x"), speak=deaf)) as peer:
        source = nsqsmart.PullSubscription(peer.url, "t", "c")
        assert len(source.pull(10, timeout=5)) == 1
        before = monotonic()
        report = source.drain(timeout=0.2)
        assert monotonic() - before < 5
        assert (report.finished, report.requeued, report.confirmed) == (0, 1, False)


def test_after_the_end_it_is_closed(cluster):
    source = nsqsmart.PullSubscription(cluster.url, "t", "c", partition=0)
    with source:
        pass
    for call in (source.open, source.pull, lambda: source.set_rdy(1), lambda: source.finish([])):
        with pytest.raises(ClientClosed):
            call()
    never = nsqsmart.PullSubscription(cluster.url, "t", "c", partition=0)
    assert never.drain() == nsqsmart.PullReport(0, 0, 0)
    with pytest.raises(ClientClosed):
        never.open()


def test_a_child_of_a_fork_gets_none_of_it(cluster):
    publish(cluster, b"mine", partition=0)
    with nsqsmart.PullSubscription(cluster.url, "t", "c", partition=0) as source:
        (message,) = collect(source, 1)
        pid = os.fork()
        if not pid:
            try:
                source.pull(1, timeout=0)
            except UsedAfterFork:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert message.finish()
    eventually(lambda: left(cluster) == 0)


def test_left_unanswered_it_stays_at_the_server(cluster):
    publish(cluster, *numbered(6), partition=0)
    source = nsqsmart.PullSubscription(cluster.url, "t", "c", partition=0).open()
    collect(source, 6)
    assert source.close().lost == 6
    eventually(lambda: sum(each["client_num"] for each in channels(cluster)) == 0)
    assert left(cluster) == 6


def test_its_messages_are_in_the_trace_log(cluster, caplog):
    nsqsmart.tracing.enable("t")
    try:
        with (
            caplog.at_level(logging.INFO, logger="nsqsmart.trace"),
            nsqsmart.Producer(cluster.url) as producer,
            nsqsmart.PullSubscription(cluster.url, "t", "c", partition=0, positions=True) as source,
        ):
            producer.publish("t", b"x", partition=0, trace_id=77)
            (message,) = collect(source, 1)
            source.touch([message])
            source.finish([message])
    finally:
        nsqsmart.tracing.disable("t")
    lines = [record.nsq_trace for record in caplog.records if record.name == "nsqsmart.trace"]
    assert [line["event"] for line in lines if line.get("channel")] == [
        "received",
        "started",
        "touched",
        "finished",
    ]
    assert {line["nsq_trace_id"] for line in lines} == {"77"}


@pytest.mark.parametrize("fatal", [False, True])
def test_a_command_that_fails_is_no_harm(cluster, fatal):
    publish(cluster, *numbered(2), partition=0)
    cluster.faults.add(faults.on("FIN", nth=1).reply("E_FIN_FAILED", fatal=fatal))
    with nsqsmart.PullSubscription(cluster.url, "t", "c", partition=0) as source:
        mine = collect(source, 2)
        source.finish(mine)
        report = source.drain()
    # This one does not say which.
    assert report.refused == (b"",)
    assert report.confirmed != fatal
    with nsqsmart.PullSubscription(cluster.url, "t", "c", partition=0) as again:
        assert [message.id for message in collect(again, 1)] == [mine[0].id]


def test_a_copy_of_what_is_in_hand_is_no_message():
    """An ordered channel sends its first one several times; FIN of a copy too early fails."""
    with Cluster(ordered_copies=2) as cluster:
        cluster.create_topic("t", ordered=True)
        cluster.create_channel("t", "c")
        publish(cluster, *numbered(3), partition=0)
        with nsqsmart.PullSubscription(cluster.url, "t", "c") as source:
            (first,) = source.pull(10, timeout=10)
            # The copies come within a few milliseconds.
            assert source.pull(10, timeout=0.2) == []
            assert source.in_flight == 1
            assert first.finish()
            bodies = [first.body]
            while len(bodies) < 3:
                (message,) = source.pull(10, timeout=10)
                bodies.append(message.body)
                message.finish()
            report = source.drain()
        assert bodies == numbered(3)
        # The answers to copies were one too many, on purpose.
        assert (report.finished, report.refused, report.confirmed) == (3, (), True)
