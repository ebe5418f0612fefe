"""How a command ends: by signals that come at any time."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from nsqsmart import CloseReport
from nsqsmart.cli.common.ending import Ending, consume


class Consumer:
    """Does *at_start* when it starts; how long its close would have waited is kept."""

    def __init__(self, at_start: Callable[[], object]) -> None:
        self.at_start = at_start
        self.patience: float | None = None

    def on_end(self, tell: Callable[[object], None]) -> None: ...

    def start(self) -> None:
        self.at_start()

    def pause(self) -> None: ...

    def close(self, timeout: float) -> CloseReport:
        self.patience = timeout
        return CloseReport(1, 0, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_anything_begins_interrupts(number):
    with Ending() as ending, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert not ending.interrupted


def test_a_signal_behind_the_first_message_ends_it_in_order_though_nobody_waits_yet():
    with Ending() as ending:

        def at_start() -> None:
            ending.begin()
            signal.raise_signal(signal.SIGTERM)

        consumer = Consumer(at_start)
        assert consume([consumer], ending, close_timeout=60) == [CloseReport(1, 0, 0)]
    assert ending.interrupted
    assert consumer.patience == pytest.approx(60, abs=30)


def test_a_second_signal_does_not_wait_for_what_is_under_way():
    with Ending() as ending:

        def at_start() -> None:
            ending.begin()
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

        consumer = Consumer(at_start)
        with pytest.raises(KeyboardInterrupt):
            consume([consumer], ending, close_timeout=60)
    assert consumer.patience == 0


def test_a_command_that_a_signal_ended_says_what_was_left(capsys):
    done = Ending()
    assert done.exit_code("tail", "2 messages printed", [CloseReport(2, 0, 0)]) == 0
    assert capsys.readouterr().err == ""
    with Ending() as ending:
        ending.begin()
        signal.raise_signal(signal.SIGTERM)
    left = CloseReport(1, 0, 0, (bytes(16),))
    assert ending.exit_code("tail", "1 message printed", [left]) == 130
    assert capsys.readouterr().err == (
        "nsqsmart tail: interrupted: 1 message printed; 1 still being handled, they come again\n"
    )
