"""Which connection is sent which RDY when, on a clock that the test turns."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace

import pytest

from nsqsmart.client.consuming import rdy_controller as regulator_module
from nsqsmart.client.consuming.rdy_controller import RdyController
from nsqsmart.client.consuming.workers import WorkerPool
from nsqsmart.config import ConsumerConfig
from nsqsmart.policy.governor import PERIOD
from tests.unit.client.doubles import FakeRuntime


class WriteBuffer:
    """Tells at once, unless it is *stuck*."""

    broken = False

    def __init__(self) -> None:
        self.rdy = self.rdy_sent = 0
        self.stuck = False

    def flush(self, *, wait: bool = True) -> None:
        assert not wait
        if not self.stuck:
            self.rdy_sent = self.rdy


class Subscription:
    max_rdy = 2500
    round_trip = 0.0002

    def __init__(self, *, ordered: bool = False) -> None:
        self.request = SimpleNamespace(ordered=ordered)
        self.write_buffer = WriteBuffer()
        self.reader = SimpleNamespace(received=0)
        self.settled = 0

    @property
    def in_flight(self) -> int:
        return self.reader.received - self.settled

    @property
    def rdy(self) -> int:
        return self.write_buffer.rdy_sent

    def push(self) -> None:
        """All that it may."""
        self.reader.received += max(0, self.rdy - self.in_flight)

    def message(self, *, received_at: float = 0.0, expired: bool = False) -> SimpleNamespace:
        return Message(_subscription=self, received_at=received_at, expired=expired)


class Message(SimpleNamespace):
    __hash__ = object.__hash__


class World:
    """A consumer with its ticker, which calls when :meth:`run` has turned the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: object) -> None:
        self.now = 1000.0
        self.topic, self.channel = "t", "c"
        self.watching = False
        self.config = ConsumerConfig(**options)
        self.dead_letters = FakeRuntime().dead_letters
        self.checked_out = SimpleNamespace(held=list, counts=Counter)
        self.dispatcher = WorkerPool(print, self, 2)
        self.ticker = self
        self.due: list[tuple[float, int, Callable[[], None]]] = []
        monkeypatch.setattr(regulator_module, "monotonic", lambda: self.now)
        self.rdy_controller = RdyController(self, self.dispatcher)

    def at(self, when: float, call: Callable[[], None]) -> None:
        heapq.heappush(self.due, (when, len(self.due) + id(call), call))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.due and self.due[0][0] <= end:
            when, _, call = heapq.heappop(self.due)
            self.now = max(self.now, when)
            call()
        self.now = end

    def join(self, count: int = 1, *, ordered: bool = False) -> list[Subscription]:
        found = [Subscription(ordered=ordered) for _ in range(count)]
        for each in found:
            self.rdy_controller.add(each)
        return found

    def fail(self, subscription: Subscription) -> None:
        message = subscription.message(received_at=self.now)
        self.rdy_controller.on_result(message, ok=False)


@pytest.fixture
def world(monkeypatch):
    return lambda **options: World(monkeypatch, **options)


def rdys(subscriptions: list[Subscription]) -> list[int]:
    return [each.rdy for each in subscriptions]


def test_in_level_mode_everybody_has_its_share_at_once(world):
    here = world(rdy_mode="level", max_in_flight=7)
    members = here.join(1)
    assert rdys(members) == [7]
    members += here.join(1)
    # What the server has sent just before is on its way.
    assert rdys(members) == [4, 0]
    here.run(0.1)
    assert rdys(members) == [4, 3]
    here.rdy_controller.remove(members[0])
    assert members[1].rdy == 7
    here.run(0.1)
    assert not here.due
    assert not here.rdy_controller.resting


def test_the_first_leave_those_that_are_expected_their_shares(world):
    here = world(rdy_mode="level", max_in_flight=30)
    here.rdy_controller.expect(3, here.now + 1)
    first = here.join(2)
    assert rdys(first) == [10, 10]
    here.now += 1
    here.rdy_controller.expect(3, here.now)  # too late: it counts no more
    assert rdys(first) == [15, 15]


def test_a_plain_handler_begins_with_one_and_gets_what_it_needs(world):
    here = world(max_in_flight=100)
    one, idle = here.join(2)
    assert rdys([one, idle]) == [1, 1]
    assert here.rdy_controller.resting
    assert not here.due
    here.rdy_controller.wake()
    assert not here.rdy_controller.resting
    for _ in range(20):
        # A thousand cycles a second.
        one.reader.received += one.rdy * 20
        one.settled = one.reader.received
        here.run(PERIOD)
    # Its share, and what the idle one leaves.
    assert rdys([one, idle]) == [99, 1]
    assert not here.rdy_controller.resting
    here.run(5)
    assert rdys([one, idle]) == [1, 1]
    assert here.rdy_controller.resting
    assert not here.due


