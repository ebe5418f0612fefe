"""One thread that knows when: what is due is called there, and it sleeps while nothing is."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from time import monotonic

from nsqsmart.net.threads import Thread, spawn

log = logging.getLogger("nsqsmart")

Call = Callable[[], None]


class Ticker:
    """Calls functions at monotonic times, and *sweep* every *period* seconds while it is asked to.

    Calls must be short and may not block. *sweep* looks after pending acknowledgements: it
    answers whether to be called again after another period; :meth:`nudge` starts it again.
    """

    def __init__(self, name: str, sweep: Callable[[], bool], period: float) -> None:
        self._name = name
        self._sweep = sweep
        self._period = period
        # An interrupt inside the entry of a Condition leaves it locked, and one inside its notify()
        # leaves the woken thread there: the next notify() wakes it again, not one that waits.
        self._lock = threading.Lock()  # guards the four below
        self._changed = threading.Condition(self._lock)
        self._due: list[tuple[float, int, Call]] = []
        self._sweep_at: float | None = None
        self._closed = False
        self._sweeping = False
        self._order = itertools.count()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = spawn(self._name, self._run)

    def at(self, when: float, call: Call) -> None:
        """Have *call* made at *when* (monotonic seconds)."""
        with self._lock:
            heapq.heappush(self._due, (when, next(self._order), call))
            if self._due[0][0] == when:
                self._changed.notify_all()

    def nudge(self) -> None:
        """Have the sweep made one period from now; costs nothing while it is under way."""
        if self._sweeping:
            return
        with self._lock:
            self._sweeping = True
            self._sweep_at = monotonic() + self._period
            self._changed.notify_all()

    def close(self, deadline: float | None = None) -> None:
        """Stop; what is not due yet is forgotten. The thread may be the caller.

        It is waited for until *deadline*: a call that is under way ends by itself.
        """
        with self._lock:
            self._closed = True
            self._changed.notify_all()
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(None if deadline is None else max(0.0, deadline - monotonic()))

    def _run(self) -> None:
        while (calls := self._wait()) is not None:
            for call in calls:
                try:
                    call()
                except Exception:
                    log.exception("%s: a timed call failed", self._name)

    def _wait(self) -> list[Call] | None:
        with self._lock:
            while not self._closed:
                now = monotonic()
                calls: list[Call] = []
                while self._due and self._due[0][0] <= now:
                    calls.append(heapq.heappop(self._due)[2])
                if self._sweep_at is not None and self._sweep_at <= now:
                    self._sweep_at = None
                    calls.append(self._run_sweep)
                if calls:
                    return calls
                self._changed.wait(self._left(now))
            return None

    def _left(self, now: float) -> float | None:
        times = [when for when in (self._sweep_at, self._due[0][0] if self._due else None) if when]
        return min(times) - now if times else None

    def _run_sweep(self) -> None:
        # Cleared before looking: a thread that gives work after this nudges again.
        self._sweeping = False
        if self._sweep():
            self.nudge()
