"""What a handler may do with its message, and what a consumer may be told, on both dialects."""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue
from time import monotonic

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import ConfigError, NotAuthorized
from tests.helpers import eventually
from tests.integration.consuming import (
    Handled,
    all_finished,
    channels,
    numbered,
    publish,
    unfinished,
)


def make(dialect: str, **options) -> Cluster:
    cluster = Cluster(dialect=dialect, nsqds=2, lookupds=1, **options)
    cluster.create_topic("t", **({"partitions": 2} if dialect == "redesigned" else {}))
    cluster.create_channel("t", "c")
    return cluster


@pytest.fixture(params=["original", "redesigned"])
def cluster(request):
    with make(request.param) as made:
        yield made


@pytest.fixture(params=["original", "redesigned"])
def hasty(request):
    """Delivers again after 0.5 s, and lets no touch go beyond 1.5 s."""
    with make(request.param, msg_timeout=0.5, max_msg_timeout=1.5) as made:
        yield made


@pytest.fixture
def ordered():
    with Cluster(nsqds=1, lookupds=1) as made:
        made.create_topic("t", partitions=1, ordered=True)
        made.create_channel("t", "c")
        yield made


def consume(cluster: Cluster, handler, topic: str = "t", channel: str = "c", **options):
    return nsqsmart.Consumer(topic, channel, handler, address=cluster.url, **options)


def in_flight(cluster: Cluster) -> int:
    return sum(one["in_flight_count"] for one in channels(cluster))


# ------------------------------------------------------------------------------ what is refused


async def coroutine(message) -> None: ...


class Async:
    async def __call__(self, message) -> None: ...


@pytest.mark.parametrize("handler", [coroutine, Async(), Async().__call__])
def test_async_handlers_are_refused_when_the_consumer_is_made(handler):
    for name in ("handler", "batch_handler", "on_giving_up"):
        with pytest.raises(TypeError, match=f"{name} is an async function"):
            nsqsmart.Consumer("t", "c", address="nsq://h", **{name: handler})


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"handler": 7}, TypeError, "handler must be callable, not int"),
        ({"handler": print, "batch_handler": print}, TypeError, "handler or batch_handler"),
        ({"batch_handler": print, "workers": 0}, ConfigError, "workers=1"),
        ({"handler": print, "max_attempts": 3}, ConfigError, "max_attempts=3"),
        ({"handler": print, "dead_letter_topic": "t"}, ConfigError, "the topic itself"),
    ],
)
def test_what_cannot_work_is_refused_when_the_consumer_is_made(options, error, said):
    with pytest.raises(error, match=said):
        nsqsmart.Consumer("t", "c", address="nsq://h", **options)


# --------------------------------------------------------------------------------------- detach


def test_a_detached_message_is_in_flight_until_somebody_answers_it(cluster):
    publish(cluster, *numbered(4))
    taken: SimpleQueue[nsqsmart.Message] = SimpleQueue()

    def handler(message: nsqsmart.Message) -> None:
        message.detach()
        taken.put(message)

    with consume(cluster, handler) as consumer:
        messages = [taken.get(timeout=10) for _ in range(4)]
        assert in_flight(cluster) == 4
        assert not cluster.log.of("FIN")
        for message in messages:
            assert message.finish()
        all_finished(cluster)
        assert consumer.stats().finished == 4
    assert len(cluster.log.of("FIN")) == 4


def test_what_is_still_detached_at_close_is_given_back(cluster):
    publish(cluster, *numbered(3))
    messages: list[nsqsmart.Message] = []

    def handler(message: nsqsmart.Message) -> None:
        message.detach()
        messages.append(message)

    with consume(cluster, handler) as consumer:
        eventually(lambda: len(messages) == 3)
    assert consumer.close() == nsqsmart.CloseReport(0, 3, 0)
    assert [message.finish() for message in messages] == [False] * 3
    handled = Handled()
    with consume(cluster, handled):
        eventually(lambda: len(handled.messages) == 3)


def test_a_detached_message_holds_its_ordered_partition(ordered):
    publish(ordered, b"first", b"second", partition=0)
    seen: list[nsqsmart.Message] = []

    def handler(message: nsqsmart.Message) -> None:
        seen.append(message)
        if message.body == b"first":
            message.detach()

    with consume(ordered, handler):
        eventually(lambda: seen)
        assert seen[0].requeue(0)
        eventually(lambda: len(seen) == 2)
        assert [message.body for message in seen] == [b"first", b"first"]
        assert seen[1].finish()
        all_finished(ordered)
    assert [message.body for message in seen] == [b"first", b"first", b"second"]


