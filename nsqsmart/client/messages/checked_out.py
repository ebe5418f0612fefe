"""Messages that the application has without a handler that runs, and those that timed out."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from time import monotonic

from nsqsmart.client.messages.message import Message
from nsqsmart.client.shared.log_fields import LogThrottle, message_fields

log = logging.getLogger("nsqsmart")

# So long a timeout counts against a consumer: where each message times out, the next one follows.
_LINGERS = 60.0


class Timeouts:
    """The timeouts of one consumer. ``count`` is how many messages the server took back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._until = 0.0
        self.count = 0
        self._throttle = LogThrottle()

    def look(self, messages: Iterable[Message]) -> None:
        """Note the *messages* in handlers whose time is up."""
        for message in messages:
            if message.expired and not message.answered and message._subscription.live:
                self.note(message)

    def note(self, message: Message) -> None:
        """The time of *message* is up. Noted once, however often it is found out."""
        patience, note = message._subscription.msg_timeout, message._need_extras
        with self._lock:
            if note.timed_out:
                return
            note.timed_out = True
            self.count += 1
            self._until = max(self._until, monotonic() + max(_LINGERS, 2 * patience))
        if (times := self._throttle.tell()) is None:
            return
        log.warning(
            "%r was not answered in time, and the server delivers it again (%d such since the last "
            "line): it waits for %.3g s after a delivery, or a touch; touch_every= asks for more "
            "while the handler runs, a lower max_in_flight= has fewer wait for one",
            message,
            times,
            patience,
            extra=message_fields(message),
        )

    def reason(self, in_hand: Iterable[Message]) -> str | None:
        """Why the consumer is not well, if messages have timed out lately, or just now."""
        self.look(in_hand)
        with self._lock:
            lately = monotonic() < self._until
            return f"messages time out: {self.count} so far" if lately else None


class CheckedOut:
    """Checked-out messages: the first of answer, expiry and close takes the message.

    An ordered message is never dropped here, however late: its partition goes on when it is
    answered.
    """

    def __init__(self, on_success: Callable[[Message], object]) -> None:
        """*on_success* is told of every message that was finished, after its answer."""
        self._on_success = on_success
        self._changed = threading.Condition(threading.Lock())  # guards the six below
        self._held: set[Message] = set()
        self._counts: dict[object, int] = {}  # of them, by subscription
        self._busy: dict[Message, int] = {}  # those in a with block, and its thread
        self.finished = self.requeued = self.expired = 0

    def take(self, message: Message) -> None:
        """Check *message* out: the application answers it, not its handler."""
        with self._changed:
            self._held.add(message)
            source, counts = message._read_batch.source, self._counts
            counts[source] = counts.get(source, 0) + 1

    def begin(self, message: Message) -> None:
        """A ``with`` block of *message* begins, in the calling thread."""
        with self._changed:
            if message in self._held:
                self._busy[message] = threading.get_ident()

    def leave(self, message: Message) -> None:
        """The ``with`` block of *message* is over, whatever became of its answer."""
        with self._changed:
            self._end_block(message)

    def let_go(self, message: Message) -> bool:
        """*message* is about to be answered; False if it is not held any more."""
        with self._changed:
            if message not in self._held:
                return False
            # Its block still runs: close() would end the connection before the answer is on it.
            self._drop(message)
            return True

    def done(self, message: Message) -> None:
        """The answer of *message* was queued: the next one of its partition may come."""
        with self._changed:
            self.finished += message.finished
            self.requeued += message._slows is not None
            self.expired += not message.finished and message._slows is None
            self._end_block(message)
        if message._slows is None:
            self._on_success(message)
        if message._ordering is not None:
            message._ordering.done(message, finished=message.finished)

    def counts(self) -> Counter[object]:
        """How many are held just now, by subscription."""
        with self._changed:
            self._counts = {source: count for source, count in self._counts.items() if count}
            return Counter(self._counts)

    def held(self) -> list[Message]:
        """The messages that are checked out now."""
        with self._changed:
            return list(self._held)

    def is_busy_here(self) -> bool:
        """Whether the calling thread is in a ``with`` block of a message."""
        with self._changed:
            return threading.get_ident() in self._busy.values()

    def wait_idle(self, deadline: float) -> list[Message]:
        """Wait for the ``with`` blocks; the messages of those that still run at *deadline*."""
        with self._changed:
            while self._busy and (left := deadline - monotonic()) > 0:
                self._changed.wait(left)
            return list(self._busy)

    def drop_expired(self) -> None:
        """Forget expired messages: a later answer returns False.

        A ``with`` block on an ordered message is a handler that runs: its partition waits for it.
        """
        ended: list[Message] = []
        self.counts()  # which forgets the subscriptions that are gone
        over = [message for message in self.held() if self._is_over(message)]
        with self._changed:
            for message in over:
                # Answered since, or a block of an ordered one has begun.
                if message not in self._held or (message._ordering and message in self._busy):
                    continue
                self._forget(message)
                self.expired += 1
                ended.append(message)
        for message in ended:
            message._subscription.forget(message)
            if message._ordering is not None:
                message._ordering.done(message, finished=False)

    def give_back(self) -> None:
        """At close: requeue every checked-out message without a delay."""
        with self._changed:
            held = list(self._held)
            for message in held:
                self._forget(message)
            self.requeued += len(held)
        for message in held:
            message._give_back()

    def _is_over(self, message: Message) -> bool:
        if message._ordering is not None:
            return not message._subscription.live
        return message.expired or not message._subscription.live

    def _forget(self, message: Message) -> None:
        self._drop(message)
        self._end_block(message)

    def _drop(self, message: Message) -> None:
        self._held.remove(message)
        self._counts[message._read_batch.source] -= 1

    def _end_block(self, message: Message) -> None:
        if self._busy.pop(message, None) is not None:
            self._changed.notify_all()
