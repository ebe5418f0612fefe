"""A minute of everything at once, by a script that a seed makes: nothing lost, nothing left.

Every message that was acknowledged is handled, on an ordered topic each key's in order; RDY keeps
its bounds all the while; threads and sockets end with it. The seed is in the test's name: the same
seed gives the same script.
"""

from __future__ import annotations

import random
import sys
import threading
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import PublishError
from nsqsmart.testing.history import History
from tests.helpers import SOAK, eventually
from tests.integration.consuming import Handled, RdyWatch, all_finished

SECONDS = 60 if SOAK else 20
SEEDS = [1, 2, 3] if SOAK else [1, 2]
KEYS = [f"key-{number}" for number in range(6)]
PATIENCE = 40
CONSUMER = {
    "lookupd_poll_interval": 1.0,
    "lookupd_min_refresh_interval": 0.1,
    "heartbeat_interval": 1,
    "backoff_multiplier": 0.05,
    "max_backoff_duration": 0.4,
    "default_requeue_delay": 0.05,
    "rdy_redistribute_interval": 0.5,
}
ACTIONS = {
    "redesigned": ("move", "kill", "terminate", "hang", "reset", "lose", "lookup", "flow"),
    # An original nsqd that is killed loses what it has in memory: that is no client's fault.
    "original": ("terminate", "hang", "reset", "lose", "lookup", "flow"),
}


class Blow(NamedTuple):
    """One thing that goes wrong, for *lasts* seconds, and how long it is quiet afterwards."""

    action: str
    number: int
    lasts: float
    pause: float


def script(seed: int, dialect: str, seconds: float) -> list[Blow]:
    """What happens, by the seed alone."""
    rng = random.Random(seed)
    blows, at = [], 0.0
    while at < seconds:
        action = rng.choice(ACTIONS[dialect])
        blow = Blow(action, rng.randrange(100), rng.uniform(0.1, 1.5), rng.uniform(0.1, 0.8))
        # What is hung is noticed after 2.5 heartbeats, or not at all if it is woken before.
        blow = blow._replace(lasts=blow.lasts * 3) if action == "hang" else blow
        blows.append(blow)
        at += blow.lasts + blow.pause
    return blows


class Weather:
    """Carries out a script."""

    def __init__(self, cluster: Cluster, consumers: list[nsqsmart.Consumer]) -> None:
        self._cluster = cluster
        self._consumers = consumers
        self._quiet = threading.Event()

    def blow(self, blow: Blow) -> None:
        cluster = self._cluster
        nsqd = cluster.nsqds[blow.number % len(cluster.nsqds)]
        lookup = cluster.lookupds[blow.number % len(cluster.lookupds)]
        actions: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "move": (lambda: self._move(blow.number), self._nothing),
            "kill": (lambda: cluster.kill(nsqd), lambda: cluster.restart(nsqd)),
            "terminate": (lambda: cluster.terminate(nsqd), lambda: cluster.restart(nsqd)),
            "hang": (lambda: cluster.hang(nsqd), lambda: cluster.wake(nsqd)),
            "reset": (lambda: self._fault("FIN", blow.number), cluster.faults.clear),
            "lose": (lambda: self._fault("MESSAGE", blow.number), cluster.faults.clear),
            "lookup": (lambda: cluster.kill(lookup), lambda: cluster.restart(lookup)),
            "flow": (lambda: self._flow(blow.number % 5), lambda: self._flow(40)),
        }
        begin, end = actions[blow.action]
        begin()
        self._quiet.wait(blow.lasts)
        end()
        self._quiet.wait(blow.pause)

    def _nothing(self) -> None:
        """It stays as it is."""

    def _move(self, number: int) -> None:
        topic = "ordered" if number % 2 else "plain"
        self._cluster.move_leader(topic, number % 3)

    def _fault(self, what: str, number: int) -> None:
        self._cluster.faults.add(faults.on(what, nth=number + 1, times=3).reset())

    def _flow(self, most: int) -> None:
        for consumer in self._consumers:
            consumer.set_max_in_flight(most)


class Clumsy(Handled):
    """Fails, waits, touches and requeues, by what the body is; what came a second time succeeds."""

    def __init__(self) -> None:
        super().__init__()
        self.history: History[bytes] = History()
        self._seen: set[bytes] = set()
        self._never = threading.Event()

    def __call__(self, message: nsqsmart.Message) -> bool | None:
        lot = zlib.crc32(message.body) % 500
        if message.body not in self._seen:
            self._seen.add(message.body)
            if lot < 3:
                raise ValueError("a handler fails")
            if lot < 6:
                raise nsqsmart.Requeue(0, backoff=False)
            if lot < 8:
                return False
            if lot < 10:
                message.requeue(0.02, backoff=False)
                return None
        if lot < 16:
            self._never.wait(0.05)
            message.touch()
        super().__call__(message)
        self.history.consumed(message.body)
        return None


