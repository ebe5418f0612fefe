"""Whatever ends consumers, and whenever: run() returns, or raises it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from nsqsmart.client.consuming import run as running
from nsqsmart.client.consuming.run import run
from nsqsmart.client.consuming.runtime import CloseReport


class Consumer:
    """Ends when it is closed, and does *at_start* when it starts."""

    def __init__(self, at_start: Callable[[Consumer], None] = lambda consumer: None) -> None:
        self.at_start = at_start
        self.tell: Callable[[object], None] = lambda token: None
        self.ended = threading.Event()

    def check_runnable(self) -> None: ...

    def on_end(self, tell: Callable[[object], None]) -> None:
        self.tell = tell

    def start(self) -> None:
        self.at_start(self)

    def close(self, timeout: float | None = None) -> CloseReport:
        self.ended.set()
        self.tell(None)
        return CloseReport(1, 0, 0)

    def has_ended(self) -> bool:
        return self.ended.is_set()


def close(consumer: Consumer) -> None:
    consumer.close()


def test_it_returns_when_all_have_ended():
    assert run(Consumer(close), Consumer(close)) == (CloseReport(1, 0, 0),) * 2


@pytest.mark.parametrize("ends_first", [True, False])
def test_what_one_wants_is_raised_however_fast_it_ends(ends_first):
    def fail(consumer: Consumer) -> None:
        consumer.tell(SystemExit(3))
        if ends_first:
            consumer.close()

    consumer = Consumer(fail)
    with pytest.raises(SystemExit):
        run(consumer)
    assert consumer.has_ended()


def test_one_that_does_not_start_ends_those_before_it():
    def fail(consumer: Consumer) -> None:
        raise ValueError("oops")

    first, last = Consumer(), Consumer()
    with pytest.raises(ValueError, match="oops"):
        run(first, Consumer(fail), last)
    assert (first.has_ended(), last.has_ended()) == (True, False)


def test_nobody_is_no_one_to_wait_for():
    with pytest.raises(TypeError, match="at least one"):
        run()


def test_until_ends_it_as_a_signal_does(monkeypatch):
    monkeypatch.setattr(running, "_LOOK_EVERY", 0.001)
    answers = [False, False, True]
    assert run(Consumer(), until=lambda: answers.pop(0)) == (CloseReport(1, 0, 0),)
    assert answers == []


def test_what_until_raises_comes_after_the_drain(monkeypatch):
    monkeypatch.setattr(running, "_LOOK_EVERY", 0.001)
    consumer = Consumer()

    def fail() -> bool:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        run(consumer, until=fail)
    assert consumer.has_ended()


def test_who_is_told_that_it_is_ready_may_signal_at_once():
    consumers = (Consumer(), Consumer())

    def on_ready() -> None:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        os.kill(os.getpid(), signal.SIGTERM)

    assert run(*consumers, on_ready=on_ready) == (CloseReport(1, 0, 0),) * 2


def test_what_on_ready_raises_comes_after_the_drain():
    consumer = Consumer()

    def fail() -> None:
        assert not consumer.has_ended()
        raise ValueError("no supervisor")

    with pytest.raises(ValueError, match="no supervisor"):
        run(consumer, on_ready=fail)
    assert consumer.has_ended()
