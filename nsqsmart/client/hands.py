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
        self._lock = threading.Lock()  # guards the two below
        self._idle = 0
        self._threads: list[Thread] = []

    def do(self, task: Task) -> None:
        """Have *task* done soon."""
        with self._lock:
            needed = self._idle == 0 and len(self._threads) < self._limit
            if needed:
                try:
                    self._threads.append(spawn(f"{self._name}-{len(self._threads)}", self._run))
                except RuntimeError:
                    # Threads cannot start any more, as in atexit.
                    needed = False
            else:
                self._idle -= self._idle > 0
            alone = not self._threads
        if alone:
            task()
        else:
            self._tasks.put(task)

    def close(self) -> None:
        """Let the threads end when they have done what there is."""
        with self._lock:
            threads = self._threads[:]
        for _ in threads:
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
