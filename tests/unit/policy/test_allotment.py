"""Never more in flight than there may be, and nothing held back without need."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nsqsmart.policy.allotment import allot
from nsqsmart.policy.flow import FlowControl, FlowLimits, FlowState


@pytest.mark.parametrize(
    ("shares", "wishes", "in_flight", "total", "levels"),
    [
        ([], [], [], 5, []),
        ([5], [5], [0], 5, [5]),
        ([100, 100], [100, 100], [0, 0], 200, [100, 100]),
        # Less than its share is enough for one.
        ([100, 100], [3, 50], [0, 0], 200, [3, 50]),
        # What an idle one leaves is for the busy ones.
        ([100, 100], [1, 180], [0, 0], 200, [1, 180]),
        ([100, 100], [1, 250], [0, 0], 200, [1, 199]),
        ([3, 3, 3], [1, 5, 9], [0, 0, 0], 9, [1, 4, 4]),
        ([3, 3, 3], [1, 4, 9], [0, 0, 0], 9, [1, 4, 4]),
        ([3, 3, 3], [1, 3, 9], [0, 0, 0], 9, [1, 3, 5]),
        # Who was sent more before still has it.
        ([100, 100], [100, 100], [200, 0], 200, [100, 0]),
        ([100, 100], [100, 100], [150, 0], 200, [100, 50]),
        ([100, 100], [100, 100], [150, 100], 200, [100, 100]),
        ([1, 0], [1, 1], [0, 1], 1, [0, 0]),
        ([1, 1, 0], [1, 1, 1], [0, 0, 1], 2, [1, 0, 0]),
        ([5, 5, 0], [5, 5, 0], [2, 0, 4], 10, [4, 2, 0]),
        ([5, 5, 0], [5, 5, 0], [2, 0, 5], 10, [4, 1, 0]),
        # More than there may be: nothing new.
        ([5, 5], [5, 5], [30, 0], 10, [5, 0]),
        ([0, 0], [0, 0], [3, 0], 0, [0, 0]),
    ],
)
def test_allotments(shares, wishes, in_flight, total, levels):
    found = allot(*(dict(enumerate(each)) for each in (shares, wishes, in_flight)), total)
    assert list(found.values()) == levels


def test_who_is_not_mentioned_has_nothing_in_flight():
    assert allot({"a": 2, "b": 1}, {"a": 2, "b": 1}, {"c": 3}, 3) == {"a": 2, "b": 1}


counts = st.integers(0, 60)


@given(st.lists(st.tuples(counts, counts, counts), max_size=12), st.integers(0, 100))
def test_it_is_within_bounds(rows, more):
    shares, wishes, in_flight = ({n: row[k] for n, row in enumerate(rows)} for k in range(3))
    total = sum(shares.values()) + more
    levels = allot(shares, wishes, in_flight, total)
    assert levels.keys() == shares.keys()
    assert all(0 <= levels[name] <= wishes[name] for name in levels)
    could = sum(max(levels[name], in_flight[name]) for name in levels)
    assert could <= max(total, sum(in_flight.values()))
    if not any(in_flight.values()):
        assert all(levels[name] >= min(shares[name], wishes[name]) for name in levels)
        assert sum(levels.values()) == min(total, sum(wishes.values()))


class Servers(RuleBasedStateMachine):
    """Servers that push what they may at once, and a client that answers when it likes."""

    @initialize(most=st.integers(0, 6))
    def begin(self, most: int) -> None:
        self.most = most
        self.flow = FlowControl(FlowLimits(most), lambda names: names[0])
        self.in_flight: dict[object, int] = {}
        self.rdy: dict[object, int] = {}
        self.bound = 0
        self.now = 0.0

    def apply(self) -> None:
        shares = {name: self.flow.target(name) for name in self.in_flight}
        self.rdy = allot(shares, shares, self.in_flight, self.most)
        # What is there already cannot be taken back.
        self.bound = max(self.most, sum(self.in_flight.values()))

    @rule(name=st.integers(0, 7))
    def connect(self, name: int) -> None:
        if name not in self.in_flight:
            self.flow.connect(name, 2500, self.now)
            self.in_flight[name] = 0
            self.apply()

    @rule(name=st.integers(0, 7))
    def disconnect(self, name: int) -> None:
        self.flow.disconnect(name, self.now)
        self.in_flight.pop(name, None)
        self.rdy.pop(name, None)
        self.apply()

    @rule(most=st.integers(0, 6))
    def set_max_in_flight(self, most: int) -> None:
        self.most = most
        self.flow.set_max_in_flight(most)
        self.apply()

    @rule(over=st.sets(st.integers(0, 7)))
    def end_turns(self, over: set[object]) -> None:
        self.flow.rotate(over)
        self.apply()

    @rule(name=st.integers(0, 7))
    def push(self, name: int) -> None:
        if name in self.in_flight and self.in_flight[name] < self.rdy[name]:
            self.in_flight[name] = self.rdy[name]

    @rule(name=st.integers(0, 7), ok=st.booleans())
    def answer(self, name: int, ok: bool) -> None:
        if self.in_flight.get(name):
            self.in_flight[name] -= 1
            self.flow.on_result(name, ok=ok, delivered_at=self.now, now=self.now)
            self.apply()

    @rule()
    def wait(self) -> None:
        self.now += 200.0
        self.flow.on_time(self.now)
        self.apply()

    @invariant()
    def no_more_in_flight_than_there_may_be(self) -> None:
        if hasattr(self, "rdy"):
            assert sum(self.rdy.values()) <= self.most
            assert sum(self.in_flight.values()) <= self.bound

    @invariant()
    def once_all_is_answered_somebody_has_rdy(self) -> None:
        if hasattr(self, "rdy") and self.in_flight and self.most:
            if self.flow.state is FlowState.BACKING_OFF:
                assert self.flow.due() is not None
            elif not any(self.in_flight.values()):
                assert any(self.rdy.values())


TestServers = Servers.TestCase
TestServers.settings = hypothesis_settings(deadline=None, stateful_step_count=40)
