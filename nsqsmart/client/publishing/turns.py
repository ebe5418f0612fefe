"""First come, first served: at most one unanswered keyed publish per partition."""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic
from weakref import ref

from nsqsmart.errors import ClientClosed, TurnTimeout
from nsqsmart.net.waiters import LOOK_AGAIN, Waiter

Key = tuple[str, int]


def _first(queue: deque[ref[Waiter]]) -> Waiter | None:
    """The first live waiter; the dead ones before it are taken out.

    In a function, for an interrupt at the end of a loop can skip a ``with`` (decisions#85).
    """
    while queue:
        waiter = queue[0]()
        if waiter is not None:
            return waiter
        queue.popleft()
    return None


class Turns:
    """A queue of waiters per (topic, partition), each with its own deadline.

    The caller that has the turn holds no lock, and the queue keeps only a weak reference to its
    waiter: an interrupt between any two lines, even while the turn is given up, blocks no other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all below
        self._queues: dict[Key, deque[ref[Waiter]]] = {}
        self._served: dict[Key, ref[Waiter]] = {}  # the waiter that has the turn
        self._closed = False

    def take(self, key: Key, waiter: Waiter, deadline: float) -> None:
        """Wait for the turn; raises TurnTimeout at *deadline*.

        The owner of *waiter* keeps it before the call, and gives it up however the call ends.
        """
        waiter.acquire(blocking=False)
        with self._lock:
            if self._closed:
                raise ClientClosed("the client was closed")
            self._queues.setdefault(key, deque()).append(ref(waiter))
        while True:
            self._serve(key)
            left = deadline - monotonic()
            if waiter.acquire(timeout=max(0.0, min(left, LOOK_AGAIN))):
                break
            if left <= LOOK_AGAIN:
                raise TurnTimeout(
                    f"partition {key[1]} of {key[0]} was busy with earlier keyed messages"
                )
        if self._closed:
            raise ClientClosed("the client was closed")

    def give_up(self, key: Key, waiter: Waiter) -> None:
        """End the turn, or leave the queue; wakes the next one."""
        with self._lock:
            queue = self._queues.get(key)
            mine = ref(waiter)
            if queue and mine in queue:
                queue.remove(mine)
        self._serve(key)

    def _serve(self, key: Key) -> None:
        """Give the turn to the first live waiter of the queue, unless it has the turn."""
        with self._lock:
            queue = self._queues.get(key)
            waiter = _first(queue) if queue else None
            if not queue or waiter is None:
                self._queues.pop(key, None)
                self._served.pop(key, None)
            elif self._served.get(key) != queue[0] and not self._closed:
                self._served[key] = queue[0]
                waiter.release()

    def waiting(self) -> int:
        """How many wait for their turn."""
        with self._lock:
            return sum(len(queue) - 1 for queue in self._queues.values() if queue)

    def close(self) -> None:
        """Wake every caller that waits; they raise ClientClosed."""
        with self._lock:
            self._closed = True
            for key, queue in self._queues.items():
                waiting = [each for each in queue if each != self._served.get(key)]
                for waiter in filter(None, (each() for each in waiting)):
                    waiter.release()
