"""How much may be on its way: first come, first served."""

from __future__ import annotations

import threading
from contextlib import suppress
from time import monotonic

import pytest

from nsqsmart.client.pipelining.in_flight import Room
from nsqsmart.errors import ClientClosed, PublishFailed, PublishTimeout
from tests.helpers import eventually
from tests.interrupts import count_places, interrupted_at


def later(
    room: Room, size: int, refused: list[Exception], patience: float = 30
) -> threading.Thread:
    """A thread that stands in line, and puts into *refused* why it got no room."""

    def enter() -> None:
        try:
            room.enter(size, monotonic() + patience)
        except (PublishTimeout, ClientClosed) as error:
            refused.append(error)

    thread = threading.Thread(target=enter, daemon=True)
    before = len(room._line)
    thread.start()
    eventually(lambda: len(room._line) > before)
    return thread


def test_small_ones_do_not_pass_a_large_one():
    room = Room(100, 10, block=True)
    room.enter(6, monotonic())
    refused: list[Exception] = []
    large, small = later(room, 8, refused), later(room, 2, refused)
    assert room.messages == 1
    room.leave(1, 6)
    for thread in (large, small):
        thread.join(10)
    assert refused == []
    assert (room.messages, room._bytes, len(room._line)) == (2, 10, 0)


def test_who_gives_up_lets_the_next_one_pass():
    room = Room(100, 10, block=True)
    room.enter(6, monotonic())
    refused: list[Exception] = []
    # Until the next one is in the line, too.
    large = later(room, 8, refused, patience=1.5)
    small = later(room, 2, refused)
    large.join(10)
    small.join(10)
    assert ([error.code for error in refused], room.messages) == (["QueueFull"], 2)


def test_one_that_is_larger_than_all_there_is_fits_alone():
    room = Room(100, 10, block=False)
    room.enter(50, monotonic())
    with pytest.raises(PublishFailed, match="on their way"):
        room.enter(1, monotonic() + 1)
    assert not room._line


def test_the_end_wakes_the_whole_line():
    room = Room(1, 10, block=True)
    room.enter(1, monotonic())
    refused: list[Exception] = []
    threads = [later(room, 1, refused) for _ in range(3)]
    room.close()
    for thread in threads:
        thread.join(10)
    assert [type(error) for error in refused] == [ClientClosed] * 3
    assert not room._line


def test_an_interrupt_anywhere_takes_no_room():
    room = Room(10, 100, block=True)

    def pass_by() -> None:
        room.enter(1, monotonic() + 30)
        room.leave(1, 1)

    places = count_places(lambda: room.enter(1, monotonic() + 30))
    room.leave(1, 1)
    for position in range(1, places + 1):
        with interrupted_at(position):
            try:
                room.enter(1, monotonic() + 30)
            except KeyboardInterrupt:
                pass
            else:
                room.leave(1, 1)
        assert (room.messages, room._bytes) == (0, 0), position
        pass_by()


def test_an_interrupt_anywhere_in_the_line_leaves_it():
    room = Room(100, 10, block=False)
    room.enter(6, monotonic())

    def refused() -> None:
        with pytest.raises(PublishFailed):
            room.enter(8, monotonic() + 30)

    for position in range(1, count_places(refused) + 1):
        with interrupted_at(position), suppress(KeyboardInterrupt):
            refused()
        assert (room.messages, len(room._line)) == (1, 0), position
