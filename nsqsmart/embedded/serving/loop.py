"""The one thread that waits: for connections, for sockets that are full, and for the next due time.

Everything else happens in the thread of the connection it belongs to.
"""

from __future__ import annotations

import heapq
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count

Callback = Callable[[], None]

_JOIN_TIMEOUT = 2.0


class Loop:
    """A timer and a selector; callbacks must not block.

    Times are seconds of :func:`time.monotonic`. Every method may be called from any thread.
    """

    def __init__(self, name: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._waker, self._wakened = socket.socketpair()
        self._waker.setblocking(False)  # noqa: FBT003 - its only form
        self._wakened.setblocking(False)  # noqa: FBT003
        self._selector.register(self._wakened, selectors.EVENT_READ, self._drain)
        self._lock = threading.Lock()
        self._due: list[tuple[float, int, Callback]] = []
        self._serial = count()
        self._todo: deque[Callback] = deque()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"{name}-loop", daemon=True)
        self._thread.start()

    def call_at(self, due: float, callback: Callback) -> None:
        """Run *callback* at *due*, once."""
        with self._lock:
            first = not self._due or due < self._due[0][0]
            heapq.heappush(self._due, (due, next(self._serial), callback))
        if first:
            self._wake()

    def call_later(self, delay: float, callback: Callback) -> None:
        """Run *callback* in *delay* seconds, once."""
        self.call_at(time.monotonic() + delay, callback)

    def call_soon(self, callback: Callback) -> None:
        """Run *callback* on the loop's thread."""
        self._todo.append(callback)
        self._wake()

    def call_and_wait(self, callback: Callback) -> None:
        """Run *callback* on the loop's thread and wait until it has been run."""
        if threading.current_thread() is self._thread or self._closed:
            callback()
            return
        done = threading.Event()

        def run() -> None:
            callback()
            done.set()

        self.call_soon(run)
        done.wait(_JOIN_TIMEOUT)

    def on_readable(self, sock: socket.socket, callback: Callback) -> None:
        """Run *callback* whenever *sock* has something to read or to accept."""
        self.call_soon(lambda: self._watch(sock, selectors.EVENT_READ, callback))

    def on_writable(self, sock: socket.socket, callback: Callback) -> None:
        """Run *callback* whenever *sock* takes bytes, until it is forgotten."""
        self.call_soon(lambda: self._watch(sock, selectors.EVENT_WRITE, callback))

    def forget(self, sock: socket.socket) -> None:
        """Watch *sock* no longer; it may be closed when this returns."""
        self.call_and_wait(lambda: self._unwatch(sock))

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_TIMEOUT)

    # ----------------------------------------------------------------------- on the loop's thread

    def _watch(self, sock: socket.socket, event: int, callback: Callback) -> None:
        # A socket that was closed in the meantime, or is watched already.
        with suppress(KeyError, ValueError, OSError):
            self._selector.register(sock, event, callback)

    def _unwatch(self, sock: socket.socket) -> None:
        with suppress(KeyError, ValueError, OSError):
            self._selector.unregister(sock)

    def _wake(self) -> None:
        # A full pipe wakes as well as a byte more; a closed one wakes no thread.
        with suppress(OSError):
            self._waker.send(b"x")

    def _drain(self) -> None:
        with suppress(OSError):
            self._wakened.recv(4096)

    def _run(self) -> None:
        while not self._closed:
            for key, _ in self._selector.select(self._timeout()):
                callback: Callback = key.data
                callback()
            while self._todo:
                self._todo.popleft()()
            while (due := self._next_due()) is not None:
                due()
        self._selector.close()
        self._waker.close()
        self._wakened.close()

    def _timeout(self) -> float | None:
        with self._lock:
            if self._todo:
                return 0
            return max(0.0, self._due[0][0] - time.monotonic()) if self._due else None

    def _next_due(self) -> Callback | None:
        with self._lock:
            if self._due and self._due[0][0] <= time.monotonic():
                return heapq.heappop(self._due)[2]
        return None
