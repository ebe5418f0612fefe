"""SIGINT and SIGTERM while run() blocks."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def signals_to(tell: Callable[[], None]) -> Iterator[None]:
    """Have *tell* called instead, in the main thread only; what was installed comes back.

    *tell* runs in a signal handler: it may do no more than put a token on a SimpleQueue.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(_number: int, _frame: FrameType | None) -> None:
        tell()

    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous if previous is not None else signal.SIG_DFL)
