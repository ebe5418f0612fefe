"""An ordered partition whose leader goes in the middle of a message: never two handlers for it."""

from __future__ import annotations

import threading

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster
from tests.helpers import eventually
from tests.integration.consuming import numbered, publish


@pytest.fixture
def cluster():
    options = {"election_delay": 0.05, "redeliver_at_move": True, "ordered_copies": 1}
    with Cluster(nsqds=3, lookupds=1, **options) as made:
        made.create_topic("t", partitions=1, replicas=3, ordered=True)
        made.create_channel("t", "c")
        yield made


class Watch:
    """Which ids are handled at the moment, and whether one of them is by two."""

    def __init__(self) -> None:
        self.twice: list[bytes] = []
        self.seen: list[bytes] = []
        self._now: set[bytes] = set()
        self._lock = threading.Lock()

    def begin(self, message: nsqsmart.Message) -> None:
        with self._lock:
            if message.id in self._now:
                self.twice.append(message.body)
            self._now.add(message.id)
            self.seen.append(message.body)

    def end(self, message: nsqsmart.Message) -> None:
        with self._lock:
            self._now.discard(message.id)


def waits_for_its_turn(consumer: nsqsmart.Consumer, old: object) -> bool:
    """Whether the new leader has sent something, which is not handled yet."""
    return any(each is not old and each.ordering._waiting for each in consumer._runtime.snapshot())


def lose_leader(cluster: Cluster, how: str) -> None:
    leader = cluster.leader("t", 0)
    if how == "move":
        cluster.move_leader("t", 0)
    else:
        getattr(cluster, how)(leader)


@pytest.mark.parametrize("how", ["move", "kill", "terminate"])
def test_the_handler_goes_on_and_the_same_message_waits_for_it(cluster, how):
    publish(cluster, *numbered(8), partition=0)
    watch, entered, released = Watch(), threading.Event(), threading.Event()
    answers: list[bool] = []

    def handle(message: nsqsmart.Message) -> None:
        watch.begin(message)
        if message.body == b"3" and not entered.is_set():
            entered.set()
            released.wait(20)
            answers.append(message.finish())
        watch.end(message)

    with nsqsmart.Consumer("t", "c", handle, address=cluster.url, workers=4) as consumer:
        try:
            assert entered.wait(10)
            (old,) = consumer._runtime.snapshot()
            lose_leader(cluster, how)
            eventually(lambda: waits_for_its_turn(consumer, old))
            assert watch.seen.count(b"3") == 1
        finally:
            released.set()
        eventually(lambda: b"7" in watch.seen)
        assert consumer._runtime.order_violations == 0
    assert watch.twice == []
    # The old leader did not take the answer: it is handled again, then what is behind it.
    assert answers == [False]
    assert watch.seen == sorted(watch.seen)
    assert sorted(set(watch.seen)) == numbered(8)


def test_a_block_of_a_puller_is_a_handler_too(cluster):
    publish(cluster, *numbered(4), partition=0)
    watch = Watch()
    with nsqsmart.Consumer("t", "c", address=cluster.url) as consumer:
        (message,) = consumer.poll(timeout=10)
        (old,) = consumer._runtime.snapshot()
        with message:
            watch.begin(message)
            lose_leader(cluster, "kill")
            eventually(lambda: waits_for_its_turn(consumer, old))
            assert consumer.poll(timeout=0) == []
            watch.end(message)
        while len(set(watch.seen)) < 4:
            for each in consumer.poll(10, timeout=10):
                with each:
                    watch.begin(each)
                    watch.end(each)
    assert watch.twice == []
    assert watch.seen == sorted(watch.seen)


def test_a_message_that_was_only_taken_holds_nobody_up(cluster):
    """Detached or pulled, nothing runs: when its connection is gone it is forgotten here."""
    publish(cluster, *numbered(3), partition=0)
    with nsqsmart.Consumer("t", "c", address=cluster.url) as consumer:
        (lost,) = consumer.poll(timeout=10)
        lose_leader(cluster, "kill")
        bodies = []
        while b"2" not in bodies:
            (message,) = consumer.poll(timeout=10)
            bodies.append(message.body)
            message.finish()
        assert lost.finish() is False
    # The first one behind a SUB_ORDERED comes twice.
    assert bodies == sorted(bodies)
    assert sorted(set(bodies)) == numbered(3)
