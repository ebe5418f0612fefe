"""Consuming, on both dialects: what a handler's end means to the server."""

from __future__ import annotations

import threading
from collections import Counter
from time import monotonic

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster
from nsqsmart.errors import SubscribeError
from tests.helpers import eventually
from tests.integration.consuming import (
    Handled,
    all_finished,
    channels,
    numbered,
    publish,
)


def make(dialect: str, **options) -> Cluster:
    cluster = Cluster(dialect=dialect, nsqds=2, lookupds=2, **options)
    cluster.create_topic("t", **({"partitions": 2} if dialect == "redesigned" else {}))
    cluster.create_channel("t", "c")
    return cluster


@pytest.fixture(params=["original", "redesigned"])
def cluster(request):
    with make(request.param) as made:
        yield made


@pytest.fixture(params=["original", "redesigned"])
def hasty(request):
    """A cluster that delivers again after 0.5 s."""
    with make(request.param, msg_timeout=0.5) as made:
        yield made


def consume(cluster: Cluster, handler, topic: str = "t", channel: str = "c", **options):
    return nsqsmart.Consumer(topic, channel, handler, address=cluster.url, **options)


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_every_message_is_handled_once_and_finished(cluster, workers):
    bodies = numbered(100)
    publish(cluster, *bodies)
    handled = Handled()
    with consume(cluster, handled, workers=workers) as consumer:
        eventually(lambda: len(handled.messages) == 100)
        # The server may have heard of the last one before its worker has counted it.
        eventually(lambda: consumer.stats().finished == 100)
        all_finished(cluster)
    assert handled.counts() == Counter(bodies)
    assert len(cluster.log.of("FIN")) == 100
    kind = "worker" if workers else "reader"
    assert all(name.startswith(f"nsqsmart-{kind}-") for name in handled.threads)
    assert {message.attempts for message in handled.messages} == {1}


def test_what_a_message_knows_of_where_it_comes_from(cluster):
    publish(cluster, *numbered(10))
    handled = Handled()
    with consume(cluster, handled):
        eventually(lambda: len(handled.messages) == 10)
    stored = {each.body: each for each in cluster.stored("t")}
    redesigned = cluster.dialect == "redesigned"
    for message in handled.messages:
        record = stored[message.body]
        assert (message.topic, message.channel, message.nsqd) == ("t", "c", record.nsqd)
        assert message.partition == (record.partition if redesigned else None)
        assert (message.offset, message.size) == (None, None)
        if redesigned:
            assert message.internal_id == record.internal_id


def test_an_error_requeues_and_slows_down(cluster):
    publish(cluster, *numbered(20))
    failed_at: list[float] = []
    handled = Handled()

    def handler(message: nsqsmart.Message) -> None:
        if message.body == b"0" and message.attempts < 3:
            failed_at.append(monotonic())
            raise ValueError("not yet")
        handled(message)

    options = {"default_requeue_delay": 0.1, "backoff_multiplier": 0.2, "workers": 1}
    # The probe may be where nothing is left: its turn ends soon.
    options["rdy_redistribute_interval"] = 0.1
    with consume(cluster, handler, **options) as consumer:
        eventually(lambda: len(handled.messages) == 20)
        all_finished(cluster)
        assert consumer.stats().failed == 2
    # Delayed by attempts: 0.1 s and, while it is probed again, no less.
    assert failed_at[1] - failed_at[0] >= 0.1
    assert Counter(handled.bodies()) == Counter(numbered(20))
    assert [m.attempts for m in handled.messages if m.body == b"0"] == [3]
    assert len(cluster.log.of("REQ")) == 2


def test_while_it_backs_off_nothing_is_delivered(cluster):
    publish(cluster, b"bad")
    failed_at: list[float] = []
    handled_at: list[float] = []

    def handler(message: nsqsmart.Message) -> None:
        if not failed_at:
            failed_at.append(monotonic())
            raise ValueError("once")
        handled_at.append(monotonic())

    options = {"backoff_multiplier": 0.5, "default_requeue_delay": 0.0, "workers": 1}
    with consume(cluster, handler, rdy_redistribute_interval=0.1, **options) as consumer:
        eventually(lambda: failed_at)
        eventually(lambda: {each.write_buffer.rdy for each in consumer._runtime.snapshot()} == {0})
        publish(cluster, *numbered(4))
        eventually(lambda: len(handled_at) == 5)
    assert handled_at[0] - failed_at[0] >= 0.5


