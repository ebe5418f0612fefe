"""The limit on what publish_async has in flight."""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic

from nsqsmart.errors import ClientClosed, PublishFailed, PublishTimeout
from nsqsmart.net.waiters import LOOK_AGAIN


class InFlightLimit:
    """Messages and bytes that are not settled. Callers blocked by the limit wait or are refused."""

    def __init__(self, max_messages: int, max_bytes: int, *, block: bool) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._block = block
        self._lock = threading.Lock()  # guards the figures
        self._changed = threading.Condition(self._lock)
        self._waiters = 0
        self._line: deque[object] = deque()
        self._messages = self._bytes = 0
        self._closed = False

    @property
    def messages(self) -> int:
        """Messages that are not settled."""
        return self._messages

    def enter(self, size: int, deadline: float) -> None:
        """Count a message of *size* bytes against the limit; waits while the limit is reached.

        Raises PublishTimeout at *deadline*, PublishFailed with ``on_full="raise"``, ClientClosed.
        One message that is larger than the whole limit is let in when nothing is in flight.
        """
        entered = False
        try:
            with self._lock:
                if self._line or self._is_full(size):
                    self._stand_in_line(size, deadline)
                self._check_open()
                self._messages += 1
                self._bytes += size
                entered = True
        except BaseException:
            if entered:  # an interrupt on the way out
                self.leave(1, size)
            raise

    def _is_full(self, size: int) -> bool:
        """Whether a message of *size* bytes would exceed the limit."""
        return self._messages >= self._max_messages or (
            self._messages > 0 and self._bytes + size > self._max_bytes
        )

    def _stand_in_line(self, size: int, deadline: float) -> None:
        """Wait for the limit; callers blocked by it are released first come, first served.

        Otherwise small messages would overtake a large one for ever.
        """
        me = object()
        try:
            self._line.append(me)
            while self._line[0] is not me or self._is_full(size):
                self._wait_for_room(deadline)
        finally:
            self._line.remove(me)
            self._changed.notify_all()

    def _wait_for_room(self, deadline: float) -> None:
        text = f"{self._messages} messages with {self._bytes} bytes are in flight already"
        if not self._block:
            raise PublishFailed(text, code="QueueFull", hint="wait, or raise async_max_messages")
        left = deadline - monotonic()
        if left <= 0:
            raise PublishTimeout(text, code="QueueFull", hint="the servers take less than you send")
        self._check_open()
        self._wait(left)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("the Producer was closed")

    def leave(self, messages: int, size: int) -> None:
        """*messages* with together *size* bytes are settled."""
        with self._lock:
            self._messages -= messages
            self._bytes -= size
            if self._waiters:
                self._changed.notify_all()

    def wait_empty(self, deadline: float) -> bool:
        """Whether everything is settled, at the latest at *deadline*."""
        with self._lock:
            while self._messages:
                left = deadline - monotonic()
                if left <= 0:
                    return False
                self._wait(left)
            return True

    def close(self) -> None:
        """Refuse every caller from now on."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()

    def _wait(self, left: float) -> None:
        """Under the lock, which is let go of meanwhile; *left* seconds or less.

        A signal that comes just before the thread sleeps does not wake it: its handler runs when
        the wait is over.
        """
        self._waiters += 1
        try:
            self._changed.wait(min(left, LOOK_AGAIN))
        finally:
            self._waiters -= 1
