"""Messages that were not answered in time: counted, logged, and a reason not to be well."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from time import monotonic

from nsqsmart.client.facts import facts_of
from nsqsmart.client.message import Message
from nsqsmart.client.seldom import Seldom

log = logging.getLogger("nsqsmart")

# So long a timeout counts against a consumer: where each message times out, the next one follows.
_LINGERS = 60.0


class Timeouts:
    """Of one consumer. ``count`` is how many messages the server took back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._until = 0.0
        self.count = 0
        self._seldom = Seldom()

    def look(self, messages: Iterable[Message]) -> None:
        """Note those of *messages*, which are in hand, whose time is up."""
        for message in messages:
            if message.expired and not message.answered and message._subscription.live:
                self.note(message)

    def note(self, message: Message) -> None:
        """The time of *message* is up. Noted once, however often it is found out."""
        patience, note = message._subscription.msg_timeout, message._rarities
        with self._lock:
            if note.timed_out:
                return
            note.timed_out = True
            self.count += 1
            self._until = max(self._until, monotonic() + max(_LINGERS, 2 * patience))
        if (times := self._seldom.tell()) is None:
            return
        log.warning(
            "%r was not answered in time, and the server delivers it again (%d such since the last "
            "line): it waits for %.3g s after a delivery, or a touch; touch_every= asks for more "
            "while the handler runs, a lower max_in_flight= has fewer wait for one",
            message,
            times,
            patience,
            extra=facts_of(message),
        )

    def reason(self, in_hand: Iterable[Message]) -> str | None:
        """Why the consumer is not well, if messages have timed out lately, or just now."""
        self.look(in_hand)
        with self._lock:
            lately = monotonic() < self._until
            return f"messages time out: {self.count} so far" if lately else None
