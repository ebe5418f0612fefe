"""One thread that calls what is due, in time and in order, and sleeps otherwise."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from time import monotonic

import pytest

from nsqsmart.net.ticker import Ticker
from tests.helpers import eventually
from tests.interrupts import count_places, interrupted_at


@pytest.fixture
def ticker():
    made = Ticker("test", lambda: False, 0.001)
    made.start()
    yield made
    made.close()


def test_what_is_due_is_called_in_the_order_of_its_time(ticker):
    called: list[int] = []
    go_on = threading.Event()
    # It looks for what is due when all have been said, however long that takes.
    ticker.at(monotonic(), lambda: go_on.wait(10))
    now = monotonic()
    for number in (3, 1, 2, 0):
        ticker.at(now + number / 1000, lambda n=number: called.append(n))
    eventually(lambda: monotonic() > now + 0.003)
    go_on.set()
    eventually(lambda: called == [0, 1, 2, 3])


def test_of_the_same_time_the_first_comes_first(ticker):
    called: list[int] = []
    when = monotonic() + 0.02
    for number in range(50):
        ticker.at(when, lambda n=number: called.append(n))
    eventually(lambda: called == list(range(50)))


def test_an_earlier_call_wakes_it_from_a_long_sleep(ticker):
    called = threading.Event()
    ticker.at(monotonic() + 3600, lambda: None)
    ticker.at(monotonic(), called.set)
    assert called.wait(5)


def sleeps(ticker: Ticker) -> bool:
    """Whether its thread waits, and has not been woken."""
    frame = sys._current_frames()[ticker._thread.ident]
    return frame.f_code.co_name == "wait" and frame.f_locals["waiter"].locked()


def test_an_interrupt_anywhere_does_not_keep_it_from_being_woken(ticker):
    later = iter(range(3600, 0, -1))

    def set_it() -> None:
        ticker.at(monotonic() + next(later), lambda: None)

    for position in range(1, count_places(set_it) + 1):
        eventually(lambda: sleeps(ticker))
        with interrupted_at(position), suppress(KeyboardInterrupt):
            set_it()
        eventually(lambda: sleeps(ticker))
        called = threading.Event()
        ticker.at(monotonic(), called.set)
        assert called.wait(4), position


def test_an_error_in_a_call_ends_nothing(ticker, caplog):
    called = threading.Event()

    def fail() -> None:
        raise ValueError("oops")

    ticker.at(monotonic(), fail)
    ticker.at(monotonic(), called.set)
    assert called.wait(5)
    assert "oops" in caplog.text


def test_a_call_that_does_not_end_is_waited_for_until_the_deadline(ticker):
    entered, may_end = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        assert may_end.wait(20)

    ticker.at(monotonic(), wait)
    assert entered.wait(5)
    ticker.close(monotonic() + 0.01)
    may_end.set()


def test_a_call_may_ask_for_the_next(ticker):
    called = []

    def again() -> None:
        called.append(1)
        if len(called) < 5:
            ticker.at(monotonic(), again)

    ticker.at(monotonic(), again)
    eventually(lambda: len(called) == 5)


def test_the_sweep_goes_on_while_it_is_needed_and_starts_again():
    left = [3]
    swept = []

    def sweep() -> bool:
        swept.append(1)
        left[0] -= 1
        return left[0] > 0

    ticker = Ticker("test", sweep, 0.001)
    ticker.start()
    try:
        assert not swept
        ticker.nudge()
        eventually(lambda: len(swept) == 3)
        left[0] = 2
        ticker.nudge()
        eventually(lambda: len(swept) == 5)
    finally:
        ticker.close()


def test_no_nudge_is_lost_between_many_threads():
    """Work given before a nudge is seen by a sweep behind it."""
    work = [0, 0, 0, 0]
    seen = [0, 0, 0, 0]

    def sweep() -> bool:
        seen[:] = work
        return False

    ticker = Ticker("test", sweep, 0.0001)
    ticker.start()

    def give(index: int) -> None:
        for number in range(1, 2001):
            work[index] = number
            ticker.nudge()

    threads = [threading.Thread(target=give, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: seen == [2000] * 4, timeout=5)
    ticker.close()


def test_it_sleeps_while_nothing_is_due(monkeypatch):
    ticker = Ticker("test", lambda: False, 0.001)
    waits = []
    real = ticker._changed.wait
    monkeypatch.setattr(
        ticker._changed, "wait", lambda timeout: (waits.append(timeout), real(timeout))
    )
    ticker.start()
    done = threading.Event()
    ticker.at(monotonic(), done.set)
    assert done.wait(5)
    eventually(lambda: waits[-1:] == [None])
    count = len(waits)
    assert count < 5
    ticker.close()
    assert len(waits) == count


def test_close_forgets_what_is_not_due_and_may_come_from_a_call():
    called = []
    ticker = Ticker("test", lambda: False, 0.001)
    ticker.start()
    ticker.at(monotonic() + 60, lambda: called.append("late"))
    closed = threading.Event()
    ticker.at(monotonic(), lambda: (ticker.close(), closed.set()))
    assert closed.wait(5)
    ticker.close()
    assert not ticker._thread.is_alive()
    assert called == []


def test_close_before_start_leaves_no_thread():
    ticker = Ticker("test", lambda: False, 0.001)
    ticker.close()
    ticker.start()
    eventually(lambda: not ticker._thread.is_alive())