def test_a_wish_to_requeue_is_kept_and_slows_nothing_down(cluster):
    publish(cluster, *numbered(30))
    delays = {b"7": 0.4, b"8": 60}
    sent_back: list[float] = []
    came_again: list[float] = []
    handled = Handled()

    def handler(message: nsqsmart.Message) -> object:
        if message.body in delays and message.attempts == 1:
            if message.body == b"7":
                sent_back.append(monotonic())
            return nsqsmart.Requeue(delays[message.body], backoff=False)
        if message.body == b"7":
            came_again.append(monotonic())
        handled(message)
        return None

    with consume(cluster, handler, workers=1):
        # No other node waits for the one that is away for a minute.
        eventually(lambda: len(handled.messages) == 29)
    assert came_again[0] - sent_back[0] >= 0.35
    assert b"8" not in handled.bodies()


def test_touching_keeps_a_message(hasty):
    publish(hasty, b"slow")
    handled = Handled()

    def handler(message: nsqsmart.Message) -> None:
        until = monotonic() + 1.2
        while monotonic() < until:
            assert message.touch()
            threading.Event().wait(0.05)
        handled(message)

    with consume(hasty, handler):
        eventually(lambda: handled.messages)
        all_finished(hasty)
    assert [message.attempts for message in handled.messages] == [1]
    assert len(hasty.log.of("FIN")) == 1


def test_an_answer_after_the_timeout_is_dropped(hasty):
    publish(hasty, b"x")
    again = threading.Event()
    late: list[bool] = []
    finished: list[bool] = []

    def handler(message: nsqsmart.Message) -> None:
        if message.attempts == 1:
            assert again.wait(10)
            # Its time began here a little later than on the server.
            late.append(eventually(lambda: message.expired))
            late.append(message.touch())
        else:
            again.set()
        finished.append(message.finish())

    with consume(hasty, handler):
        eventually(lambda: len(late) == 2)
        all_finished(hasty)
    assert late == [True, False]
    assert finished.count(False) >= 1
    assert len(hasty.log.of("FIN")) == finished.count(True)
    assert not hasty.log.of("TOUCH")


def test_what_expires_in_the_inbox_is_not_handled(hasty):
    """One worker is busy; messages that wait for it go to another consumer meanwhile."""
    publish(hasty, *numbered(4))
    release = threading.Event()
    handled = Handled()

    def handler(message: nsqsmart.Message) -> None:
        handled(message)
        if len(handled.messages) == 1:
            assert release.wait(10)

    with consume(hasty, handler, workers=1) as consumer:
        # Twice: what the server held back for a moment expires here a moment later than there.
        eventually(lambda: sum(one["timeout_count"] for one in channels(hasty)) >= 8)
        release.set()
        all_finished(hasty)
        assert consumer._runtime.dispatcher.thread_counts[0].expired >= 1
    assert set(handled.bodies()) == set(numbered(4))


def test_every_channel_gets_a_copy_and_every_topic_its_own(cluster):
    cluster.create_channel("t", "d")
    options = {"partitions": 2} if cluster.dialect == "redesigned" else {}
    cluster.create_topic("u", **options)
    cluster.create_channel("u", "c")
    publish(cluster, *numbered(20, b"t"))
    publish(cluster, *numbered(20, b"u"), topic="u")
    places = [("t", "c"), ("t", "d"), ("u", "c")]
    handlers = [Handled() for _ in places]
    consumers = [
        consume(cluster, handler, topic, channel).start()
        for handler, (topic, channel) in zip(handlers, places, strict=True)
    ]
    for handler, consumer, (topic, _) in zip(handlers, consumers, places, strict=True):
        eventually(lambda handler=handler: len(handler.messages) == 20)
        consumer.close()
        assert handler.counts() == Counter(numbered(20, topic.encode()))


def test_consumers_of_one_channel_share_its_messages(cluster):
    one, other = Handled(), Handled()
    with (
        consume(cluster, one, max_in_flight=2) as first,
        consume(cluster, other, max_in_flight=2) as second,
    ):
        for consumer in (first, second):
            # Or the other one may be alone with all of them.
            eventually(
                lambda consumer=consumer: all(
                    each.write_buffer and each.write_buffer.rdy_sent
                    for each in consumer._runtime.snapshot()
                )
            )
        publish(cluster, *numbered(60))
        eventually(lambda: len(one.messages) + len(other.messages) == 60)
    assert one.counts() + other.counts() == Counter(numbered(60))
    assert one.messages
    assert other.messages


def test_no_more_is_in_flight_than_was_allowed(cluster):
    release = threading.Event()
    handled = Handled()

    def handler(message: nsqsmart.Message) -> None:
        assert release.wait(10)
        handled(message)

    def in_flight() -> int:
        return sum(one["in_flight_count"] for one in channels(cluster))

    with consume(cluster, handler, max_in_flight=6, workers=6, rdy_mode="level") as consumer:
        publish(cluster, *numbered(40))
        eventually(lambda: in_flight() == 6)
        eventually(consumer.is_starved)
        assert consumer.stats().finished == 0
        release.set()
        eventually(lambda: len(handled.messages) == 40)
        eventually(lambda: not consumer.is_starved())


