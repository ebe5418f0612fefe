"""A server that ignores RDY is told from one whose messages time out."""

from __future__ import annotations

from nsqsmart.policy.surplus import Surplus


def test_twice_what_was_asked_for_and_a_few_are_permitted() -> None:
    surplus = Surplus(60.0)
    assert not surplus.is_too_much(10, 0, 84, 1.0, 1.0)
    assert surplus.is_too_much(10, 0, 85, 1.0, 1.0)


def test_what_adds_up_over_many_reads_is_seen() -> None:
    surplus = Surplus(60.0)
    found = [surplus.is_too_much(1, n, n + 1, 1.0, 1.0) for n in range(90)]
    assert found.index(True) < 70


def test_messages_that_time_out_unanswered_come_again() -> None:
    surplus = Surplus(1.0)
    for second in range(1000):
        before = 10 * second
        assert not surplus.is_too_much(10, before, before + 10, second - 0.9, second)


def test_so_do_those_that_came_while_nobody_read() -> None:
    """A process that was stopped for a minute reads what sixty time-outs have brought."""
    surplus = Surplus(1.0)
    for number in range(60):
        assert not surplus.is_too_much(10, 10 * number, 10 * number + 10, 0.0, 60.0)


def test_what_was_answered_counts_no_more() -> None:
    surplus = Surplus(60.0)
    for _ in range(100):
        assert not surplus.is_too_much(10, 30, 40, 1.0, 1.0)
        assert not surplus.is_too_much(10, 5, 10, 1.0, 1.0)


def test_a_flood_behind_a_long_silence_is_none_the_less_one() -> None:
    surplus = Surplus(1.0)
    assert not surplus.is_too_much(10, 0, 11, 0.0, 100.0)
    assert surplus.is_too_much(10, 11, 5000, 100.0, 100.0)
