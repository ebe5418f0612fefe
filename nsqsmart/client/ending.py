"""The end of a consumer: who brings it about, by what, and when it is over."""

from __future__ import annotations

import os
import threading
from time import monotonic

from nsqsmart.client.closing import CloseReport
from nsqsmart.errors import ClientClosed


class Ending:
    """Belongs to one start of a Consumer. ``over`` is set when it has ended, with its ``report``.

    None of its locks is taken by a signal handler: see :meth:`wish`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the three below
        self._closing = False
        self._started = False
        self._error: BaseException | None = None
        self._wished = False
        self._process = os.getpid()
        self.report: CloseReport | None = None
        self.over = threading.Event()

    @property
    def closing(self) -> bool:
        """Whether somebody ends it, or has ended it."""
        return self._closing

    def check(self) -> None:
        """Raise ClientClosed if so."""
        if self._closing:
            raise ClientClosed("the Consumer was closed")

    @property
    def error(self) -> BaseException | None:
        """What has ended it from inside."""
        return self._error

    def claim(self) -> bool:
        """Whether the caller is the first to end it, and therefore does."""
        with self._lock:
            first, self._closing = not self._closing, True
        return first

    def fail(self, error: BaseException) -> bool:
        """*error* ends it from inside; False: start() is under way, and looks for it at its end."""
        with self._lock:
            self._error = self._error or error
            return self._started

    def wish(self) -> bool:
        """The same from a signal handler, which may have interrupted any of this: no lock."""
        self._wished = True
        return self._started

    def is_wanted(self) -> bool:
        """start() has come to its end: whether it was to end the consumer meanwhile."""
        with self._lock:
            self._started = True
            return self._wished or self._error is not None

    def leave(self, deadline: float) -> None:
        """At the end of the process: wait for what ends it."""
        if os.getpid() == self._process:
            self.over.wait(max(0.0, deadline - monotonic()))
