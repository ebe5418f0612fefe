"""Consuming without a handler: the application takes messages, and answers them itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from queue import Empty
from time import monotonic

from nsqsmart.client.consuming.workers import (
    ConsumerRuntime,
    Inbox,
    ThreadCounts,
    flush_all,
    own_counts,
    turn_away,
)
from nsqsmart.client.messages.message import Message
from nsqsmart.net.write_buffer import Outbox


class PollQueue:
    """Keeps what the readers bring until somebody takes it."""

    def __init__(self, runtime: ConsumerRuntime) -> None:
        self._runtime = runtime
        self._most_attempts = runtime.dead_letters.most_attempts
        self._box = Inbox()
        self._inbox = self._box.queue
        self.dirty: deque[Outbox] = deque()
        self.gathering: Sequence[Message] = ()
        self._thread_counts: dict[int, ThreadCounts] = {}
        self._error: BaseException | None = None

    @property
    def thread_counts(self) -> list[ThreadCounts]:
        """The counts of every thread that has taken messages."""
        return list(self._thread_counts.values())

    def is_handling(self) -> bool:
        """Whether the calling thread is in a ``with`` block of a message."""
        return self._runtime.checked_out.is_busy_here()

    def start(self) -> None:
        """There are no threads."""

    def deliver(self, messages: list[Message]) -> None:
        """From a reader: messages came."""
        for message in messages:
            self._inbox.put(message)

    def take(self, most: int, timeout: float | None) -> list[Message]:
        """Wait for one message, *timeout* seconds or until the end; more if they are there.

        Empty after *timeout*, or when the consumer was closed. Raises what ended it from inside.
        """
        until = None if timeout is None else monotonic() + timeout
        counts = own_counts(self._thread_counts)
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
        """Give back what nobody has taken, and wake those who wait."""
        counts = own_counts(self._thread_counts)
        try:
            while True:
                message = self._inbox.get_nowait()
                if message is not None:
                    turn_away(message, counts)
        except Empty:
            self._box.end(1)

    def drop(self, source: object) -> None:
        """From a reader that has ended: its messages are not handled."""
        self._box.drop(source, own_counts(self._thread_counts))

    def join(self, deadline: float) -> list[Message]:
        """Wait for the ``with`` blocks; the messages of those that still run at *deadline*."""
        return self._runtime.checked_out.wait_idle(deadline)

    def end(self, error: BaseException | None) -> None:
        """Wake those who wait; *error* is for them."""
        self._error = error
        self._box.end(1)

    def _next(self, until: float | None, *, wait: bool) -> Message | None:
        """The next message, None at the end; raises Empty when it is time."""
        try:
            message = self._inbox.get_nowait()
        except Empty:
            # Whoever is about to wait sends what waits.
            flush_all(self.dirty)
            if not wait:
                raise
            left = None if until is None else max(0.0, until - monotonic())
            message = self._inbox.get(timeout=left)
        if message is None:
            self._inbox.put(None)  # for the next one who waits
        return message

    def _is_for_handling(self, message: Message, counts: ThreadCounts) -> bool:
        if self._runtime.draining or message.expired:
            turn_away(message, counts)
            return False
        # As detach() does, without making anything for each message.
        message._read_batch.holder = message._subscription.hold(message)
        if message._life is not None:
            message._life.note("started")
        if message.attempts > self._most_attempts:
            message.skip()
            return False
        return True
