"""SIGINT and SIGTERM while run() blocks, and handlers that come in the middle of a call."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

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


def interrupts(
    client: object, calls: Collection[CodeType], others: Collection[CodeType] = ()
) -> bool:
    """Whether whoever calls our caller runs on top of one of the *calls* of *client*.

    Or of the *others*, of whatever object. A signal handler does, and so does a callback; the locks
    the call holds are held meanwhile. The stack knows, and no interrupt can make it forget, as it
    could a note that a call would keep.
    """
    above: FrameType | None = sys._getframe(2)  # noqa: SLF001 - there is no other way to it
    while above is not None:
        code = above.f_code
        if code in others or (code in calls and above.f_locals.get("self") is client):
            return True
        above = above.f_back
    return False
