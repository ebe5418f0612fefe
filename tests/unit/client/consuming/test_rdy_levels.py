"""Lower before raise, and no raise on the strength of a lower one that was not sent."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nsqsmart.client.consuming.rdy_controller import lower, raise_within


class Hashable(SimpleNamespace):
    __hash__ = object.__hash__


def wanted(*rows: tuple[int, int, int]) -> dict:
    """From (rdy, sent, level) of each."""
    return {
        Hashable(write_buffer=SimpleNamespace(rdy=rdy, rdy_sent=sent, broken=False)): level
        for rdy, sent, level in rows
    }


def rdys(levels: dict) -> list[int]:
    return [each.write_buffer.rdy for each in levels]


def test_only_what_is_less_is_lowered():
    levels = wanted((5, 5, 2), (5, 5, 5), (1, 1, 7))
    assert list(lower(levels).values()) == [5]
    assert rdys(levels) == [2, 5, 1]


@pytest.mark.parametrize(
    ("rows", "total", "after", "short"),
    [
        ([(2, 2, 2), (0, 0, 3)], 5, [2, 3], False),
        # The lower one has not left yet: the other has only what is left.
        ([(2, 5, 2), (0, 0, 3)], 5, [2, 0], True),
        ([(2, 4, 2), (0, 0, 3)], 5, [2, 1], True),
        # Back again before it has left: that costs nothing.
        ([(2, 5, 4), (0, 0, 1)], 5, [4, 0], True),
        ([(2, 5, 5)], 5, [5], False),
        # Set and not sent yet counts as well.
        ([(3, 0, 3), (0, 0, 3)], 5, [3, 2], True),
        # There may be less than was sent.
        ([(1, 9, 1), (0, 0, 1)], 2, [1, 0], True),
        ([(5, 5, 2)], 5, [5], False),
    ],
)
def test_a_raise_waits_for_what_has_not_been_taken_back(rows, total, after, short):
    levels = wanted(*rows)
    before = rdys(levels)
    raised, late = raise_within(levels, total, {})
    assert rdys(levels) == after
    assert late == short
    assert len(raised) == sum(one != other for one, other in zip(before, after, strict=True))


def test_who_cannot_be_told_is_left_out():
    gone = Hashable(write_buffer=SimpleNamespace(rdy=9, rdy_sent=9, broken=True))
    new = Hashable(write_buffer=None)
    here = Hashable(write_buffer=SimpleNamespace(rdy=0, rdy_sent=0, broken=False))
    levels = {gone: 1, new: 1, here: 4}
    assert lower(levels) == {}
    assert raise_within(levels, 4, {}) == ([here], False)
    assert (here.write_buffer.rdy, gone.write_buffer.rdy) == (4, 9)


def test_what_one_had_a_moment_ago_may_still_arrive():
    levels = wanted((1, 1, 1), (0, 0, 4))
    former = {next(iter(levels)): 4}
    raised, short = raise_within(levels, 5, former)
    assert rdys(levels) == [1, 1]
    assert (len(raised), short) == (1, True)
    assert not raise_within(levels, 5, {})[1]
    assert rdys(levels) == [1, 4]


def test_who_waits_is_not_overtaken_by_one_who_takes_back_what_he_had():
    levels = wanted((0, 0, 1), (1, 1, 1), (0, 0, 1))
    first, _, last = levels
    assert raise_within(levels, 2, {last: 1}) == ([], True)
    assert rdys(levels) == [0, 1, 0]
    assert raise_within(levels, 2, {}) == ([first], True)
    assert rdys(levels) == [1, 1, 0]


def test_the_larger_of_what_was_set_and_sent_may_arrive():
    levels = wanted((5, 0, 2), (3, 8, 2))
    assert list(lower(levels).values()) == [5, 8]