def test_what_handlers_have_in_hand_is_needed_however_slow(world):
    here = world(max_in_flight=100)
    (one,) = here.join()
    counts = here.dispatcher._own_counts()
    counts.current = one.message()
    here.rdy_controller.wake()
    here.run(2)
    assert one.rdy == 2
    held = [one.message() for _ in range(40)]
    here.checked_out.held = lambda: held
    here.run(2)
    assert 80 <= one.rdy <= 100
    here.rdy_controller.stop()
    here.run(1)
    assert one.rdy == 0
    assert not here.due


@pytest.mark.parametrize("ordered", [False, True])
def test_who_joins_waits_for_what_others_have_in_flight(world, ordered):
    here = world(rdy_mode="level", max_in_flight=4)
    (one,) = here.join(ordered=ordered)
    one.reader.received = 4
    (other,) = here.join(ordered=ordered)
    if ordered:
        # A head that is held here holds no other partition.
        assert rdys([one, other]) == [1, 1]
        return
    here.run(1)
    assert rdys([one, other]) == [2, 0]
    one.settled = 1
    here.run(PERIOD)
    assert rdys([one, other]) == [2, 1]
    one.settled = 4
    here.run(PERIOD)
    assert rdys([one, other]) == [2, 2]
    here.run(PERIOD)
    assert not here.due


def once_behind_a_look(here: World, happens: Callable[[], object]) -> None:
    """Have it happen when the next tick has told all what it wants, and has yet to end."""
    apply = here.rdy_controller._apply

    def apply_and_more() -> bool:
        short = apply()
        if not short:
            here.rdy_controller._apply = apply
            happens()
        return short

    here.rdy_controller._apply = apply_and_more


def test_who_joins_while_a_look_ends_is_looked_at(world):
    here = world(rdy_mode="level", max_in_flight=10)
    members = here.join(2)
    late: list[Subscription] = []
    once_behind_a_look(here, lambda: late.extend(here.join()))
    here.run(1)
    assert sorted(rdys(members + late)) == [3, 3, 4]
    assert not here.due


def test_a_message_that_comes_while_a_look_ends_is_looked_at(world):
    here = world(max_in_flight=100)
    (one,) = here.join()

    def comes() -> None:
        """As from a reader."""
        one.reader.received += 1
        if here.rdy_controller.resting:
            here.rdy_controller.wake()
        here.dispatcher._own_counts().current = one.message()

    here.rdy_controller.wake()
    once_behind_a_look(here, comes)
    here.run(2)
    assert one.rdy == 2
    assert not here.rdy_controller.resting


def test_what_the_server_gave_up_on_is_not_in_flight(world):
    here = world(rdy_mode="level", max_in_flight=1)
    one, other = here.join(2)
    one.push()
    here.dispatcher._own_counts().current = message = one.message()
    here.run(10)
    assert other.rdy == 0
    message.expired = True
    here.run(PERIOD)
    assert other.rdy == 1


def test_a_lower_one_that_could_not_be_sent_is_waited_for(world):
    here = world(rdy_mode="level", max_in_flight=4)
    (one,) = here.join()
    one.write_buffer.stuck = True
    (other,) = here.join()
    assert rdys([one, other]) == [4, 0]
    here.run(1)
    assert rdys([one, other]) == [4, 0]
    one.write_buffer.stuck = False
    one.write_buffer.flush(wait=False)
    here.run(PERIOD)
    assert rdys([one, other]) == [2, 2]
    assert not here.due


def test_who_was_raised_again_and_lowered_again_is_waited_for_anew(world):
    here = world(rdy_mode="level", max_in_flight=100)
    one, other = here.join(2)
    here.rdy_controller.remove(other)
    assert one.rdy == 100
    here.run(0.04)
    (late,) = here.join()
    assert rdys([one, late]) == [50, 0]
    # What was on its way at first has arrived; what came behind it has not.
    here.run(0.04)
    assert late.rdy == 0
    here.run(0.04)
    assert rdys([one, late]) == [50, 50]


def test_who_brings_nothing_gives_way_soon(world):
    here = world(max_in_flight=1, rdy_redistribute_interval=5)
    members = here.join(5)
    seen = set()
    for _ in range(60):
        assert sum(rdys(members)) <= 1
        seen |= {place for place, each in enumerate(members) if each.rdy}
        here.run(0.1)
    assert len(seen) == 5


