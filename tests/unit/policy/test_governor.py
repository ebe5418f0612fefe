"""RDY as high as is needed, and no higher."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.policy.governor import PERIOD, Governor

RTT = 0.0002


class World:
    """A server with *offered* messages a second, and *workers* that take *handling* seconds."""

    def __init__(self, handling: float, offered: float, workers: int = 4) -> None:
        self.governor = Governor()
        self.handling = handling
        self.offered = offered
        self.workers = workers
        self._sent = self._busy = 0.0

    def play(self, ticks: int, share: int = 200) -> int:
        for _ in range(ticks):
            rdy = self.governor.within(share)
            rate = min(
                self.offered, rdy / (RTT + self.handling + 0.0001), self.workers / self.handling
            )
            self._sent += PERIOD * rate
            # As an occasional look finds it: mostly the one, sometimes the next.
            self._busy += min(rdy, rate * self.handling)
            messages, busy = int(self._sent), int(self._busy)
            self.governor.tick(messages, PERIOD, RTT, busy)
            self._sent -= messages
            self._busy -= busy
        return self.governor.within(share)


def test_with_a_backlog_it_reaches_its_share_in_a_few_ticks():
    assert World(0.00001, float("inf")).play(12) == 200


@pytest.mark.parametrize("handling", [0.001, 0.01, 0.1, 1.0, 60.0])
def test_slow_handlers_are_kept_busy_and_hoard_nothing(handling):
    rdy = World(handling, float("inf")).play(300)
    assert 8 <= rdy <= 32


@pytest.mark.parametrize("rate", [1, 20, 100])
def test_with_a_trickle_the_server_stays_saturated(rate):
    world = World(0.0001, rate)
    assert max(world.play(1) for _ in range(500)) == 1


def test_it_falls_back_when_the_backlog_is_gone():
    world = World(0.0001, float("inf"))
    world.play(30)
    assert not world.governor.resting
    world.offered = 0
    before = world.governor.level
    levels = [world.play(1) for _ in range(120)]
    assert levels[0] == before
    assert sorted(set(levels), reverse=True) == levels[::10][: len(set(levels))]
    assert levels[-1] == 1
    assert world.governor.resting


def test_a_steady_need_keeps_its_level():
    governor = Governor()
    for _ in range(100):
        governor.tick(40, PERIOD, RTT, 3)
    level = governor.level
    for _ in range(100):
        governor.tick(40, PERIOD, RTT, 3)
    assert governor.level == level


def test_it_rests_when_silence_changes_nothing():
    governor = Governor()
    assert governor.resting
    governor.tick(1, PERIOD, RTT, 0)
    assert (governor.level, governor.resting) == (1, False)
    governor.tick(0, PERIOD, RTT, 0)
    assert governor.resting
    governor.tick(0, PERIOD, RTT, 1)
    assert not governor.resting


def test_it_does_not_ask_for_more_than_there_is_for_long():
    governor = Governor()
    governor.tick(10_000, PERIOD, RTT, 0)
    assert governor.level > 1000
    assert governor.within(10) == 10
    assert governor.level == 10
    assert governor.within(0) == 0
    assert governor.within(10) == 1


@given(
    st.lists(
        st.tuples(
            st.integers(0, 100_000), st.floats(0, 10), st.floats(0, 10), st.integers(0, 1000)
        ),
        max_size=30,
    ),
    st.integers(0, 5000),
)
def test_it_is_always_within_bounds(ticks, share):
    governor = Governor()
    for messages, elapsed, round_trip, busy in ticks:
        governor.tick(messages, elapsed, round_trip, busy)
        assert min(1, share) <= governor.within(share) <= share
