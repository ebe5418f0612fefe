"""How each message stands to the one before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.policy.ordering import Order, OrderCheck


def judged(*messages: tuple[int, int]) -> tuple[list[str], tuple[int, int]]:
    check = OrderCheck()
    return [check.judge(*message).name for message in messages], check.position


def test_nothing_came_yet() -> None:
    assert OrderCheck().position == (-1, -1)


@pytest.mark.parametrize("first", [(0, 0), (0, 1), (7, 0), (2**63, 2**63)])
def test_the_first_message_is_in_order(first: tuple[int, int]) -> None:
    assert judged(first) == (["NEXT"], first)


def test_one_behind_the_other_with_gaps() -> None:
    assert judged((0, 1), (35, 2), (900, 40)) == (["NEXT"] * 3, (900, 40))


def test_the_same_again_any_number_of_times() -> None:
    assert judged((35, 2), (35, 2), (35, 2), (70, 3)) == (
        ["NEXT", "REPEAT", "REPEAT", "NEXT"],
        (70, 3),
    )


def test_an_earlier_offset_is_where_order_goes_on() -> None:
    assert judged((0, 1), (35, 2), (70, 3), (35, 2), (70, 3), (0, 1)) == (
        ["NEXT", "NEXT", "NEXT", "REWIND", "NEXT", "REWIND"],
        (0, 1),
    )


def test_who_comes_behind_those_that_follow_him_is_out_of_order() -> None:
    """He was never seen before; told once, he is known."""
    assert judged((0, 1), (70, 3), (35, 2), (35, 2), (70, 3)) == (
        ["NEXT", "NEXT", "VIOLATION", "REWIND", "NEXT"],
        (70, 3),
    )
    # Behind a rewind too, where the offset rises.
    assert judged((0, 1), (70, 3), (0, 1), (35, 2))[0] == ["NEXT", "NEXT", "REWIND", "VIOLATION"]


def test_before_the_first_one_nothing_is_known() -> None:
    assert judged((70, 3), (0, 1), (35, 2), (70, 3), (90, 4)) == (
        ["NEXT", "REWIND", "NEXT", "NEXT", "NEXT"],
        (90, 4),
    )


def test_a_log_without_gaps_is_one_range_and_many_gaps_are_bounded() -> None:
    check = OrderCheck()
    for number in range(5000):
        assert check.judge(40 * number, number, 40) is Order.NEXT
    assert (check._starts, check._ends) == ([0], [200_000])
    for number in range(5000, 10_000):
        assert check.judge(60 * number, number, 40) is Order.NEXT
    assert len(check._starts) == len(check._ends) == 1000
    # The gaps that are forgotten are no violation.
    assert check.judge(60 * 5000 + 40, 3, 10) is Order.REWIND
    assert check.judge(60 * 9000 + 40, 3, 10) is Order.VIOLATION
    check.restart()
    assert check.judge(5, 1, 40) is Order.NEXT


@pytest.mark.parametrize("back", [(35, 9), (69, 3), (70, 2), (70, 4)])
def test_whatever_the_id_an_offset_that_does_not_rise_is_a_rewind(back: tuple[int, int]) -> None:
    assert judged((70, 3), back) == (["NEXT", "REWIND"], back)


@pytest.mark.parametrize("bad", [(71, 2), (71, 3), (2**60, 0)])
def test_a_later_offset_needs_a_larger_id(bad: tuple[int, int]) -> None:
    assert judged((70, 3), bad) == (["NEXT", "VIOLATION"], (70, 3))


def test_a_violation_is_not_what_others_are_measured_by() -> None:
    assert judged((70, 3), (90, 1), (90, 1), (80, 4), (90, 2)) == (
        ["NEXT", "VIOLATION", "VIOLATION", "NEXT", "VIOLATION"],
        (80, 4),
    )


POSITIONS = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 3))


@given(st.lists(POSITIONS, max_size=20))
def test_any_messages(messages: list[tuple[int, int, int]]) -> None:
    check = OrderCheck()
    seen: set[int] = set()
    for offset, internal_id, size in messages:
        before = check.position
        order = check.judge(offset, internal_id, size)
        later, larger = offset > before[0], internal_id > before[1]
        broken = later and not larger
        missed = offset not in seen and bool(seen) and min(seen) < offset < max(seen)
        if (offset, internal_id) == before:
            assert order is Order.REPEAT
        elif broken or missed:
            assert order is Order.VIOLATION
        else:
            assert order is (Order.NEXT if later else Order.REWIND)
        if not broken and seen:
            seen |= set(range(offset, min(seen)))  # nothing is known of what was before our time
        if not broken:
            seen |= set(range(offset, offset + max(size, 1)))
        assert check.position == (before if order is Order.VIOLATION else (offset, internal_id))


def test_the_names_that_logs_carry() -> None:
    assert [str(order) for order in Order] == ["next", "repeat", "rewind", "violation"]
