"""First come, first served: at most one unanswered keyed publish per partition."""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic

from nsqsmart.errors import ClientClosed, PoolTimeout

Key = tuple[str, int]


class Turns:
    """A queue of waiters per (topic, partition), each with its own deadline.

    Whoever has the turn holds no lock: an interrupt while it publishes cannot leave one held.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._queues: dict[Key, deque[threading.Lock]] = {}
        self._closed = False

    def take(self, key: Key, deadline: float) -> threading.Lock:
        """Wait for the turn and return its token; raises PoolTimeout at *deadline*."""
        token = threading.Lock()
        token.acquire()
        with self._lock:
            if self._closed:
                raise ClientClosed("the client was closed")
            queue = self._queues.setdefault(key, deque())
            queue.append(token)
            if queue[0] is token:
                return token
        try:
            self._wait(key, token, deadline)
        except BaseException:
            self.give_up(key, token)
            raise
        return token

    def _wait(self, key: Key, token: threading.Lock, deadline: float) -> None:
        if not token.acquire(timeout=max(0.0, deadline - monotonic())):
            raise PoolTimeout(
                f"partition {key[1]} of {key[0]} was busy with earlier keyed messages"
            )
        if self._closed:
            raise ClientClosed("the client was closed")

    def give_up(self, key: Key, token: threading.Lock) -> None:
        """End the turn, or leave the queue; wakes the next one."""
        with self._lock:
            queue = self._queues.get(key)
            if not queue or token not in queue:
                return
            had_turn = queue[0] is token
            queue.remove(token)
            if not queue:
                del self._queues[key]
            elif had_turn and queue[0].locked():
                queue[0].release()

    def close(self) -> None:
        """Wake everybody who waits; they raise ClientClosed."""
        with self._lock:
            self._closed = True
            waiting = [token for queue in self._queues.values() for token in list(queue)[1:]]
        for token in waiting:
            if token.locked():
                token.release()