def test_a_head_that_fails_while_it_closes_is_given_back(ordered):
    publish(ordered, b"x", partition=0)
    entered, leave = threading.Event(), threading.Event()

    def handler(message: nsqsmart.Message) -> None:
        entered.set()
        assert leave.wait(10)
        raise ValueError("too late for a pause")

    consumer = consume(ordered, handler, backoff_multiplier=60).start()
    assert entered.wait(10)
    closer = threading.Thread(target=consumer.close)
    closer.start()
    eventually(lambda: ordered.log.of("CLS"))
    eventually(consumer._runtime.snapshot()[0].close_wait.is_set)
    leave.set()
    closer.join(10)
    eventually(lambda: len(ordered.log.of("REQ")) == 1)


def test_a_forgotten_message_comes_again_and_is_no_longer_answered(hasty):
    publish(hasty, b"x")
    seen: list[nsqsmart.Message] = []

    def handler(message: nsqsmart.Message) -> None:
        seen.append(message)
        if len(seen) == 1:
            message.detach()

    with consume(hasty, handler, heartbeat_interval=1) as consumer:
        eventually(lambda: len(seen) == 2)
        all_finished(hasty)
        eventually(lambda: not consumer._runtime.checked_out._held)
        assert seen[0].finish() is False


def complaints(caplog) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_messages_that_time_out_are_told(hasty, caplog):
    """In a handler that runs, at its end, and before a handler was free."""
    publish(hasty, b"slow", b"waits")
    leave = threading.Event()
    handled = Handled()

    def handler(message: nsqsmart.Message) -> None:
        handled(message)
        assert leave.wait(10)

    with consume(hasty, handler, workers=1, max_in_flight=4, heartbeat_interval=1) as consumer:
        assert consumer.health().state == "ready"
        eventually(lambda: consumer.stats().timed_out)
        assert consumer.health().state == "degraded"
        assert "time out" in str(consumer.health().reasons)
        eventually(lambda: len(hasty.log.of("FIN")) == 0 and handled.messages[0].expired)
        leave.set()
        all_finished(hasty)
        stats = consumer.stats()
        assert stats.timed_out >= 2
        assert stats.finished >= 2  # a FIN may cross the time-out on its way
    told = [each for each in complaints(caplog) if "not answered in time" in each]
    # The others within the minute are counted.
    assert len(told) == 1
    assert "touch_every" in told[0]


def test_a_head_that_is_late_again_and_again_is_told(caplog):
    with Cluster(nsqds=1, lookupds=1, msg_timeout=0.1) as cluster:
        cluster.create_topic("t", partitions=1, ordered=True)
        cluster.create_channel("t", "c")
        publish(cluster, b"x", partition=0)

        def handler(message: nsqsmart.Message) -> None:
            eventually(lambda: message.expired or message.attempts > 10)

        with consume(cluster, handler) as consumer:
            all_finished(cluster)
            assert consumer.stats().timed_out >= 9
    assert [each for each in complaints(caplog) if "holds partition 0 of t: attempt 10" in each]


# ----------------------------------------------------------------------------------------- skip


def test_a_head_that_is_skipped_lets_its_partition_go_on(ordered):
    publish(ordered, b"bad", b"next", partition=0)
    given_up: list[bytes] = []
    handled = Handled()

    def handler(message: nsqsmart.Message) -> None:
        if message.body == b"bad":
            if message.attempts < 3:
                raise ValueError("not yet")
            assert message.skip()
            return
        handled(message)

    def on_giving_up(message: nsqsmart.Message) -> None:
        # Before the server forgets it.
        assert not ordered.log.of("FIN")
        given_up.append(message.body)

    options = {"backoff_multiplier": 0.02, "on_giving_up": on_giving_up}
    with consume(ordered, handler, **options) as consumer:
        eventually(lambda: handled.bodies() == [b"next"])
        all_finished(ordered)
    assert given_up == [b"bad"]
    assert consumer.stats().given_up == 1
    assert consumer.stats().finished == 2


