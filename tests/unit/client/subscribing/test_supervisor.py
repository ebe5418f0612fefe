"""One subscription per target of the newest topology, dialled again when it is lost."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from time import monotonic

import pytest

from nsqsmart.client.subscribing import supervisor as keeper_module
from nsqsmart.client.subscribing.supervisor import SubscriptionSupervisor, subscription_key
from nsqsmart.errors import DiscoveryError
from nsqsmart.names import Address
from nsqsmart.policy.answers.lookup import Node, TopicMeta, TopicState
from nsqsmart.policy.topology import Refused, Target, Topology
from tests.helpers import eventually


def node(host: str) -> Node:
    return Node(Address(host, 4150), Address(host, 4151))


class Directory:
    """Gives the topology it is told; notes what was refused."""

    aborted = False

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.generation = 0
        self.refused: list[set[Refused]] = []
        self.refreshed = 0
        self.stale_at = float("inf")
        self.draw()

    def draw(self, leaders: dict[int, str] | None = None, nodes: tuple[str, ...] = ()) -> None:
        self.generation += 1
        self.picture = Topology(
            "t",
            TopicState.FOUND,
            {number: node(host) for number, host in (leaders or {}).items()},
            tuple(map(node, nodes)),
            generation=self.generation,
        )

    def refresh(
        self, topic: str, seen: int, deadline: float, *, refused: Collection[Refused] = ()
    ) -> Topology:
        self.refreshed += 1
        self.refused.append(set(refused))
        return self.get(topic, deadline)

    def get(self, topic: str, deadline: float) -> Topology:
        if self.error:
            raise self.error
        self.stale_at = float("inf")
        return self.picture

    def due(self, topic: str) -> float:
        return self.stale_at

    def abort(self) -> None:
        self.aborted = True


class Kept:
    """Stands for a subscription."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.hung_up = self.started = False
        self.error: Exception | None = None

    def start(self) -> None:
        self.started = True
        if self.error is not None:
            raise self.error

    def hang_up(self) -> None:
        self.hung_up = True


class World:
    def __init__(self) -> None:
        self.directory = Directory()
        self.begun: list[Kept] = []
        self.error: Exception | None = None
        self.supervisor = SubscriptionSupervisor(self.directory, "t", self._subscribe)

    def _subscribe(self, target: Target, topology: Topology) -> Kept:
        kept = Kept(target)
        kept.error = self.error
        self.begun.append(kept)
        return kept

    def names(self) -> list[tuple[int | None, str]]:
        return [(kept.target.partition, kept.target.address.host) for kept in self.begun]