@pytest.mark.parametrize("pulls", [False, True])
def test_what_waits_unread_does_not_starve(pulls):
    """Or who gathers until it is starved would have batches of one."""
    sizes: list[int] = []
    gathered: list[nsqsmart.Message] = []

    def gather(message: nsqsmart.Message) -> None:
        gathered.append(message)
        if consumer.is_starved():
            sizes.append(len(gathered))
            while gathered:
                gathered.pop().finish()

    def handler(message: nsqsmart.Message) -> None:
        # All that may come is there before the first one is looked at.
        eventually(lambda: consumer._runtime.received >= 20)
        message.detach()
        gather(message)

    with Cluster(dialect="original", nsqds=1, lookupds=1) as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        publish(cluster, *numbered(60))
        options = {"max_in_flight": 20, "workers": 1, "rdy_mode": "level"}
        consumer = consume(cluster, None if pulls else handler, **options)
        with consumer:
            if pulls:
                eventually(lambda: consumer._runtime.received == 20)
                while len(sizes) < 3:
                    gather(*consumer.poll(timeout=10))
            eventually(lambda: len(sizes) == 3)
    assert sizes == [17] * 3


def test_bodies_of_every_size_come_whole(cluster):
    bodies = [bytes([size % 251]) * size for size in (1, 4095, 8192, 70_000, 900_000)]
    publish(cluster, *bodies)
    handled = Handled()
    with consume(cluster, handled):
        eventually(lambda: len(handled.messages) == len(bodies))
    assert handled.counts() == Counter(bodies)


def test_on_the_readers_thread_a_handler_may_outlast_heartbeats(cluster):
    """The ticker says NOP while the thread that should is busy."""
    publish(cluster, b"slow")
    handled = Handled()

    def handler(message: nsqsmart.Message) -> None:
        eventually(lambda: len(cluster.log.of("NOP")) >= 2)
        handled(message)

    with consume(cluster, handler, workers=0, heartbeat_interval=1):
        eventually(lambda: handled.messages)
        all_finished(cluster)
    assert handled.messages[0].attempts == 1


def test_nsqds_named_by_hand_are_all_subscribed_to():
    with make("original") as cluster:
        publish(cluster, *numbered(20))
        cluster.log.clear()
        url = "nsq://" + ",".join(nsqd.name for nsqd in cluster.nsqds)
        handled = Handled()
        with nsqsmart.Consumer("t", "c", handled, address=url):
            eventually(lambda: len(handled.messages) == 20)
        assert len({message.nsqd for message in handled.messages}) == 2
        assert not cluster.log.of("GET /lookup")


def test_a_topic_that_appears_later_is_found(cluster):
    handled = Handled()
    with consume(cluster, handled, topic="late", lookupd_poll_interval=0.1) as consumer:
        assert not consumer.is_starved()
        cluster.create_topic("late")
        cluster.create_channel("late", "c")
        publish(cluster, b"x", topic="late")
        eventually(lambda: handled.bodies() == [b"x"])


def test_without_any_lookup_it_starts_and_finds_one_later(cluster):
    publish(cluster, b"x")
    for lookupd in cluster.lookupds:
        cluster.kill(lookupd)
    handled = Handled()
    with consume(cluster, handled, lookupd_request_timeout=0.2):
        cluster.restart(cluster.lookupds[0])
        eventually(lambda: handled.bodies() == [b"x"])


def test_a_channel_that_may_not_be_made_is_refused_when_it_starts():
    with Cluster() as cluster:
        cluster.create_topic("t", disable_channel_auto_create=True)
        cluster.create_channel("t", "c")
        with pytest.raises(SubscribeError, match="E_SUB") as caught:
            consume(cluster, print, channel="other").start()
        assert caught.value.code.startswith("E_SUB")


def test_positions_are_those_of_the_log():
    with make("redesigned") as cluster:
        publish(cluster, *numbered(10), trace=True)
        handled = Handled()
        with consume(cluster, handled, positions=True):
            eventually(lambda: len(handled.messages) == 10)
        stored = {each.body: each for each in cluster.stored("t")}
        for message in handled.messages:
            record = stored[message.body]
            assert (message.offset, message.trace_id) == (record.offset, record.trace_id)
            assert message.size > len(message.body)


@pytest.mark.parametrize("positions", [False, True])
def test_extended_topics_are_read_as_such(positions):
    with Cluster() as cluster:
        cluster.create_topic("t", extend_support=True)
        cluster.create_channel("t", "c")
        publish(cluster, b"x", b"y")
        handled = Handled()
        with consume(cluster, handled, positions=positions):
            eventually(lambda: len(handled.messages) == 2)
            all_finished(cluster)
        assert [message.headers for message in handled.messages] == [{}, {}]
        assert (handled.messages[0].offset is not None) is positions
