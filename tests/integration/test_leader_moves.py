"""Leaders that move and nodes that die while both sides work: nothing lost, order kept."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import PublishError
from tests.helpers import eventually
from tests.integration.consuming import Handled, all_finished, numbered, publish

KEYS = [f"key-{number}" for number in range(6)]
PATIENCE = 25


@pytest.fixture(params=[True, False], ids=["ordered", "plain"])
def ordered(request) -> bool:
    return request.param


@pytest.fixture
def cluster(ordered) -> Iterator[Cluster]:
    with Cluster(nsqds=3, lookupds=2, replication_timeout=0.1) as made:
        made.create_topic("t", partitions=3, replicas=3, ordered=ordered, multi_part=True)
        made.create_channel("t", "c")
        yield made


class Traffic:
    """Publishes numbered messages of every key, one thread a key, until it is told to stop."""

    def __init__(self, cluster: Cluster) -> None:
        # A keyed message is repeated where it is not known to be stored: twice is allowed.
        self._producer = nsqsmart.Producer(cluster.url, retry_unanswered=True)
        self._stop = threading.Event()
        self.sent: dict[str, int] = dict.fromkeys(KEYS, 0)
        self.failures: list[PublishError] = []
        self._threads = [threading.Thread(target=self._send, args=(key,)) for key in KEYS]
        for thread in self._threads:
            thread.start()

    def _send(self, key: str) -> None:
        while not self._stop.wait(0.002):
            body = f"{key} {self.sent[key]}".encode()
            try:
                self._producer.publish("t", body, key=key, timeout=PATIENCE)
            except PublishError as error:
                self.failures.append(error)
                return
            self.sent[key] += 1

    @property
    def total(self) -> int:
        return sum(self.sent.values())

    def goes_on(self, count: int = 60) -> None:
        """Wait until so many more are stored."""
        goal = self.total + count
        eventually(lambda: self.total >= goal or self.failures, timeout=PATIENCE)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE + 5)
        self._producer.close()


def check(traffic: Traffic, handled: Handled, *, ordered: bool) -> None:
    """Everything that was stored was handled, and of each key the first time in order."""
    assert not traffic.failures
    assert min(traffic.sent.values()) > 0
    seen = defaultdict(list)
    for body in dict.fromkeys(handled.bodies()):
        key, _, number = body.decode().partition(" ")
        seen[key].append(int(number))
    expected = {key: list(range(count)) for key, count in traffic.sent.items()}
    if not ordered:
        seen = {key: sorted(numbers) for key, numbers in seen.items()}
    assert seen == expected


def run(cluster: Cluster, disturb, *, ordered: bool) -> Handled:
    """Publish and consume, *disturb* in the middle, then look whether all came through."""
    handled = Handled()
    options = {"lookupd_poll_interval": 1.0, "lookupd_min_refresh_interval": 0.1}
    with nsqsmart.Consumer(
        "t", "c", handled, address=cluster.url, workers=3, **options
    ) as consumer:
        traffic = Traffic(cluster)
        try:
            traffic.goes_on()
            disturb(traffic)
            traffic.goes_on()
        finally:
            traffic.stop()
        eventually(lambda: len(handled.counts()) >= traffic.total, timeout=PATIENCE)
        all_finished(cluster)
        assert consumer._runtime.order_violations == 0
    check(traffic, handled, ordered=ordered)
    return handled


def test_leaders_move_while_both_sides_work(cluster, ordered):
    def disturb(traffic: Traffic) -> None:
        for partition in range(3):
            before = cluster.leader("t", partition)
            assert cluster.move_leader("t", partition) is not before
            traffic.goes_on(20)

    run(cluster, disturb, ordered=ordered)


def test_a_leader_is_killed_and_comes_back(cluster, ordered):
    victims: list[str] = []

    def disturb(traffic: Traffic) -> None:
        victim = cluster.leader("t", 0)
        victims.append(victim.name)

        def another_one_leads() -> bool:
            try:
                return cluster.leader("t", 0) is not victim
            except LookupError:
                return False

        cluster.kill(victim)
        # Who comes back before is still the leader.
        eventually(another_one_leads)
        traffic.goes_on(20)
        cluster.restart(victim)
        traffic.goes_on(20)

    handled = run(cluster, disturb, ordered=ordered)
    # Another node took over.
    assert {each.nsqd for each in handled.messages if each.partition == 0} - {*victims}


def test_a_leader_is_taken_down_in_order(cluster, ordered):
    def disturb(traffic: Traffic) -> None:
        victim = cluster.leader("t", 1)
        cluster.terminate(victim)
        traffic.goes_on(20)
        cluster.restart(victim)

    run(cluster, disturb, ordered=ordered)


def test_a_move_in_the_middle_of_a_publish(cluster, ordered):
    def disturb(traffic: Traffic) -> None:
        for nth in (1, 3, 9):
            cluster.faults.add(faults.on("PUB", nth=nth).move_leader())
            traffic.goes_on(20)

    run(cluster, disturb, ordered=ordered)


def test_every_lookup_goes_away_for_a_while(cluster, ordered):
    def disturb(traffic: Traffic) -> None:
        for lookupd in cluster.lookupds:
            cluster.kill(lookupd)
        traffic.goes_on(30)
        for lookupd in cluster.lookupds:
            cluster.restart(lookupd)

    run(cluster, disturb, ordered=ordered)


def test_an_idle_consumer_follows_its_partition(cluster):
    handled = Handled()
    options = {"lookupd_min_refresh_interval": 0.1}
    with nsqsmart.Consumer("t", "c", handled, address=cluster.url, **options) as consumer:
        cluster.move_leader("t", 2)
        leader = cluster.leader("t", 2)

        def subscribed_there() -> bool:
            return any(
                each.live and each.target.partition == 2 and each.target.name == leader.name
                for each in consumer._runtime.snapshot()
            )

        eventually(subscribed_there)
        publish(cluster, b"x", partition=2)
        eventually(lambda: handled.bodies() == [b"x"])
    assert handled.messages[0].nsqd == leader.name


def test_what_was_not_finished_comes_again_from_the_new_leader(cluster):
    publish(cluster, b"x", partition=0)
    old = cluster.leader("t", 0)
    handled = Handled()

    def handler(message: nsqsmart.Message) -> None:
        handled(message)
        if message.nsqd == old.name:
            cluster.move_leader("t", 0)
            eventually(lambda: not message._subscription.live)
            assert not message.finish()

    options = {"lookupd_min_refresh_interval": 0.1}
    with nsqsmart.Consumer("t", "c", handler, address=cluster.url, **options):
        eventually(lambda: len(handled.messages) >= 2)
        all_finished(cluster)
    assert set(handled.bodies()) == {b"x"}
    assert handled.messages[-1].nsqd != old.name


def test_an_original_nsqd_that_dies_is_left_out_and_taken_back():
    with Cluster(dialect="original", nsqds=2, lookupds=1) as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        handled = Handled()
        victim, other = cluster.nsqds
        options = {"lookupd_poll_interval": 0.2, "lookupd_min_refresh_interval": 0.1}
        with nsqsmart.Consumer("t", "c", handled, address=cluster.url, **options):
            publish(cluster, *numbered(10))
            eventually(lambda: len(handled.messages) == 10)
            cluster.kill(victim)
            publish(cluster, *numbered(10, b"meanwhile "))
            eventually(lambda: len(handled.messages) == 20)
            assert {message.nsqd for message in handled.messages[10:]} == {other.name}
            cluster.restart(victim)

            def comes_from_both() -> bool:
                publish(cluster, b"again")
                return victim.name in {message.nsqd for message in handled.messages[20:]}

            eventually(comes_from_both)
    assert Counter(handled.bodies()) >= Counter(numbered(10) + numbered(10, b"meanwhile "))
