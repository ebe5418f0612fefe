"""Shares of RDY, turns, and a backoff that always ends."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nsqsmart.policy.flow import FlowControl, FlowLimits, FlowState, Name

FLOWING, BACKING_OFF, PROBING = FlowState


def first(names: list[Name]) -> Name:
    return names[0]


def last(names: list[Name]) -> Name:
    return names[-1]


def flow(
    names: str = "",
    max_in_flight: int = 200,
    ceiling: int = 2500,
    choose: Callable[[list[Name]], Name] = first,
    *,
    multiplier: float = 1.0,
    longest: float = 120.0,
    one_each: bool = False,
) -> FlowControl:
    limits = FlowLimits(max_in_flight, multiplier, longest, one_each)
    control = FlowControl(limits, choose)
    for name in names:
        control.connect(name, ceiling, 0.0)
    return control


def targets(control: FlowControl, names: str) -> list[int]:
    return [control.target(name) for name in names]


def fail(control: FlowControl, now: float, name: str = "a") -> float:
    """A failure of the probe, or while flowing; returns the pause."""
    assert control.on_result(name, ok=False, delivered_at=now, now=now)
    due = control.due()
    assert due is not None
    return due - now


def probe(control: FlowControl) -> float:
    """Wait until the pause is over; returns the time."""
    due = control.due()
    assert due is not None
    assert control.on_time(due)
    return due


# Shares.


def test_another_max_in_flight_is_shared_out_at_once() -> None:
    control = flow("abc", 6)
    control.set_max_in_flight(0)
    assert targets(control, "abc") == [0, 0, 0]
    control.connect("d", 2500, 0.0)
    assert targets(control, "abcd") == [0, 0, 0, 0]
    assert not control.needs_rotation()
    control.set_max_in_flight(10)
    assert targets(control, "abcd") == [3, 3, 2, 2]
    control.set_max_in_flight(1)
    assert targets(control, "abcd") == [1, 0, 0, 0]
    assert control.needs_rotation()


def test_nothing_in_flight_is_no_probe_either_and_the_backoff_goes_on_afterwards() -> None:
    control = flow("ab")
    fail(control, 0.0)
    control.set_max_in_flight(0)
    now = probe(control)
    assert targets(control, "ab") == [0, 0]
    control.set_max_in_flight(5)
    assert targets(control, "ab") == [1, 0]
    assert control.on_result("a", ok=True, delivered_at=now, now=now)
    assert targets(control, "ab") == [3, 2]


@pytest.mark.parametrize(
    ("names", "max_in_flight", "ceiling", "shares"),
    [
        ("", 200, 2500, []),
        ("a", 200, 2500, [200]),
        ("a", 1, 2500, [1]),
        ("ab", 200, 2500, [100, 100]),
        ("abc", 200, 2500, [67, 67, 66]),
        ("abc", 3, 2500, [1, 1, 1]),
        ("abc", 5, 2500, [2, 2, 1]),
        ("abc", 2, 2500, [1, 1, 0]),
        ("abcd", 1, 2500, [1, 0, 0, 0]),
        ("ab", 200, 30, [30, 30]),
        ("ab", 200, 0, [0, 0]),
    ],
)
def test_shares(names: str, max_in_flight: int, ceiling: int, shares: list[int]) -> None:
    control = flow(names, max_in_flight, ceiling)
    assert control.state is FLOWING
    assert control.due() is None
    assert targets(control, names) == shares


def test_each_connection_has_its_own_ceiling() -> None:
    control = flow("a", 100)
    control.connect("b", 7, 0.0)
    assert targets(control, "ab") == [50, 7]
    control.connect("b", 60, 0.0)
    assert targets(control, "ab") == [50, 50]


def test_shares_follow_who_comes_and_goes() -> None:
    control = flow("ab", 10)
    control.connect("c", 2500, 0.0)
    assert targets(control, "abc") == [4, 3, 3]
    control.disconnect("a", 0.0)
    assert targets(control, "abc") == [0, 5, 5]
    control.disconnect("never came", 0.0)
    assert targets(control, "abc") == [0, 5, 5]


def test_shares_are_kept_for_connections_that_are_expected() -> None:
    control = flow("a", 10)
    control.expect(3)
    assert targets(control, "a") == [4]
    control.connect("b", 2500, 0.0)
    assert targets(control, "ab") == [4, 3]
    control.expect(0)
    assert targets(control, "ab") == [5, 5]


def test_an_unknown_connection_has_nothing() -> None:
    assert flow("a").target("b") == 0


def test_ordered_partitions_have_one_each() -> None:
    assert targets(flow("abc", 200, one_each=True), "abc") == [1, 1, 1]
    assert targets(flow("abc", 2, one_each=True), "abc") == [1, 1, 0]


# Turns.


@pytest.mark.parametrize(("names", "most"), [("", 1), ("a", 1), ("abc", 3), ("abc", 200)])
def test_enough_for_all_is_not_rotated(names: str, most: int) -> None:
    control = flow(names, most)
    before = targets(control, names)
    assert not control.needs_rotation()
    control.rotate()
    assert targets(control, names) == before


def test_turns() -> None:
    control = flow("abcde", 2)
    seen = []
    for _ in range(6):
        seen.append("".join(name for name in "abcde" if control.target(name)))
        assert control.needs_rotation()
        control.rotate()
    assert seen == ["ab", "cd", "ae", "bc", "de", "ab"]


@pytest.mark.parametrize("count", range(2, 9))
@pytest.mark.parametrize("most", range(1, 8))
def test_everybody_has_as_many_turns(count: int, most: int) -> None:
    names = "abcdefgh"[:count]
    control = flow(names, most)
    turns = dict.fromkeys(names, 0)
    for _ in range(count):
        assert sum(targets(control, names)) == most
        for name in names:
            turns[name] += control.target(name) > 0
        control.rotate()
    assert set(turns.values()) == {min(most, count)}


def test_a_connection_that_leaves_costs_nobody_a_turn() -> None:
    control = flow("abc", 1)
    control.rotate()
    assert targets(control, "abc") == [0, 1, 0]
    control.disconnect("a", 0.0)
    assert targets(control, "bc") == [1, 0]
    control.connect("a", 1, 0.0)
    assert targets(control, "abc") == [0, 1, 0]
    control.rotate()
    assert targets(control, "abc") == [0, 0, 1]


def test_who_flaps_does_not_push_in() -> None:
    control = flow("xab", 1)
    control.rotate()
    for _ in range(2):
        for name in "ab":
            control.disconnect(name, 0.0)
            control.connect(name, 1, 0.0)
    control.rotate()
    control.rotate()
    assert targets(control, "xab").count(1) == 1
    turns = 0
    for _ in range(3):
        turns += control.target("x")
        control.rotate()
    assert turns == 1


def test_only_those_whose_turn_is_over_give_way() -> None:
    control = flow("abcde", 2)
    assert control.served() == ["a", "b"]
    assert control.rotate(["b", "e", "unknown"])
    assert targets(control, "abcde") == [1, 0, 1, 0, 0]
    assert list(control.shares().items()) == [("a", 1), ("c", 1), ("d", 0), ("e", 0), ("b", 0)]
    assert not control.rotate([])
    assert targets(control, "abcde") == [1, 0, 1, 0, 0]
    assert control.rotate("ac")
    assert control.served() == ["d", "e"]


def test_where_there_is_enough_nobody_is_served_before_others() -> None:
    control = flow("ab", 2)
    assert control.served() == []
    assert not control.rotate("ab")
    fail(control, 0.0)
    assert control.served() == []
    probe(control)
    assert control.served() == ["a"]
    assert not control.rotate("b")
    assert control.rotate("a")
    assert control.served() == ["b"]


# Backoff.


def test_a_failure_stops_all_and_a_probe_tries_one() -> None:
    control = flow("abc", choose=last)
    assert fail(control, 100.0) == 1.0
    assert control.state is BACKING_OFF
    assert control.due() == 101.0
    assert targets(control, "abc") == [0, 0, 0]
    assert not control.needs_rotation()
    control.rotate()
    assert targets(control, "abc") == [0, 0, 0]
    assert not control.on_time(100.999)
    assert control.on_time(101.0)
    assert control.state is PROBING
    assert control.due() is None
    assert targets(control, "abc") == [0, 0, 1]
    assert not control.on_time(102.0)
    assert control.on_result("c", ok=True, delivered_at=101.0, now=103.0)
    assert control.state is FLOWING
    assert targets(control, "abc") == [67, 67, 66]


def test_success_while_flowing_changes_nothing() -> None:
    control = flow("ab")
    assert not control.on_result("a", ok=True, delivered_at=0.0, now=1.0)
    assert not control.on_time(9.0)
    assert targets(control, "ab") == [100, 100]


def test_pauses_double_with_failures_and_halve_with_successes() -> None:
    control = flow("a", longest=10.0)
    pauses = [fail(control, 0.0)]
    pauses.extend(fail(control, probe(control)) for _ in range(5))
    assert pauses == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    pauses = []
    while control.due() is not None:
        now = probe(control)
        assert control.on_result("a", ok=True, delivered_at=now, now=now)
        if (due := control.due()) is not None:
            pauses.append(due - now)
    assert pauses == [8.0, 4.0, 2.0, 1.0]
    assert control.state is FLOWING
    assert fail(control, 0.0) == 1.0


def test_a_night_of_failures_is_not_a_night_of_recovery() -> None:
    control = flow("a")
    fail(control, 0.0)
    for _ in range(500):
        fail(control, probe(control))
    assert steps_to_flowing(control) <= 8


@pytest.mark.parametrize("multiplier", [0.0, 1e-12])
def test_a_tiny_multiplier_has_its_bound_too(multiplier: float) -> None:
    control = flow("a", multiplier=multiplier)
    fail(control, 0.0)
    for _ in range(2000):
        assert fail(control, probe(control)) <= 120.0
    assert steps_to_flowing(control) <= 31


def test_a_first_pause_beyond_the_longest() -> None:
    control = flow("a", multiplier=300.0, longest=120.0)
    assert fail(control, 0.0) == 120.0
    assert fail(control, probe(control)) == 120.0
    assert steps_to_flowing(control) == 1


def test_only_the_probe_counts() -> None:
    control = flow("abc")
    fail(control, 0.0)
    now = probe(control)
    assert targets(control, "abc") == [1, 0, 0]
    for ok in (True, False):
        assert not control.on_result("b", ok=ok, delivered_at=now + 1, now=now + 1)
        assert not control.on_result("gone", ok=ok, delivered_at=now + 1, now=now + 1)
        assert not control.on_result("a", ok=ok, delivered_at=now - 0.001, now=now + 1)
    assert control.state is PROBING
    assert targets(control, "abc") == [1, 0, 0]


def test_results_during_the_pause_say_nothing() -> None:
    control = flow("ab")
    fail(control, 0.0)
    for ok in (True, False):
        assert not control.on_result("a", ok=ok, delivered_at=0.5, now=0.5)
    assert control.due() == 1.0


def test_the_probe_of_an_earlier_pause_is_stale() -> None:
    control = flow("a")
    fail(control, 0.0)
    early = probe(control)
    fail(control, early + 1)
    probe(control)
    assert not control.on_result("a", ok=True, delivered_at=early, now=99.0)
    assert control.state is PROBING


def test_the_probe_goes_over_to_another_connection() -> None:
    control = flow("abc")
    fail(control, 0.0)
    probe(control)
    control.disconnect("b", 2.0)
    assert targets(control, "abc") == [1, 0, 0]
    control.disconnect("a", 2.0)
    assert targets(control, "abc") == [0, 0, 1]
    assert not control.on_result("a", ok=True, delivered_at=2.0, now=3.0)
    assert not control.on_result("c", ok=True, delivered_at=1.9, now=3.0)
    assert control.on_result("c", ok=True, delivered_at=2.0, now=3.0)
    assert control.state is FLOWING


def test_a_probe_waits_for_a_connection() -> None:
    control = flow("a")
    fail(control, 0.0)
    control.disconnect("a", 0.5)
    assert probe(control) == 1.0
    assert control.state is PROBING
    control.connect("b", 2500, 5.0)
    control.connect("c", 2500, 5.0)
    assert targets(control, "bc") == [1, 0]
    control.disconnect("b", 6.0)
    control.disconnect("c", 6.0)
    control.connect("d", 2500, 7.0)
    assert targets(control, "d") == [1]
    assert not control.on_result("d", ok=True, delivered_at=6.9, now=8.0)
    assert control.on_result("d", ok=True, delivered_at=7.0, now=8.0)
    assert control.state is FLOWING


def test_a_connection_that_comes_during_the_pause_waits() -> None:
    control = flow("a", choose=last)
    fail(control, 0.0)
    control.connect("b", 2500, 0.5)
    assert targets(control, "ab") == [0, 0]
    probe(control)
    assert targets(control, "ab") == [0, 1]


def test_the_probe_moves_on_where_nothing_comes() -> None:
    """A connection without messages may not keep all others waiting."""
    control = flow("abc")
    fail(control, 0.0)
    now = probe(control)
    seen = []
    for _ in range(4):
        seen.append(targets(control, "abc"))
        assert control.needs_rotation()
        control.rotate()
    assert seen == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert targets(control, "abc") == [0, 1, 0]
    # What the probe before brought still counts: a slow handler may have it.
    assert control.on_result("a", ok=True, delivered_at=now, now=now + 9)
    assert control.state is FLOWING
    assert not control.needs_rotation()


def test_the_probe_that_it_moved_to_counts() -> None:
    for ok, state in ((True, FLOWING), (False, BACKING_OFF)):
        control = flow("ab")
        fail(control, 0.0)
        now = probe(control)
        control.rotate()
        assert control.on_result("b", ok=ok, delivered_at=now, now=now)
        assert control.state is state


def test_a_single_probe_does_not_move() -> None:
    control = flow("a")
    fail(control, 0.0)
    probe(control)
    assert not control.needs_rotation()
    control.rotate()
    assert control.target("a") == 1


def test_a_probe_keeps_to_its_ceiling() -> None:
    control = flow("a", ceiling=0)
    control.connect("b", 1, 0.0)
    fail(control, 0.0)
    probe(control)
    assert targets(control, "ab") == [0, 0]
    control.rotate()
    assert targets(control, "ab") == [0, 1]


@pytest.mark.parametrize("options", [{"longest": 0.0}, {"one_each": True}])
def test_without_backoff(options: dict) -> None:
    control = flow("ab", **options)
    before = targets(control, "ab")
    assert not control.on_result("a", ok=False, delivered_at=0.0, now=0.0)
    assert control.state is FLOWING
    assert control.due() is None
    assert targets(control, "ab") == before


def test_the_limits_of_the_table_of_options() -> None:
    assert FlowLimits() == FlowLimits(200, 1.0, 120.0, one_each=False)


def steps_to_flowing(control: FlowControl, now: float = 0.0) -> int:
    """Let every probe succeed at once; returns how many it took."""
    names = list(control._ceilings)
    for step in range(40):
        if control.state is FLOWING:
            return step
        if (due := control.due()) is not None:
            now = due
            assert control.on_time(now)
        (probing,) = [name for name in names if control.target(name)]
        assert control.on_result(probing, ok=True, delivered_at=now, now=now)
    raise AssertionError("the backoff does not end")


class FlowMachine(RuleBasedStateMachine):
    """Whatever comes in whatever order, the promises hold."""

    @initialize(
        most=st.integers(1, 12),
        multiplier=st.sampled_from([0.0, 0.5, 1.0, 500.0]),
        longest=st.sampled_from([0.0, 4.0, 120.0]),
        one_each=st.booleans(),
        place=st.integers(0, 7),
    )
    def begin(
        self, most: int, multiplier: float, longest: float, one_each: bool, place: int
    ) -> None:
        self.limits = FlowLimits(most, multiplier, longest, one_each)
        self.flow = FlowControl(self.limits, lambda names: names[place % len(names)])
        self.ceilings: dict[Name, int] = {}
        self.waited: dict[Name, int] = {}
        self.now = 0.0
        self.probing_since: float | None = None
        self.carried: set[Name] = set()

    def note(self) -> None:
        """Keep account of the turns and of who has carried the probe."""
        for name in self.ceilings:
            if self.flow.target(name) or self.flow.state is not FLOWING:
                self.waited[name] = 0
        if self.flow.state is PROBING:
            self.carried |= {name for name in self.ceilings if self.flow.target(name)}
        else:
            self.carried = set()

    @rule(name=st.integers(0, 7), ceiling=st.integers(1, 9))
    def connect(self, name: int, ceiling: int) -> None:
        self.flow.connect(name, ceiling, self.now)
        self.ceilings[name] = ceiling
        self.waited.setdefault(name, 0)
        self.note()

    @rule(name=st.integers(0, 7))
    def disconnect(self, name: int) -> None:
        self.flow.disconnect(name, self.now)
        self.ceilings.pop(name, None)
        self.waited.pop(name, None)
        self.note()

    @rule()
    def rotate(self) -> None:
        rotates = self.flow.needs_rotation()
        before = self.levels()
        self.flow.rotate()
        assert rotates or self.levels() == before
        if self.flow.state is FLOWING:
            for name in self.ceilings:
                self.waited[name] += 1
        self.note()

    @rule(over=st.sets(st.integers(0, 7)))
    def end_some_turns(self, over: set[Name]) -> None:
        served, before = set(self.flow.served()), self.levels()
        assert self.flow.rotate(over) == bool(served & over)
        if not served & over:
            assert self.levels() == before
        # Who keeps his turn is not pushed out by those who end theirs.
        assert all(self.flow.target(name) for name in served - over if self.ceilings[name])
        self.note()

    @rule(most=st.integers(1, 12), stops=st.booleans())
    def set_max_in_flight(self, most: int, stops: bool) -> None:
        if stops:
            self.flow.set_max_in_flight(0)
            assert not any(self.levels())
            assert not self.flow.needs_rotation()
        self.flow.set_max_in_flight(most)
        self.limits = dataclasses.replace(self.limits, max_in_flight=most)
        # Other turns than before.
        self.waited = dict.fromkeys(self.waited, 0)
        self.note()

    @rule(seconds=st.sampled_from([0.0, 0.25, 1.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        due, before = self.flow.due(), self.levels()
        changed = self.flow.on_time(self.now)
        assert changed == (due is not None and self.now >= due)
        assert changed or self.levels() == before
        self.note()

    @rule()
    @precondition(lambda self: self.flow.due() is not None)
    def wait_until_due(self) -> None:
        self.now = max(self.now, self.flow.due())
        assert self.flow.on_time(self.now)
        assert self.flow.state is PROBING
        self.note()

    @rule(name=st.integers(0, 7), ok=st.booleans(), age=st.sampled_from([0.0, 0.5, 100.0]))
    def result(self, name: int, ok: bool, age: float) -> None:
        state, before, carried = self.flow.state, self.levels(), name in self.carried
        changed = self.flow.on_result(name, ok=ok, delivered_at=self.now - age, now=self.now)
        if self.limits.one_each or not self.limits.max_backoff_duration:
            assert not changed
        elif state is FLOWING:
            assert changed != ok
        elif state is BACKING_OFF or not carried:
            assert not changed
        if changed:
            assert self.flow.state is not PROBING
        else:
            assert (self.flow.state, self.levels()) == (state, before)
        self.note()

    @rule(ok=st.booleans())
    def probed(self, ok: bool) -> None:
        """The one that has RDY 1 brings a message, and it is handled at once."""
        if self.flow.state is PROBING and self.ceilings:
            (name,) = [name for name in self.ceilings if self.flow.target(name)]
            assert self.flow.on_result(name, ok=ok, delivered_at=self.now, now=self.now)
            assert self.flow.state is not PROBING
            self.note()

    def levels(self) -> list[int]:
        return [self.flow.target(name) for name in range(8)]

    @invariant()
    def within_bounds(self) -> None:
        levels = self.levels()
        assert sum(levels) <= self.limits.max_in_flight
        for name, level in enumerate(levels):
            ceiling = self.ceilings.get(name, 0)
            assert 0 <= level <= (min(1, ceiling) if self.limits.one_each else ceiling)

    @invariant()
    def nobody_is_forgotten(self) -> None:
        levels = [self.flow.target(name) for name in self.ceilings]
        due = self.flow.due()
        assert (due is None) == (self.flow.state is not BACKING_OFF)
        if due is not None:
            assert not any(levels)
            assert due <= self.now + self.limits.max_backoff_duration
        elif self.ceilings and self.flow.state is PROBING:
            assert sorted(levels)[-2:] in ([1], [0, 1])
        elif self.ceilings:
            assert any(levels)
        starving = not all(levels)
        assert self.flow.needs_rotation() == (bool(levels) and due is None and starving)

    @invariant()
    def turns_come(self) -> None:
        rounds = -(-8 // self.limits.max_in_flight)
        assert all(waited <= rounds for waited in self.waited.values())

    @invariant()
    def backoff_ends(self) -> None:
        control = copy.deepcopy(self.flow)
        if not self.ceilings:
            control.connect("late", 1, self.now)
        assert steps_to_flowing(control, self.now) <= 32


TestFlowMachine = FlowMachine.TestCase
TestFlowMachine.settings = settings(deadline=None, stateful_step_count=40)


@given(st.integers(1, 300), st.lists(st.integers(1, 300), max_size=30))
def test_nothing_is_held_back_without_need(most: int, ceilings: list[int]) -> None:
    control = FlowControl(FlowLimits(most), first)
    for name, ceiling in enumerate(ceilings):
        control.connect(name, ceiling, 0.0)
    shares = [control.target(name) for name in range(len(ceilings))]
    assert sum(shares) <= most
    if ceilings and min(ceilings) >= most:
        assert sum(shares) == most
        assert max(shares) - min(shares) <= 1