@pytest.fixture
def world(monkeypatch) -> Iterator[World]:
    monkeypatch.setattr(keeper_module, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(keeper_module, "_AFTER_A_BUG", 0.01)
    made = World()
    yield made
    made.supervisor.close(monotonic() + 5)
    thread = made.supervisor._thread
    assert thread is None or not thread.is_alive()


def test_every_target_has_one_subscription(world):
    world.directory.draw({0: "a", 1: "b"}, nodes=("c",))
    world.supervisor.start()
    eventually(lambda: len(world.begun) == 3)
    assert world.names() == [(0, "a"), (1, "b"), (None, "c")]
    assert [subscription_key(kept.target) for kept in world.begun] == [0, 1, Address("c", 4150)]


def test_a_lost_one_is_begun_again_and_the_others_stay(world):
    world.directory.draw({0: "a", 1: "b"})
    world.supervisor.start()
    eventually(lambda: len(world.begun) == 2)
    for times in range(1, 4):
        world.supervisor.lost(world.begun[-1], moved=False)
        eventually(lambda times=times: len(world.begun) == 2 + times)
    assert world.names()[2:] == [(1, "b")] * 3
    assert world.directory.refreshed == 1


def test_pauses_grow_until_it_is_established(world, monkeypatch):
    longest = []
    monkeypatch.setattr(keeper_module, "uniform", lambda low, high: longest.append(high) or 0.0)
    now = monotonic()
    monkeypatch.setattr(keeper_module, "monotonic", lambda: now)
    world.directory.draw({0: "a"})
    world.supervisor.start()

    def lose(times: int) -> None:
        for _ in range(times):
            count = len(world.begun)
            world.supervisor.lost(world.begun[-1], moved=False)
            eventually(lambda count=count: len(world.begun) == count + 1)

    eventually(lambda: world.begun)
    lose(10)
    assert longest == [0.01 * 2**n for n in range(8)] + [2.0, 2.0]
    world.supervisor.established(world.begun[-1])
    # It lasts as long as what counts as steady, and as the pause before it.
    now += 2.5
    lose(1)
    assert longest[-1] == 0.01
    # Who takes each SUB and ends the connection at once, or soon, is no success.
    for expected, lasts in ((0.02, 0.0), (0.04, 0.9), (0.08, 0.9), (0.01, 1.1), (0.02, 0.9)):
        world.supervisor.established(world.begun[-1])
        now += lasts
        lose(1)
        assert longest[-1] == expected
    monkeypatch.setattr(keeper_module, "monotonic", monotonic)


def test_an_original_node_may_be_left_alone_for_longer(world, monkeypatch):
    longest = []
    monkeypatch.setattr(keeper_module, "uniform", lambda low, high: longest.append(high) or 0.0)
    world.directory.draw(nodes=("a",))
    world.supervisor.start()
    for times in range(1, 16):
        eventually(lambda times=times: len(world.begun) == times)
        world.supervisor.lost(world.begun[-1], moved=False)
    assert longest[-1] == 60.0


def test_a_moved_one_is_looked_up_and_found_where_it_is_now(world):
    world.directory.draw({0: "a"})
    world.supervisor.start()
    eventually(lambda: world.begun)
    world.directory.draw({0: "b"})
    world.supervisor.lost(world.begun[0], moved=True)
    eventually(lambda: len(world.begun) == 2)
    assert world.names()[1] == (0, "b")
    assert world.directory.refused[1] == {Refused(0, Address("a", 4150))}


def test_where_a_poll_shows_another_leader_the_old_connection_is_ended(world):
    world.directory.draw({0: "a"})
    world.supervisor.start()
    eventually(lambda: world.begun)
    world.directory.draw({0: "b"})
    world.directory.stale_at = 0.0
    with world.supervisor._changed:
        world.supervisor._changed.notify_all()
    eventually(lambda: world.begun[0].hung_up)
    world.supervisor.lost(world.begun[0], moved=True)
    eventually(lambda: len(world.begun) == 2)
    assert world.names()[1] == (0, "b")


def test_what_nobody_lists_any_more_is_not_dialled(world):
    world.directory.draw(nodes=("a", "b"))
    world.supervisor.start()
    eventually(lambda: len(world.begun) == 2)
    world.directory.draw(nodes=("b",))
    world.supervisor.lost(world.begun[0], moved=True)
    eventually(lambda: world.supervisor.topology is world.directory.picture)
    eventually(lambda: not world.supervisor._failing)
    assert len(world.begun) == 2
    assert not world.begun[1].hung_up


def test_a_partition_without_a_leader_is_asked_for_until_it_has_one(world, monkeypatch):
    monkeypatch.setattr(keeper_module, "_UNTIL_COMPLETE", 0.01)
    world.directory.draw({0: "a", 1: "b"})
    whole = replace(world.directory.picture, redesigned=True, meta=TopicMeta(2))
    world.directory.picture = replace(whole, leaders={0: whole.leaders[0]})
    world.supervisor.start()
    eventually(lambda: world.directory.refreshed >= 5)
    assert world.names() == [(0, "a")]
    world.directory.picture = whole
    eventually(lambda: world.names() == [(0, "a"), (1, "b")])
    monkeypatch.setattr(keeper_module, "_UNTIL_COMPLETE", 60.0)
    asked = world.directory.refreshed
    world.supervisor.lost(world.begun[0], moved=False)
    eventually(lambda: len(world.begun) == 3)
    # One that was about to be asked, and one because a partition failed.
    assert world.directory.refreshed <= asked + 2


def test_a_new_leader_is_dialled_at_once_however_often_the_old_one_failed(world, monkeypatch):
    monkeypatch.setattr(keeper_module, "uniform", lambda _low, _high: 1000.0)
    monkeypatch.setattr(keeper_module, "_UNTIL_COMPLETE", 0.01)
    world.directory.draw({0: "a"})
    world.supervisor.start()
    eventually(lambda: world.begun)
    world.supervisor.lost(world.begun[0], moved=False)
    asked = world.directory.refreshed
    # The lookup still names the old one, and is asked again and again.
    eventually(lambda: world.directory.refreshed >= asked + 3)
    assert len(world.begun) == 1
    world.directory.draw({0: "b"})
    eventually(lambda: world.names() == [(0, "a"), (0, "b")])


def test_an_original_node_that_failed_is_no_reason_to_ask(world, monkeypatch):
    monkeypatch.setattr(keeper_module, "uniform", lambda _low, _high: 1000.0)
    monkeypatch.setattr(keeper_module, "_UNTIL_COMPLETE", 0.0)
    world.directory.draw(nodes=("a",))
    world.supervisor.start()
    eventually(lambda: world.begun)
    world.supervisor.lost(world.begun[0], moved=False)
    assert not world.supervisor._is_incomplete()


def test_nothing_is_due_while_one_that_failed_is_dialled_again(world):
    """Its dial may hang for as long as dial_timeout: the thread sleeps meanwhile."""
    world.directory.draw(nodes=("a",))
    world.supervisor.start()
    eventually(lambda: world.begun)
    world.supervisor.lost(world.begun[0], moved=False)
    eventually(lambda: len(world.begun) == 2)
    (failing,) = world.supervisor._failing.values()
    with world.supervisor._changed:
        assert world.supervisor._next_due(failing.next_try + 1) > failing.next_try + 1


def test_only_the_subscription_that_is_kept_can_be_lost(world):
    world.directory.draw({0: "a"})
    world.supervisor.start()
    eventually(lambda: world.begun)
    world.supervisor.lost(Kept(world.begun[0].target), moved=True)
    assert world.supervisor._failing == {}


def test_what_cannot_start_is_not_kept(world):
    world.directory.draw({0: "a", 1: "b"}, nodes=("c",))
    world.error = RuntimeError("can't start new thread")
    world.supervisor.start()
    eventually(lambda: world.begun and world.begun[0].started)
    eventually(lambda: not world.supervisor._kept)


@pytest.mark.parametrize("error", [DiscoveryError("no lookup"), ValueError("a bug")])
def test_whatever_a_lookup_raises_it_goes_on(world, error, monkeypatch):
    monkeypatch.setattr(keeper_module, "_UNTIL_COMPLETE", 0.01)
    world.directory.error = error
    world.supervisor.start()
    eventually(lambda: world.directory.refreshed > 2)
    world.directory.draw({0: "a"})
    world.directory.error = None
    eventually(lambda: world.begun)
    assert world.supervisor.failure is None


def test_after_close_nothing_begins(world):
    world.supervisor.start()
    world.supervisor.close(monotonic() + 5)
    world.directory.draw({0: "a"})
    world.supervisor._begin(0, Target.at(node("a"), 0), world.directory.picture)
    assert world.begun == []
    assert world.directory.aborted