# ------------------------------------------------------------------------------------ giving up


def failing(seen: list[int]):
    def handler(message: nsqsmart.Message) -> None:
        seen.append(message.attempts)
        raise ValueError("never")

    return handler


QUICK = {"default_requeue_delay": 0, "max_backoff_duration": 0}


def test_a_message_is_given_up_after_its_attempts(cluster):
    publish(cluster, b"bad")
    seen: list[int] = []
    given_up: list[tuple[int, int]] = []

    def on_giving_up(message: nsqsmart.Message) -> None:
        given_up.append((message.attempts, len(cluster.log.of("FIN"))))

    options = {"max_attempts": 3, "on_giving_up": on_giving_up, **QUICK}
    with consume(cluster, failing(seen), **options) as consumer:
        all_finished(cluster)
        assert consumer.stats().given_up == 1
    assert seen == [1, 2, 3]
    assert given_up == [(4, 0)]


def test_a_callback_that_fails_keeps_the_message(cluster, caplog):
    publish(cluster, b"bad")
    refusals: list[int] = []

    def on_giving_up(message: nsqsmart.Message) -> bool | None:
        refusals.append(message.attempts)
        if len(refusals) == 1:
            raise ValueError("no room")
        return None if len(refusals) == 3 else False

    options = {"max_attempts": 1, "on_giving_up": on_giving_up, **QUICK}
    with consume(cluster, failing([]), **options):
        all_finished(cluster)
    assert refusals == [2, 3, 4]
    assert len(cluster.log.of("FIN")) == 1
    assert caplog.text.count("could not be given up") == 2


def test_dead_letters_are_stored_before_the_message_is_finished(cluster, caplog):
    cluster.create_topic("dead")
    cluster.create_channel("dead", "d")
    publish(cluster, b"bad")
    # The first try of the publish fails for good.
    cluster.faults.add(faults.on("PUB", nth=1).reply("E_BAD_MESSAGE"))
    options = {"max_attempts": 1, "dead_letter_topic": "dead", "workers": 1, **QUICK}
    with consume(cluster, failing([]), **options) as consumer:
        all_finished(cluster)
        assert consumer.stats().given_up == 1
    assert [each.body for each in cluster.stored("dead")] == [b"bad"]
    assert caplog.text.count("could not be given up") == 1
    stored = [entry.serial for entry in cluster.log.of("PUB", "dead")]
    (finished,) = [entry.serial for entry in cluster.log.of("FIN")]
    assert len(stored) == 2
    assert max(stored) < finished


# ---------------------------------------------------------------------------------------- touch


def test_touch_every_keeps_a_slow_handlers_message(hasty):
    publish(hasty, b"slow")
    handled = Handled()

    def handler(message: nsqsmart.Message) -> None:
        eventually(lambda: len(hasty.log.of("TOUCH")) >= 8)
        handled(message)

    with consume(hasty, handler, touch_every=0.1):
        eventually(lambda: handled.messages)
        all_finished(hasty)
    assert [message.attempts for message in handled.messages] == [1]


def test_touches_end_at_the_servers_maximum(hasty):
    publish(hasty, b"stuck")
    entered, again = threading.Event(), threading.Event()
    delivered: list[float] = []
    first: list[bool] = []

    def handler(message: nsqsmart.Message) -> None:
        if message.attempts > 1:
            again.set()
            return
        delivered.append(message._read_batch.at)
        entered.set()
        # The server lost its patience in spite of all.
        assert again.wait(20)
        eventually(lambda: message.expired)
        first.append(message.finish())

    with consume(hasty, handler, touch_every=0.2):
        assert entered.wait(10)
        assert again.wait(20)
        assert monotonic() - delivered[0] >= 1.2
        eventually(lambda: first == [False])
        all_finished(hasty)
    # Every 0.2 s until 1 s: a later one could put the end no further than 1.5 s.
    assert 3 <= len(hasty.log.of("TOUCH")) <= 8


def test_a_touch_interval_beyond_the_servers_patience_is_said(hasty, caplog):
    with consume(hasty, print, touch_every=30):
        eventually(lambda: "touch_every is 30 s" in caplog.text)


