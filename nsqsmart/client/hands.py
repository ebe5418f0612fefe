"""Threads for work that may block, made when it comes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from nsqsmart.net.threads import Thread, spawn

log = logging.getLogger("nsqsmart")

Task = Callable[[], object]


class Hands:
    """At most *limit* threads named ``nsqsmart-<name>``; those that are there stay."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._lock = threading.Lock()  # guards the three below
        self._idle = 0
        self._threads: list[Thread] = []
        self._closed = False

    def do(self, task: Task) -> None:
        """Have *task* done soon; by the caller himself where no thread is left to do it."""
        with self._lock:
            needed = self._idle == 0 and len(self._threads) < self._limit and not self._closed
            if needed:
                try:
                    self._threads.append(spawn(f"{self._name}-{len(self._threads)}", self._run))
                except RuntimeError:
                    # Threads cannot start any more, as in atexit.
                    needed = False
            else:
                self._idle -= self._idle > 0
            alone = self._closed or not self._threads
            if not alone:
                # Under the lock: nothing gets behind the end.
                self._tasks.put(task)
        if alone:
            task()

    def close(self) -> None:
        """Let the threads end when they have done what there is."""
        with self._lock:
            self._closed = True
            threads = self._threads[:]
            self._tasks.put(None)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except Exception:
                log.exception("publish_async: a task failed")
            with self._lock:
                self._idle += 1
        self._tasks.put(None)  # for the next one
