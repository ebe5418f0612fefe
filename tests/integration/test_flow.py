"""RDY: shared out, never more than was allowed, and back after every trouble."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pytest

import nsqsmart
from nsqsmart.client.consuming import runtime
from nsqsmart.embedded import Cluster, faults
from tests.helpers import eventually
from tests.integration.consuming import Handled, RdyWatch, all_finished, numbered, publish

QUICK = {"lookupd_poll_interval": 0.1, "lookupd_min_refresh_interval": 0.05}


@pytest.fixture(params=["original", "redesigned"])
def cluster(request) -> Iterator[Cluster]:
    """Four of what a consumer has a connection to."""
    options = {"original": {"nsqds": 4}, "redesigned": {"nsqds": 2}}[request.param]
    with Cluster(dialect=request.param, **options) as made:
        made.create_topic("t", partitions=4 if request.param == "redesigned" else 1)
        made.create_channel("t", "c")
        yield made


class Crowd(Handled):
    """A handler that counts how many of it run at once; each waits for *step*."""

    def __init__(self, pause: float = 0.0) -> None:
        super().__init__()
        self.pause = threading.Event()
        self.seconds = pause
        self.lock = threading.Lock()
        self.inside = self.most = 0

    def __call__(self, message: nsqsmart.Message) -> None:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.pause.wait(self.seconds)
        with self.lock:
            self.inside -= 1
        super().__call__(message)


def consume(cluster: Cluster, handler, **options):
    options = QUICK | {"rdy_redistribute_interval": 0.02} | options
    return nsqsmart.Consumer("t", "c", handler, address=cluster.url, **options)


def rdys(consumer: nsqsmart.Consumer) -> list[int]:
    found = [
        each.write_buffer.rdy_sent for each in consumer._runtime.snapshot() if each.write_buffer
    ]
    return sorted(found)


def spread(cluster: Cluster, count: int) -> list[bytes]:
    """So many messages on each nsqd or partition."""
    bodies = numbered(4 * count)
    redesigned = str(cluster.dialect) == "redesigned"
    for place in range(4):
        part = bodies[place * count : (place + 1) * count]
        if redesigned:
            publish(cluster, *part, partition=place)
        else:
            with nsqsmart.Producer("nsq://{}:{}".format(*cluster.nsqds[place].tcp_address)) as one:
                one.publish_many("t", part)
    return bodies


@pytest.mark.parametrize("mode", ["adaptive", "level"])
@pytest.mark.parametrize("most", [1, 3, 5])
def test_no_more_than_allowed_run_at_once_however_turns_go(cluster, monkeypatch, mode, most):
    watch = RdyWatch(monkeypatch)
    bodies = spread(cluster, 5)
    crowd = Crowd(0.005)
    with consume(cluster, crowd, max_in_flight=most, workers=8, rdy_mode=mode):
        eventually(lambda: len(crowd.messages) >= 20, timeout=30)
        all_finished(cluster)
    assert crowd.counts() == Counter(bodies)
    assert crowd.most <= most
    assert watch.excess == []


def test_who_joins_while_handlers_run_brings_no_more_than_allowed(cluster, monkeypatch):
    watch = RdyWatch(monkeypatch)
    spread(cluster, 5)
    for nsqd in cluster.nsqds[1:]:
        cluster.kill(nsqd)
    crowd = Crowd(30)
    with consume(cluster, crowd, max_in_flight=4, workers=8, rdy_mode="level") as consumer:
        try:
            eventually(lambda: crowd.inside == 4)
            for nsqd in cluster.nsqds[1:]:
                cluster.restart(nsqd)
            spread(cluster, 5)
            eventually(lambda: sum(each.live for each in consumer._runtime.snapshot()) == 4)
            eventually(lambda: sum(rdys(consumer)) <= 4)
        finally:
            crowd.pause.set()
        all_finished(cluster)
    assert crowd.most == 4
    assert watch.excess == []


def test_a_plain_handler_has_as_much_as_it_needs(cluster):
    crowd = Crowd(30)
    with consume(cluster, crowd, max_in_flight=100) as consumer:
        eventually(lambda: rdys(consumer) == [1] * 4)
        eventually(lambda: consumer._runtime.rdy_controller.resting)
        bodies = spread(cluster, 100)
        # Four workers, and as many again on their way, on each that has one.
        eventually(lambda: crowd.inside == 4)
        assert sum(each.in_flight for each in consumer._runtime.snapshot()) <= 40
        crowd.pause.set()
        eventually(lambda: crowd.counts() == Counter(bodies))
        eventually(lambda: rdys(consumer) == [1] * 4)
        eventually(lambda: consumer._runtime.rdy_controller.resting)


def test_batches_and_pulling_have_their_share_at_once(cluster):
    def batch(messages: list[nsqsmart.Message]) -> None:
        assert messages

    address = cluster.url
    for options in ({"batch_handler": batch}, {}):
        with nsqsmart.Consumer("t", "c", address=address, max_in_flight=40, **options) as consumer:
            eventually(lambda consumer=consumer: rdys(consumer) == [10] * 4)


@pytest.mark.parametrize("kind", ["level", "batches", "pulling"])
def test_the_first_connection_leaves_the_others_their_shares(cluster, monkeypatch, kind):
    """Though the others are slow to be made, and a backlog is behind the first."""
    gate = threading.Event()
    spread(cluster, 100)
    for nth in (2, 3, 4):
        cluster.faults.add(faults.on("SUB", nth=nth).delay(0.1))
    watch = RdyWatch(monkeypatch)
    options = {
        "level": {"handler": lambda _message: gate.wait(30), "rdy_mode": "level"},
        "batches": {"batch_handler": lambda _messages: gate.wait(30)},
        "pulling": {},
    }[kind]
    with nsqsmart.Consumer(
        "t", "c", address=cluster.url, max_in_flight=40, workers=4, **options
    ) as consumer:
        try:
            eventually(lambda: rdys(consumer) == [10] * 4)
            eventually(
                lambda: [each.in_flight for each in consumer._runtime.snapshot()] == [10] * 4
            )
        finally:
            gate.set()
    assert max(watch.told) == 10


def test_a_connection_that_is_not_made_keeps_its_share_for_a_moment_only(cluster, monkeypatch):
    monkeypatch.setattr(runtime, "_FIRST_SHARES", 0.1)
    cluster.faults.add(faults.on("SUB").stall())
    options = {"max_in_flight": 42, "dial_timeout": 1.5}
    with nsqsmart.Consumer("t", "c", address=cluster.url, **options) as consumer:
        assert rdys(consumer) == [14] * 3


def test_never_more_than_the_server_takes(monkeypatch):
    with Cluster(dialect="original", max_rdy_count=7) as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        for mode in ("level", "adaptive"):
            watch = RdyWatch(monkeypatch)
            handled = Handled()
            with consume(cluster, handled, rdy_mode=mode):
                publish(cluster, *numbered(300))
                eventually(lambda handled=handled: len(handled.messages) == 300)
            assert max(watch.told) <= 7


def test_less_in_flight_than_connections_and_more_again(cluster, monkeypatch):
    watch = RdyWatch(monkeypatch)
    handled = Handled()
    with consume(cluster, handled, max_in_flight=8, rdy_mode="level") as consumer:
        eventually(lambda: rdys(consumer) == [2, 2, 2, 2])
        for most in (3, 1, 0, 8, 2):
            consumer.set_max_in_flight(most)
            eventually(lambda most=most: sum(rdys(consumer)) == most)
        bodies = spread(cluster, 10)
        eventually(lambda: handled.counts() == Counter(bodies))
        all_finished(cluster)
    assert watch.excess == []


def test_a_backoff_ends_whatever_becomes_of_its_connections(cluster, monkeypatch):
    watch = RdyWatch(monkeypatch)
    handled = Handled()
    bad = threading.Event()
    bad.set()

    def handler(message: nsqsmart.Message) -> None:
        if bad.is_set():
            raise nsqsmart.Requeue(0.05)
        handled(message)

    options = {"backoff_multiplier": 0.05, "max_backoff_duration": 0.2, "max_in_flight": 20}
    with consume(cluster, handler, **options) as consumer:
        bodies = spread(cluster, 5)
        rdy_controller = consumer._runtime.rdy_controller
        eventually(lambda: rdy_controller._flow.state.name == "BACKING_OFF")
        assert sum(each.write_buffer.rdy for each in consumer._runtime.snapshot()) <= 1
        consumer.set_max_in_flight(0)
        eventually(lambda: rdy_controller._flow.state.name == "PROBING")
        for nsqd in cluster.nsqds:
            cluster.terminate(nsqd)
        eventually(lambda: not any(each.live for each in consumer._runtime.snapshot()))
        told = len(watch.told)
        consumer.set_max_in_flight(20)
        for nsqd in cluster.nsqds:
            cluster.restart(nsqd)
        # The next probe, which fails at once: it is over before it can be seen.
        eventually(lambda: 1 in watch.told[told:])
        bad.clear()
        publish(cluster, b"more")
        eventually(lambda: rdy_controller._flow.state.name == "FLOWING", timeout=20)
        eventually(lambda: b"more" in handled.bodies())
        all_finished(cluster)
        eventually(lambda: rdys(consumer) == [1] * 4)
    assert watch.excess == []
    assert set(handled.bodies()) <= {*bodies, b"more"}


def test_a_probe_that_is_sent_back_without_a_word_does_not_end_the_probing(cluster):
    """Requeued without backoff, it says nothing; the next message is asked."""
    failed, handled = threading.Event(), Handled()

    def handler(message: nsqsmart.Message) -> None:
        if not failed.is_set():
            failed.set()
            raise ValueError("once")
        handled(message)
        if handled.counts()[message.body] < 4:
            raise nsqsmart.Requeue(0, backoff=False)

    options = {"backoff_multiplier": 0.05, "default_requeue_delay": 0}
    with consume(cluster, handler, **options) as consumer:
        publish(cluster, b"x")
        rdy_controller = consumer._runtime.rdy_controller
        eventually(lambda: len(handled.messages) == 4)
        eventually(lambda: rdy_controller._flow.state.name == "FLOWING")
        all_finished(cluster)
