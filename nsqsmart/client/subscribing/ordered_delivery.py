"""Ordered delivery: one message of a partition at a time, and a failed head holds it.

The server keeps one message in flight per partition, but not always: it repeats the first message
after a SUB_ORDERED, and after a timeout it sends again what a slow handler still holds. Ordered
delivery keeps the promise there too.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from time import monotonic
from typing import Any, Protocol

from nsqsmart.client.messages.message import Message, Source
from nsqsmart.client.shared.log_fields import message_fields
from nsqsmart.client.subscribing.consumer_runtime import ConsumerRuntime
from nsqsmart.config import ConsumerConfig
from nsqsmart.policy.ordering import Order, OrderCheck

log = logging.getLogger("nsqsmart")

_LOUD_AT = (10, 20, 50)
_MAX_DOUBLINGS = 30
_MARGIN = 0.1


class OrderedSubscription(Source[Message], Protocol):
    """The subscription that an OrderedDelivery belongs to."""

    @property
    def config(self) -> ConsumerConfig:
        """The consumer's options."""

    def acknowledge(self, message: Message) -> None:
        """FIN, whether or not it is late."""

    def send_touch(self, message: Message) -> None:
        """TOUCH, now."""

    def hang_up(self) -> None:
        """End it."""


class OrderedDelivery:
    """The messages of one ordered subscription on their way to the workers, one by one."""

    def __init__(self, subscription: OrderedSubscription, runtime: ConsumerRuntime[Any]) -> None:
        self._subscription = subscription
        self._runtime = runtime
        self._lock = threading.Lock()  # guards the five below
        self._held: Message | None = None
        self._in_hand: Message | None = None
        self._waiting: deque[Message] = deque()
        self._follows = False  # an earlier one, whose message is still in a handler
        self._successor: OrderedDelivery | None = None
        self._order = OrderCheck()
        self._failing: int | None = -1
        self._failures = 0
        self._stopped = False
        self._told: tuple[int | None, int] = -1, 0

    def offer(self, message: Message) -> None:
        """From the reader: deliver now, or after the message in a handler."""
        if self._stopped:
            self._subscription.forget(message)
            return
        before = self._order.position
        order = self._order.judge(message.offset or 0, message.internal_id or 0, message.size or 0)
        if order is Order.REWIND:
            log.info(
                "partition %s goes back to offset %s",
                message.partition,
                message.offset,
                extra=message_fields(message),
            )
        elif order is Order.VIOLATION and not self._runtime.on_out_of_order(message, before):
            # It was told. What a new connection begins with is what the server insists on.
            self._stopped = True
            self._order.restart()
            self._subscription.hang_up()
            return
        with self._lock:
            head = self._in_hand
            waits = head is not None or self._follows
            if waits:
                self._waiting.append(message)
            else:
                self._in_hand = message
        if not waits:
            self._runtime.deliver([message])
        elif head is not None and head.internal_id == message.internal_id:
            # The handler of the first copy still runs, and the server waits for it no longer.
            self.tell(message)

    def follow(self, before: OrderedDelivery) -> None:
        """Begin only when the handler of *before* has ended, whose connection is gone.

        The new leader sends again what is still being handled. What has come is known to both.
        """
        self._order = before._order
        with self._lock:
            self._follows = True
        if not before.end_with(self):
            self.begin()

    def end_with(self, successor: OrderedDelivery) -> bool:
        """End it; returns whether *successor* has to wait for a message in a handler."""
        with self._lock:
            dropped = list(self._waiting)
            self._waiting.clear()
            busy = self._in_hand is not None or self._follows
            self._successor = successor if busy else None
        for message in dropped:
            message._answer = False
            message.body = b""  # its place may be remembered for long
            self._subscription.forget(message)
        return busy

    def begin(self) -> None:
        """The handler that this one waited for has ended."""
        following: Message | None = None
        with self._lock:
            self._follows = False
            successor = self._successor
            if successor is None and self._waiting:
                following = self._in_hand = self._waiting.popleft()
        if successor is not None:
            successor.begin()
        elif following is not None:
            self._runtime.deliver([following])

    def done(self, message: Message, *, finished: bool) -> None:
        """From the worker: its handler has ended; the next one may go."""
        if finished and message.internal_id == self._failing:
            self._failing, self._failures = -1, 0
        following: Message | None = None
        copies: list[Message] = []
        with self._lock:
            if self._in_hand is not message:
                return
            # A copy that came while the first was in its handler: one delivery, done already.
            while finished and self._waiting and self._is_copy(message):
                copies.append(self._waiting.popleft())
            if self._waiting:
                following = self._waiting.popleft()
            self._in_hand = following
            successor = self._successor if following is None else None
        self._finish_copies(copies)
        if following is not None:
            self._runtime.deliver([following])
        elif successor is not None:
            successor.begin()

    def _finish_copies(self, copies: list[Message]) -> None:
        for copy in copies:
            copy._answer = True
            self._subscription.acknowledge(copy)
            if copy._life is not None:
                copy._life.note("duplicate")

    def _is_copy(self, message: Message) -> bool:
        return self._waiting[0].internal_id == message.internal_id

    def hold(self, message: Message, delay: float | None, *, counts: bool) -> None:
        """Keep a failed head for a while under TOUCH, then give it back with REQ 0.

        The server ignores a delay on ordered channels (protocol#ordered-answers).
        """
        if message.internal_id != self._failing:
            self._failing, self._failures = message.internal_id, 0
        self._failures += counts
        self.tell(message)
        if delay is None:
            config = self._subscription.config
            doublings = min(max(0, self._failures - 1), _MAX_DOUBLINGS)
            delay = min(config.backoff_multiplier * 2.0**doublings, config.max_backoff_duration)
        if message._life is not None:
            message._life.note("blocked", delay)
        self._held = message
        # Beyond its latest time no TOUCH keeps it.
        until = min(monotonic() + max(0.0, delay), message._latest - _MARGIN)
        self._wait(message, until)

    def tell(self, message: Message) -> None:
        """Log of a head that has failed or timed out again and again, and holds its partition."""
        loud = message.attempts in _LOUD_AT or (message.attempts and message.attempts % 100 == 0)
        told, number = self._told
        if loud and (told != message.internal_id or message.attempts > number):
            # A copy that came while a handler runs is found to be late as well.
            self._told = message.internal_id, message.attempts
            log.warning(
                "message %s holds partition %s of %s: attempt %s",
                message.id.hex(),
                message.partition,
                message.topic,
                message.attempts,
                extra=message_fields(message),
            )

    def is_blocked(self) -> bool:
        """Whether a message that has come many times is held, or in its handler."""
        heads = (self._held, self._in_hand)
        return any(each is not None and each.attempts >= _LOUD_AT[0] for each in heads)

    def release_held(self) -> None:
        """At close: requeue the held message at once."""
        with self._lock:
            message, self._held = self._held, None
        if message is not None and self._subscription.live:
            self._subscription.send_requeue(message, 0.0)
        elif message is not None and message._life is not None:
            message._life.note("lost")

    def _wait(self, message: Message, until: float) -> None:
        now = monotonic()
        if self._held is not message:
            return
        if now >= until or not self._subscription.live:
            self.release_held()
            return
        half = self._subscription.msg_timeout / 2
        if now >= message.deadline - half and message.deadline < message._latest:
            self._subscription.send_touch(message)
            message._extend()
        touch_at = message.deadline - half if message.deadline < message._latest else until
        self._runtime.at(min(until, touch_at), lambda: self._wait(message, until))


def report_violation(message: Message, before: tuple[int, int], choice: object) -> bool:
    """Log that *message* came out of order; whether *choice*, the option, wants to go on."""
    log.error(
        "%r out of order: offset %s and internal id %s came after %s and %s",
        message,
        message.offset,
        message.internal_id,
        *before,
        extra=message_fields(message),
    )
    if callable(choice):
        return choice(message) is not False
    return choice == "warn"