def test_nobody_touches_unless_asked_to(hasty):
    publish(hasty, b"slow")
    handled = Handled()

    def handler(message: nsqsmart.Message) -> None:
        eventually(lambda: message.attempts > 1 or message.expired)
        handled(message)

    with consume(hasty, handler):
        eventually(lambda: len(handled.messages) >= 2)
    assert not hasty.log.of("TOUCH")


# ------------------------------------------------------------------------------ explicit answers


def test_requeueing_by_hand_slows_down_like_raising(cluster):
    publish(cluster, b"x")
    seen: list[float] = []

    def handler(message: nsqsmart.Message) -> None:
        seen.append(monotonic())
        if len(seen) == 1:
            message.requeue(0)

    options = {"backoff_multiplier": 0.4, "rdy_redistribute_interval": 0.1}
    with consume(cluster, handler, **options) as consumer:
        eventually(lambda: len(seen) == 1)
        eventually(lambda: consumer.health().reasons == ("backs off after failures",))
        all_finished(cluster)
        # The server may have heard of it before its worker has counted it.
        eventually(lambda: consumer.stats() == nsqsmart.CloseReport(1, 1, 0))


# ----------------------------------------------------------------- pause, in flight, and health


def rdys(consumer: nsqsmart.Consumer) -> list[int]:
    return sorted(
        each.write_buffer.rdy for each in consumer._runtime.snapshot() if each.write_buffer
    )


def test_a_pause_stops_deliveries_and_not_handlers(cluster):
    handled = Handled()
    release = threading.Event()

    def handler(message: nsqsmart.Message) -> None:
        assert release.wait(10)
        handled(message)

    consumer = consume(cluster, handler, max_in_flight=4)
    consumer.pause()
    with consumer:
        publish(cluster, *numbered(4))
        eventually(lambda: unfinished(cluster) == 4)
        assert rdys(consumer) == [0, 0]
        assert consumer.health() == nsqsmart.Health("degraded", ("paused",))
        consumer.resume()
        eventually(lambda: in_flight(cluster) == 4)
        consumer.pause()
        publish(cluster, *numbered(4, b"later "))
        release.set()
        eventually(lambda: len(handled.messages) == 4)
        eventually(lambda: unfinished(cluster) == 4)
        assert in_flight(cluster) == 0
        consumer.resume()
        eventually(lambda: len(handled.messages) == 8)
        assert consumer.health().state == "ready"


def test_max_in_flight_may_change_and_be_nothing(cluster):
    release = threading.Event()
    handled = Handled()

    def handler(message: nsqsmart.Message) -> None:
        assert release.wait(20)
        handled(message)

    consumer = consume(cluster, handler, max_in_flight=100, rdy_mode="level")
    consumer.set_max_in_flight(0)
    with consumer:
        publish(cluster, *numbered(20))
        eventually(lambda: unfinished(cluster) == 20)
        assert rdys(consumer) == [0, 0]
        # A subscription has its share a moment after start() has returned; the first of them would
        # take all six.
        eventually(lambda: len(consumer._runtime.rdy_controller._members) == 2)
        consumer.set_max_in_flight(6)
        assert rdys(consumer) == [3, 3]
        eventually(lambda: in_flight(cluster) == 6)
        consumer.set_max_in_flight(1)
        # One of them, or none while the six are in hand.
        assert sum(rdys(consumer)) <= 1
        consumer.set_max_in_flight(100)
        release.set()
        eventually(lambda: len(handled.messages) == 20)
        for wrong, error in [(-1, ConfigError), (1.5, TypeError), (True, TypeError)]:
            with pytest.raises(error, match="max_in_flight"):
                consumer.set_max_in_flight(wrong)


def test_what_a_backoff_was_about_is_not_forgotten_while_nothing_is_in_flight(cluster):
    publish(cluster, b"bad")
    seen: list[int] = []
    good = threading.Event()

    def handler(message: nsqsmart.Message) -> None:
        if not good.is_set():
            raise ValueError("not yet")
        seen.append(message.attempts)

    options = {"backoff_multiplier": 0.2, "default_requeue_delay": 0, "rdy_mode": "level"}
    with consume(cluster, handler, rdy_redistribute_interval=0.05, **options) as consumer:
        eventually(lambda: consumer.health().reasons)
        consumer.set_max_in_flight(0)
        eventually(lambda: consumer._runtime.rdy_controller._flow.state.name == "PROBING")
        assert rdys(consumer) == [0, 0]
        good.set()
        consumer.set_max_in_flight(10)
        eventually(lambda: seen)
        eventually(lambda: rdys(consumer) == [5, 5])