class Traffic:
    """Publishes numbered messages of every key to *topic*, one thread a key."""

    def __init__(
        self, cluster: Cluster, topic: str, history: History[bytes], *, keyed: bool, ordered: bool
    ) -> None:
        self._history = history
        self._ordered = ordered
        self._producer = nsqsmart.Producer(cluster.url, retry_unanswered=True, pool_size=20)
        self._topic = topic
        self._keyed = keyed
        self._pace = 0.03 if ordered else 0.015
        self._stop = threading.Event()
        self.stored = dict.fromkeys(KEYS, 0)
        self._threads = [threading.Thread(target=self._send, args=(key,)) for key in KEYS]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _send(self, key: str) -> None:
        number = 0
        place = {"key": key} if self._keyed else {}
        while not self._stop.wait(self._pace):
            body = f"{key} {number}".encode()
            self._history.sent(body, key if self._ordered else None)
            try:
                self._producer.publish(self._topic, body, timeout=PATIENCE, **place)
            except PublishError:
                continue  # not acknowledged: tried again
            self._history.acknowledged(body)
            self.stored[key] += 1
            number += 1

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(PATIENCE + 5)
        self._producer.close()


def warm_up(cluster: Cluster, topic: str, handled: Clumsy, partitions: int | None) -> None:
    """A first FIN on every partition: before that a channel may be forgotten.

    See protocol#ordered-cluster.
    """
    with nsqsmart.Producer(cluster.url) as producer:
        for place in range(partitions or 1):
            where = {} if partitions is None else {"partition": place}
            handled.history.publish(producer, topic, b"warm %d" % place, timeout=10, **where)
    eventually(lambda: len(set(handled.bodies())) == (partitions or 1))
    all_finished(cluster, topic)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dialect", ["redesigned", "original"])
def test_a_storm(dialect, seed, monkeypatch, capsys):
    blows = script(seed, dialect, SECONDS)
    with capsys.disabled():
        sys.stdout.write(f"\nseed {seed}: {len(blows)} blows on a {dialect} cluster\n")
    watch = RdyWatch(monkeypatch)
    redesigned = dialect == "redesigned"
    topics = {"plain": False, "ordered": True} if redesigned else {"plain": False}
    # What a lost connection had in flight an original nsqd sends again after msg_timeout alone.
    options = {"replication_timeout": 0.1} if redesigned else {"msg_timeout": 4}
    with Cluster(dialect=dialect, nsqds=3, lookupds=2, log=False, **options) as cluster:
        handlers, consumers, traffic = {}, [], []
        with ExitStack() as stack:
            for topic, ordered in topics.items():
                shape = {"partitions": 3, "replicas": 3, "ordered": ordered, "multi_part": True}
                cluster.create_topic(topic, **(shape if redesigned else {}))
                cluster.create_channel(topic, "c")
                handlers[topic] = Clumsy()
                one = nsqsmart.Consumer(
                    topic, "c", handlers[topic], address=cluster.url, max_in_flight=40, **CONSUMER
                )
                consumers.append(stack.enter_context(one))
                warm_up(cluster, topic, handlers[topic], 3 if redesigned else None)
                history = handlers[topic].history
                traffic.append(Traffic(cluster, topic, history, keyed=redesigned, ordered=ordered))
                stack.callback(traffic[-1].stop)
            for each in traffic:
                each.start()
            weather = Weather(cluster, consumers)
            for blow in blows:
                weather.blow(blow)
            for each in traffic:
                each.stop()
            for topic in topics:
                eventually(
                    lambda history=handlers[topic].history: not history.lost(),
                    timeout=60,
                    what=f"{topic}: all that was acknowledged",
                    every=0.2,
                )
                all_finished(cluster, topic)
            violations = [one._runtime.order_violations for one in consumers]
        assert violations == [0] * len(topics)
        assert watch.excess == []
        for topic in topics:
            handlers[topic].history.check()
        for each in traffic:
            assert min(each.stored.values()) > 100


def test_a_seed_makes_the_same_storm_again():
    for dialect in ACTIONS:
        assert script(7, dialect, 60) == script(7, dialect, 60)
        assert script(7, dialect, 60) != script(8, dialect, 60)
    assert {blow.action for blow in script(1, "redesigned", 60)} == set(ACTIONS["redesigned"])