def test_who_brings_messages_keeps_its_turn_until_it_is_over(world):
    here = world(max_in_flight=1, rdy_redistribute_interval=5, rdy_mode="level")
    one, other = here.join(2)
    turns = []
    for _ in range(240):
        for each in (one, other):
            each.push()
            each.settled = each.reader.received
        turns.append(one.rdy)
        here.run(0.1)
    assert 100 <= sum(turns) <= 140
    changes = sum(before != after for before, after in pairwise(turns))
    assert 3 <= changes <= 5


@pytest.mark.parametrize("round_trip", [0.0002, 0.02, 0.4])
@pytest.mark.parametrize("interval", [0.001, 0.02, 0.3, 5])
@pytest.mark.parametrize(("connections", "total"), [(2, 1), (4, 3), (5, 2), (9, 8)])
@pytest.mark.parametrize("busy", ["none", "the first", "all"])
def test_nobody_waits_longer_than_the_turns_of_all(
    world, round_trip, interval, connections, total, busy
):
    """Reliability C3, where a turn is at least as long as what is on its way."""
    here = world(max_in_flight=total, rdy_redistribute_interval=interval)
    members = here.join(connections)
    bringing = {"none": [], "the first": members[:1], "all": members}[busy]
    for each in members:
        each.round_trip = round_trip
    on_its_way = 0.05 + 2 * round_trip
    turn = max(interval, 0.05) + max(0.05, interval * 0.1)  # looked at so often
    longest = connections * (turn + on_its_way + 2 * PERIOD)
    last_seen = dict.fromkeys(members, here.now)
    while here.now < 1000 + 2 * longest:
        for each in bringing:
            each.push()
            each.settled = each.reader.received
            here.rdy_controller.wake()
        here.run(turn / 10)
        assert sum(rdys(members)) <= total
        last_seen |= dict.fromkeys((each for each in members if each.rdy), here.now)
        assert here.now - min(last_seen.values()) <= longest


def test_a_probe_goes_round_those_that_bring_nothing(world):
    here = world(rdy_redistribute_interval=5, backoff_multiplier=1)
    members = here.join(8)
    here.fail(members[0])
    assert here.watching
    assert rdys(members) == [0] * 8
    here.run(1)
    carried = set()
    for _ in range(40):
        assert sum(rdys(members)) <= 1
        carried |= {place for place, each in enumerate(members) if each.rdy}
        here.run(0.3)
    assert carried == set(range(8))
    here.run(0.1)
    (probe,) = (each for each in members if each.rdy)
    here.rdy_controller.on_result(probe.message(received_at=here.now), ok=True)
    assert not here.watching
    assert rdys(members) == [1] * 8
    here.run(5)
    assert not here.due


def test_nothing_is_looked_at_in_a_pause(world):
    here = world(max_in_flight=100)
    members = here.join(2)
    here.rdy_controller.pause(True)
    here.rdy_controller.wake()
    here.run(1)
    assert rdys(members) == [0, 0]
    assert not here.due
    here.rdy_controller.pause(False)
    assert rdys(members) == [1, 1]
    here.rdy_controller.set_max_in_flight(0)
    assert rdys(members) == [0, 0]
    here.rdy_controller.set_max_in_flight(1)
    here.run(0.1)
    assert sum(rdys(members)) == 1


def test_a_topic_that_turns_out_to_be_ordered_has_one_each(world):
    here = world(max_in_flight=100)
    members = here.join(2) + here.join(1, ordered=True)
    assert rdys(members) == [1, 1, 1]
    here.rdy_controller.wake()
    members[0].reader.received = 1000
    here.run(1)
    assert rdys(members) == [1, 1, 1]


def test_who_is_starved_holds_it_and_what_waits_is_only_in_flight(world):
    world = world(max_in_flight=20, rdy_mode="level")
    one, other = world.join(2)
    one.push()
    assert (world.rdy_controller.is_starved(), world.rdy_controller.is_full()) == (False, True)
    counts = world.dispatcher._own_counts()
    # Of each share of 10: 8 by the application, one by a handler.
    world.checked_out.counts = lambda: Counter({one: 8, other: 8})
    assert not world.rdy_controller.is_starved()
    counts.current = Message(_subscription=one, answered=False, _holder=None)
    assert world.rdy_controller.is_starved()
    counts.current.answered = True
    assert not world.rdy_controller.is_starved()
    counts.current = Message(_subscription=one, answered=False, _holder=world.checked_out)
    assert not world.rdy_controller.is_starved()
    world.dispatcher.gathering = [Message(_subscription=other)]
    assert world.rdy_controller.is_starved()