def test_health_from_the_first_to_the_last(cluster):
    consumer = consume(cluster, print, lookupd_poll_interval=0.1, lookupd_request_timeout=0.5)
    assert consumer.health() == nsqsmart.Health("idle")
    with consumer:
        assert consumer.health() == nsqsmart.Health("ready")
        victim = cluster.nsqds[0]
        cluster.terminate(victim)
        eventually(lambda: consumer.health().state in {"degraded", "ready"})
        cluster.kill(cluster.nsqds[1])
        eventually(lambda: consumer.health().state == "failing", timeout=20)
        assert not consumer.health().ok
        assert consumer.health().reasons
    assert consumer.health() == nsqsmart.Health("closed")


def test_who_has_found_nobody_yet_is_discovering(cluster):
    with nsqsmart.Consumer("t", "c", print, address="nsq+lookupd://127.0.0.1:1") as consumer:
        health = consumer.health()
        assert (health.state, health.ok) == ("discovering", True)
        assert "127.0.0.1:1" in health.reasons[0]
    with consume(cluster, print, topic="nobody_has_it", lookupd_poll_interval=0.1) as consumer:
        assert consumer.health().state == "discovering"
        assert "nobody_has_it" in consumer.health().reasons[0]


# ------------------------------------------------------------------------------- run and the end


def test_several_run_with_one_drain(cluster):
    cluster.create_channel("t", "d")
    publish(cluster, *numbered(10))
    handlers = [Handled(), Handled()]
    consumers = [
        consume(cluster, each, channel=name) for each, name in zip(handlers, "cd", strict=True)
    ]
    reports: list[tuple[nsqsmart.CloseReport, ...]] = []
    thread = threading.Thread(target=lambda: reports.append(nsqsmart.run(*consumers)), daemon=True)
    thread.start()
    for handled in handlers:
        eventually(lambda handled=handled: len(handled.messages) == 10)
    consumers[0].close()
    # The other goes on.
    publish(cluster, b"more")
    eventually(lambda: len(handlers[1].messages) == 11)
    consumers[1].close()
    thread.join(10)
    assert [report.finished for report in reports[0]] == [10, 11]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_handler_of_one_that_ends_the_process_ends_all(cluster, error):
    cluster.create_channel("t", "d")
    publish(cluster, b"x")

    def handler(message: nsqsmart.Message) -> None:
        raise error

    consumers = [consume(cluster, handler), consume(cluster, Handled(), channel="d")]
    with pytest.raises(type(error)):
        nsqsmart.run(*consumers)
    assert [consumer.join(0) for consumer in consumers[1:]] == [True]
    with pytest.raises(type(error)):
        consumers[0].join(0)


def test_one_that_cannot_start_ends_those_before_it(cluster):
    first = consume(cluster, print)
    second = consume(cluster, print)
    second.close()
    with pytest.raises(nsqsmart.errors.ClientClosed):
        nsqsmart.run(first, second)
    assert first.join(0)


def test_run_needs_somebody_who_handles(cluster):
    with pytest.raises(TypeError, match="at least one"):
        nsqsmart.run()
    pulled = nsqsmart.Consumer("t", "c", address=cluster.url)
    with pytest.raises(RuntimeError, match="no handler"):
        pulled.run()
    with pytest.raises(RuntimeError, match="no handler"):
        nsqsmart.run(consume(cluster, print), pulled)


def test_a_handler_that_ends_the_process_ends_a_consumer_that_nobody_runs(cluster):
    publish(cluster, b"x")

    def handler(message: nsqsmart.Message) -> None:
        raise SystemExit(3)

    consumer = consume(cluster, handler).start()
    with pytest.raises(SystemExit):
        consumer.join(10)
    # It went back at once.
    handled = Handled()
    with consume(cluster, handled):
        eventually(lambda: handled.bodies() == [b"x"])


def test_one_that_is_locked_out_later_ends(cluster):
    consumer = consume(cluster, print).start()
    cluster.faults.add(faults.on("SUB").reply("E_UNAUTHORIZED"))
    consumer._runtime.snapshot()[0].hang_up()
    with pytest.raises(NotAuthorized):
        consumer.join(10)
