"""Which waiting messages of an original queue are on disk."""

from __future__ import annotations

import pytest

from nsqsmart.embedded.broker.original_memory import Overflow


def test_what_memory_has_no_room_for_goes_to_disk() -> None:
    overflow = Overflow(3, 0)
    assert list(overflow.spill(3, 0, 3)) == []
    assert list(overflow.spill(5, 0, 5)) == [3, 4]
    assert list(overflow.spill(6, 2, 6)) == [5]
    assert overflow.count(0) == 3
    assert [index for index in range(8) if index in overflow] == [3, 4, 5]


def test_there_is_room_again_when_something_was_read() -> None:
    overflow = Overflow(2, 0)
    overflow.spill(4, 0, 4)
    # The first two were read: the next two fit, although older ones are on disk.
    assert list(overflow.spill(4, overflow.count(2), 6)) == []
    assert list(overflow.spill(5, overflow.count(2), 7)) == [6]
    assert overflow.count(2) == 3
    assert overflow.count(3) == 2
    assert overflow.count(4) == 1
    assert overflow.count(7) == 0


def test_what_was_put_back_makes_no_message_go_to_disk_twice() -> None:
    overflow = Overflow(1, 0)
    assert list(overflow.spill(3, 0, 3)) == [1, 2]
    assert list(overflow.spill(9, 2, 3)) == []


def test_without_memory_everything_goes_to_disk_once() -> None:
    overflow = Overflow(0, 5)
    assert list(overflow.spill(0, 0, 7)) == [5, 6]
    assert list(overflow.spill(0, 0, 7)) == []
    assert list(overflow.spill(1, 0, 8)) == [7]


def test_messages_that_are_left_out_do_not_count() -> None:
    overflow = Overflow(0, 0)
    overflow.add(0, 10)
    assert overflow.count(2, {1, 3, 11}) == 7
    overflow.clear(10)
    assert overflow.count(0) == 0


@pytest.mark.parametrize(("start", "stop"), [(4, 4), (4, 3)])
def test_nothing_is_no_run(start: int, stop: int) -> None:
    overflow = Overflow(0, 0)
    overflow.add(start, stop)
    assert overflow.count(0) == 0
