"""Consuming without a handler: the application takes messages, and answers them itself."""

from __future__ import annotations

from queue import Empty
from time import monotonic

from nsqsmart.client.consuming.workers import Dispatcher, Runtime, ThreadCounts, turn_away
from nsqsmart.client.messages.message import Message


class PollQueue(Dispatcher):
    """Keeps what the readers bring until a caller takes it."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._error: BaseException | None = None

    def is_handling(self) -> bool:
        """Whether the calling thread is in a ``with`` block of a message."""
        return self._runtime.checked_out.is_busy_here()

    def start(self) -> None:
        """There are no threads."""

    def deliver(self, messages: list[Message]) -> None:
        """From a reader: messages came."""
        for message in messages:
            self.inbox.put(message)

    def take(self, most: int, timeout: float | None) -> list[Message]:
        """Wait for one message, *timeout* seconds or until the end; more if they are there.

        Empty after *timeout*, or when the consumer was closed. Raises what ended it from inside.
        """
        until = None if timeout is None else monotonic() + timeout
        counts = self._own_counts()
        found: list[Message] = []
        while len(found) < most:
            try:
                message = self._next(until, wait=not found)
            except Empty:
                break
            if message is None:
                break
            if self._is_for_handling(message, counts):
                found.append(message)
        if not found and self._error is not None:
            raise self._error
        return found

    def dismiss(self) -> None:
        """Requeue what no caller has taken, and wake the callers that wait."""
        counts = self._own_counts()
        try:
            while True:
                message = self.inbox.get_nowait()
                if message is not None:
                    turn_away(message, counts)
        except Empty:
            self._box.end(1)

    def join(self, deadline: float) -> list[Message]:
        """Wait for the ``with`` blocks; the messages of those that still run at *deadline*."""
        return self._runtime.checked_out.wait_idle(deadline)

    def end(self, error: BaseException | None) -> None:
        """Wake the callers that wait; they raise *error* if it is not None."""
        self._error = error
        self._box.end(1)

    def _next(self, until: float | None, *, wait: bool) -> Message | None:
        """The next message, None at the end; raises Empty when it is time."""
        try:
            message = self.inbox.get_nowait()
        except Empty:
            # A caller that is about to wait sends the waiting acknowledgements.
            self._flush()
            if not wait:
                raise
            left = None if until is None else max(0.0, until - monotonic())
            message = self.inbox.get(timeout=left)
        if message is None:
            self.inbox.put(None)  # for the next caller that waits
        return message

    def _is_for_handling(self, message: Message, counts: ThreadCounts) -> bool:
        if self._runtime.draining or message.expired:
            turn_away(message, counts)
            return False
        # What detach() does, without an object for each message.
        message._read_batch.holder = message._subscription.hold(message)
        if message._life is not None:
            message._life.note("started")
        if message.attempts > self._most_attempts:
            message.skip()
            return False
        return True
