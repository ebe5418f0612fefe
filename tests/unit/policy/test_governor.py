"""RDY as high as is needed, and no higher."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.policy.governor import PERIOD, Governor

RTT = 0.0002


def play(governor: Governor, share: int, handling: float, offered: float, ticks: int) -> int:
    """A server with *offered* messages a second, a client whose cycle is RTT and *handling*."""
    cycle, sent = RTT + handling + 0.0001, 0.0
    for _ in range(ticks):
        sent += PERIOD * min(offered, governor.within(share) / cycle)
        governor.tick(int(sent), PERIOD, RTT, handling)
        sent -= int(sent)
    return governor.within(share)


@pytest.mark.parametrize("handling", [0.00001, 0.001, 0.1])
def test_with_a_backlog_it_reaches_its_share_in_a_few_ticks(handling):
    # What a handler takes long for is seen late.
    ticks = 12 if handling < PERIOD else 150
    assert play(Governor(), 200, handling, float("inf"), ticks) == 200


@pytest.mark.parametrize("rate", [1, 20, 100])
def test_with_a_trickle_the_server_stays_saturated(rate):
    assert play(Governor(), 200, 0.0001, rate, 500) <= 2


def test_a_slow_handler_hoards_nothing():
    governor = Governor()
    # 4 workers of 1 s: four messages a second, one in each of some ticks.
    for tick in range(1000):
        governor.tick(int(tick % 12 == 0), PERIOD, RTT, 1.0)
    assert governor.within(200) <= 20


def test_it_falls_back_when_the_backlog_is_gone():
    governor = Governor()
    play(governor, 200, 0.0001, float("inf"), 20)
    levels = [play(governor, 200, 0.0001, 0, 1) for _ in range(100)]
    assert levels[:9] == [200] * 9
    assert sorted(set(levels), reverse=True) == [200, 100, 50, 25, 12, 6, 3, 1]
    assert governor.resting


def test_a_steady_need_keeps_its_level():
    governor = Governor()
    for _ in range(100):
        governor.tick(40, PERIOD, RTT, 0.001)
    level = governor.level
    for _ in range(100):
        assert not governor.tick(40, PERIOD, RTT, 0.001)
    assert governor.level == level


def test_it_does_not_ask_for_more_than_its_share_for_long():
    governor = Governor()
    governor.tick(10_000, PERIOD, RTT, 0.1)
    assert governor.level > 1000
    assert governor.within(10) == 10
    assert governor.level == 10
    assert governor.within(0) == 0
    assert governor.within(10) == 1


@given(
    st.lists(
        st.tuples(st.integers(0, 100_000), st.floats(0, 10), st.floats(0, 10), st.floats(0, 1000)),
        max_size=30,
    ),
    st.integers(0, 5000),
)
def test_it_is_always_within_bounds(ticks, share):
    governor = Governor()
    for messages, elapsed, round_trip, handling in ticks:
        governor.tick(messages, elapsed, round_trip, handling)
        assert governor.within(share) <= share
        assert governor.within(share) >= min(1, share)
