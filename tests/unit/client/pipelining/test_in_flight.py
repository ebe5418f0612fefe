"""How much may be on its way: first come, first served."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from time import monotonic

import pytest

from nsqsmart.client.pipelining.in_flight import InFlightLimit
from nsqsmart.errors import ClientClosed, PublishFailed, PublishTimeout
from tests.helpers import eventually
from tests.interrupts import count_places, interrupted_at


def later(
    limit: InFlightLimit, size: int, refused: list[Exception], patience: float = 30
) -> threading.Thread:
    """A thread that stands in line, and puts into *refused* why it got no limit."""

    def enter() -> None:
        try:
            limit.enter(size, monotonic() + patience)
        except (PublishTimeout, ClientClosed) as error:
            refused.append(error)

    thread = threading.Thread(target=enter, daemon=True)
    before = len(limit._line)
    thread.start()
    eventually(lambda: len(limit._line) > before)
    return thread


def test_small_ones_do_not_pass_a_large_one():
    limit = InFlightLimit(100, 10, block=True)
    limit.enter(6, monotonic())
    refused: list[Exception] = []
    large, small = later(limit, 8, refused), later(limit, 2, refused)
    assert limit.messages == 1
    limit.leave(1, 6)
    for thread in (large, small):
        thread.join(10)
    assert refused == []
    assert (limit.messages, limit._bytes, len(limit._line)) == (2, 10, 0)


def test_who_gives_up_lets_the_next_one_pass():
    limit = InFlightLimit(100, 10, block=True)
    limit.enter(6, monotonic())
    refused: list[Exception] = []
    # Until the next one is in the line, too.
    large = later(limit, 8, refused, patience=1.5)
    small = later(limit, 2, refused)
    large.join(10)
    small.join(10)
    assert ([error.code for error in refused], limit.messages) == (["QueueFull"], 2)


def test_one_that_is_larger_than_all_there_is_fits_alone():
    limit = InFlightLimit(100, 10, block=False)
    limit.enter(50, monotonic())
    with pytest.raises(PublishFailed, match="in flight"):
        limit.enter(1, monotonic() + 1)
    assert not limit._line


def test_the_end_wakes_the_whole_line():
    limit = InFlightLimit(1, 10, block=True)
    limit.enter(1, monotonic())
    refused: list[Exception] = []
    threads = [later(limit, 1, refused) for _ in range(3)]
    limit.close()
    for thread in threads:
        thread.join(10)
    assert [type(error) for error in refused] == [ClientClosed] * 3
    assert not limit._line


def test_an_interrupt_anywhere_takes_no_room():
    limit = InFlightLimit(10, 100, block=True)

    def pass_by() -> None:
        limit.enter(1, monotonic() + 30)
        limit.leave(1, 1)

    places = count_places(lambda: limit.enter(1, monotonic() + 30))
    limit.leave(1, 1)
    for position in range(1, places + 1):
        with interrupted_at(position):
            try:
                limit.enter(1, monotonic() + 30)
            except KeyboardInterrupt:
                pass
            else:
                limit.leave(1, 1)
        assert (limit.messages, limit._bytes) == (0, 0), position
        pass_by()


def test_an_interrupt_anywhere_in_the_line_leaves_it():
    limit = InFlightLimit(100, 10, block=False)
    limit.enter(6, monotonic())

    def refused() -> None:
        with pytest.raises(PublishFailed):
            limit.enter(8, monotonic() + 30)

    for position in range(1, count_places(refused) + 1):
        with interrupted_at(position), suppress(KeyboardInterrupt):
            refused()
        assert (limit.messages, len(limit._line)) == (1, 0), position


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals go to no thread here")
def test_a_signal_that_does_not_wake_who_waits_is_heard_all_the_same(monkeypatch):
    monkeypatch.setattr("nsqsmart.client.pipelining.in_flight.LOOK_AGAIN", 0.05)
    limit = InFlightLimit(1, 10, block=True)
    limit.enter(1, monotonic())

    def interrupt() -> None:
        eventually(lambda: limit._waiters)
        os.kill(os.getpid(), signal.SIGINT)

    # Other tests of the process may have left a handler of their own, as PySpark does.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    # It takes the signal, for the main thread has it blocked: as if it had come before the sleep.
    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    deadline = monotonic() + 4
    try:
        with pytest.raises(KeyboardInterrupt):
            limit.enter(1, deadline)
        assert monotonic() < deadline
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        thread.join(10)
        signal.signal(signal.SIGINT, handler)
    assert (limit.messages, len(limit._line)) == (1, 0)
