"""Waiting in the main thread, in short turns.

A signal that comes between the interpreter's last look and the call that blocks does not end that
call: its handler runs when the call returns, which must not be much later.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from threading import Condition
from time import monotonic, sleep

from nsqsmart import Pending, Receipt

TURN = 0.25
"""Seconds."""


def pause(seconds: float) -> None:
    """Sleep."""
    until = monotonic() + seconds
    while (rest := until - monotonic()) > 0:
        sleep(min(rest, TURN))


def result_of(pending: Pending) -> Receipt:
    """The receipt; raises PublishError."""
    while not pending.done():
        try:
            return pending.result(TURN)
        except TimeoutError:
            # PublishTimeout is one too: then it is done.
            continue
    return pending.result()


def wait_for(condition: Condition, is_so: Callable[[], bool], seconds: float) -> None:
    """Until it is so, or *seconds* are over. *condition* is held."""
    until = monotonic() + seconds
    while (rest := until - monotonic()) > 0:
        if condition.wait_for(is_so, min(rest, TURN)):
            return


def is_readable(descriptor: int, until: float | None) -> bool:
    """Whether there is something to be read, or the end; False at *until* (monotonic seconds)."""
    while True:
        rest = TURN if until is None else max(0.0, until - monotonic())
        if select.select([descriptor], [], [], min(rest, TURN))[0]:
            return True
        if until is not None and monotonic() >= until:
            return False
