"""Waiting for another thread so that no interrupt breaks anything.

``threading.Condition`` and ``Event`` are Python code around a lock. KeyboardInterrupt, or what
another thread has this one raise, may strike between two of their lines, and leaves the lock taken
for ever or releases one that another thread holds. A waiter is a bare lock: there is nothing
between its lines. A thread that waits makes a waiter of its own; the one that wakes it releases it.
"""

from __future__ import annotations

import threading

Waiter = threading.Lock

LOOK_AGAIN = 1.0
"""Seconds between two looks of a waiting thread: a caller that dies wakes no other."""


def new_waiter() -> Waiter:
    """A waiter that was not released: to acquire it is to wait."""
    waiter = threading.Lock()
    waiter.acquire()
    return waiter


def wait_for(waiter: Waiter, seconds: float) -> None:
    """Return when *waiter* is woken, after *seconds*, or when it is time to look again."""
    waiter.acquire(timeout=max(0.0, min(seconds, LOOK_AGAIN)))


def wake(waiter: Waiter) -> None:
    """Wake the thread that waits for *waiter*; a second call before it looks changes nothing."""
    try:
        waiter.release()
    except RuntimeError:
        return


class Latch:
    """Closed until :meth:`open` lets every thread through, once and for all."""

    def __init__(self) -> None:
        self._lock = new_waiter()

    def open(self) -> None:
        """Let through waiting and later threads; a second call does nothing."""
        wake(self._lock)

    def passed(self, seconds: float) -> bool:
        """Wait for it at most so long; whether it is open."""
        if not self._lock.acquire(timeout=max(0.0, seconds)):
            return False
        # For the next one. An interrupt before this costs the others the rest of their wait.
        wake(self._lock)
        return True
