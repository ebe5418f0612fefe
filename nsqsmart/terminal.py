"""What the programs share: the command ``nsqsmart``, Spark's jobs, commands of the frameworks.

Exit codes (decisions#66): 0 good, 1 a failed check or bad configuration, 2 usage, 75 worth retrying
later, 130 after Ctrl-C. Also signals, streams that are closed, a line that moves, and plain tables.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

from nsqsmart.errors import NsqError, TransportError

FAILED = 1
"""A failed check or bad configuration: trying again does not help."""
RETRY_LATER = 75
"""Worth trying again later (EX_TEMPFAIL)."""
INTERRUPTED = 130
"""After Ctrl-C or SIGTERM, as shells count it."""

Cell = str | int | float | None

ENDING = (signal.SIGINT, signal.SIGTERM)
"""The signals that ask a program to end."""


def exit_code(error: BaseException | type[BaseException]) -> int:
    """The exit code for *error*: 75 where the same command may succeed later, else 1.

    A class stands for an error of which only the name is known.
    """
    kind = error if isinstance(error, type) else type(error)
    later = issubclass(kind, TransportError) or (
        issubclass(kind, NsqError) and getattr(error, "retryable", False)
    )
    return RETRY_LATER if later and not getattr(error, "permanent", False) else FAILED


@contextmanager
def signals_to(
    tell: Callable[[], object], signals: Sequence[signal.Signals] = ENDING
) -> Iterator[None]:
    """Within it *signals* call *tell*, in the main thread; in another thread it does nothing.

    *tell* interrupts any line of the program: it must not wait for a lock. What it raises is raised
    there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(_number: int, _frame: FrameType | None) -> None:
        tell()

    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, signal.SIG_DFL if previous is None else previous)


def open_missing() -> None:
    """Open the standard streams that the process was started without, as after ``<&-``: null."""
    # In this order each becomes the descriptor it should be, which no connection may get.
    for name, flags, mode in (
        ("stdin", os.O_RDONLY, "r"),
        ("stdout", os.O_WRONLY, "w"),
        ("stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, closefd=False))


def drop(stream: TextIO) -> None:
    """Send the rest of *stream* nowhere: its reader has gone, and the exit must not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def is_watched(stream: TextIO) -> bool:
    """Whether *stream* is a terminal on which text may move and have colours (``NO_COLOR``)."""
    return stream.isatty() and "NO_COLOR" not in os.environ


class MovingLine:
    """A line that is drawn over itself; nothing where *stream* is not watched, or with *off*."""

    def __init__(self, stream: TextIO, *, off: bool = False) -> None:
        self._stream = stream
        self.live = not off and is_watched(stream)
        self._drawn = False

    def draw(self, text: str) -> None:
        """Put *text* in the place of what was drawn before."""
        if self.live:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()
            self._drawn = True

    def clear(self) -> None:
        """Take it away, before an ordinary line."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = False


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """The lines of a table; None is shown as ``-``."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    right = [
        any(isinstance(cell, int | float) for cell in column) for column in zip(*rows, strict=True)
    ] or [False] * len(head)
    lines = []
    for cells in [list(head), *texts]:
        padded = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(cells, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def plural(count: int, noun: str) -> str:
    """``1 file``, ``2,000 files``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:,.0f}" if isinstance(cell, int | float) else cell
