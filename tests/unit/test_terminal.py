"""What the programs share: exit codes and signals."""

from __future__ import annotations

import io
import signal
import threading

import pytest

from nsqsmart.errors import (
    ConfigError,
    ConnectError,
    DiscoveryError,
    MessageRejected,
    ProtocolError,
    PublishTimeout,
    TopicNotExist,
)
from nsqsmart.terminal import MovingLine, exit_code, signals_to

FOREIGN = ProtocolError("x")
FOREIGN.permanent = True


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 1),
        (OSError("x"), 1),
        (ConnectError("x"), 75),
        (ConnectError("x", permanent=True), 1),
        (ConnectError, 75),
        (ProtocolError("x"), 75),
        (FOREIGN, 1),
        (DiscoveryError("x"), 75),
        (TopicNotExist("x"), 75),
        (PublishTimeout("x"), 75),
        (MessageRejected("x"), 1),
        (MessageRejected, 1),
    ],
)
def test_what_may_succeed_later_is_75(error, code):
    assert exit_code(error) == code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_told_and_its_handler_comes_back(number):
    before, told = signal.getsignal(number), []
    with signals_to(lambda: told.append(number)):
        signal.raise_signal(number)
    assert told == [number]
    assert signal.getsignal(number) is before


def test_other_signals_are_left_alone():
    before = [signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT)]
    with signals_to(lambda: None, [signal.SIGTERM]):
        assert [signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT)] == before


def test_what_is_told_may_raise_and_the_handler_comes_back():
    def interrupt() -> None:
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), signals_to(interrupt):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_thread_installs_nothing():
    before, found = signal.getsignal(signal.SIGTERM), []

    def run() -> None:
        with signals_to(lambda: None):
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [before]


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_a_moving_line_is_drawn_over_and_taken_away(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = Screen()
    line = MovingLine(screen)
    line.draw("1 of 2")
    line.draw("2 of 2")
    line.clear()
    line.clear()
    assert screen.getvalue() == "\r\x1b[K1 of 2\r\x1b[K2 of 2\r\x1b[K"


@pytest.mark.parametrize("reason", ["off", "NO_COLOR", "pipe"])
def test_nothing_moves_where_it_is_not_watched(reason, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    if reason == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO() if reason == "pipe" else Screen()
    line = MovingLine(out, off=reason == "off")
    line.draw("1 of 2")
    line.clear()
    assert (line.live, out.getvalue()) == (False, "")
