"""What lasts is logged at once, and then rarely."""

from __future__ import annotations

from nsqsmart.policy import rarely
from nsqsmart.policy.rarely import Rarely


def test_at_once_and_then_rarely() -> None:
    told = Rarely(60.0)
    assert [told.is_due("a", now) for now in (0.0, 1.0, 59.9, 60.0, 61.0)] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert told.is_due("b", 61.0)


def test_what_is_over_is_told_at_once_when_it_begins_again() -> None:
    told = Rarely(60.0)
    told.forget("a")
    assert told.is_due("a", 0.0)
    told.forget("a")
    assert told.is_due("a", 1.0)


def test_its_memory_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(rarely, "_MOST_KEYS", 3)
    told = Rarely(60.0)
    assert all(told.is_due(key, 0.0) for key in range(10))
    assert len(told._logged_at) <= 3
