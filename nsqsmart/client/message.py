"""A message as the handler gets it."""

from __future__ import annotations

import json
from time import monotonic
from typing import Any, Protocol

from nsqsmart.client.trace_log import Life
from nsqsmart.errors import AlreadyResponded
from nsqsmart.policy.topology import Target
from nsqsmart.wire import messages as layout
from nsqsmart.wire.ext import TAG


class Queue(Protocol):
    """Where an ordered partition's messages wait for the one before them."""

    def done(self, message: Message, *, finished: bool) -> None:
        """The handler of *message* has ended."""


class Source(Protocol):
    """The subscription a message came from, as far as the message needs it."""

    topic: str
    channel: str
    target: Target
    heard_at: float
    msg_timeout: float

    @property
    def lane(self) -> Queue | None:
        """None unless the subscription is ordered."""

    @property
    def live(self) -> bool:
        """Whether it can be answered on."""

    def finish(self, message: Message) -> bool:
        """FIN, unless it is too late."""

    def requeue(self, message: Message, delay: float | None, *, backoff: bool) -> bool:
        """REQ, unless it is too late."""

    def touch(self, message: Message) -> bool:
        """TOUCH, unless it is too late."""

    def send_requeue(self, message: Message, delay: float) -> None:
        """REQ, now."""


def _check_delay(delay: float | None) -> float | None:
    """Seconds, or a mistake that must not wait until a worker sends it."""
    if isinstance(delay, bool) or not isinstance(delay, int | float | None):
        raise TypeError(f"delay must be seconds, not {type(delay).__name__}")
    return delay


class Requeue(Exception):
    """Raise or return it in a handler: deliver the message again.

    Args:
        delay: seconds; None is the consumer's ``default_requeue_delay`` times the attempts.
        backoff: whether the consumer shall slow down, as after an error.
    """

    def __init__(self, delay: float | None = None, *, backoff: bool = True) -> None:
        super().__init__(delay, backoff)
        self.delay = _check_delay(delay)
        self.backoff = backoff


class Message:
    """One delivery; it belongs to the thread that handles it.

    Attributes:
        body: bytes.
        id: 16 raw bytes; opaque on an original nsqd.
        timestamp: nanoseconds since the epoch, when the server took it.
        attempts: deliveries so far, this one included (a redesigned leader counts afresh).
        offset, size: where its record lies in the partition's log; None unless ordered or
            ``positions=True``.
        received_at: monotonic seconds.
        life: where its events are logged; None unless it is traced.
    """

    __slots__ = (
        "_ext",
        "answered",
        "attempts",
        "body",
        "finished",
        "id",
        "life",
        "offset",
        "received_at",
        "size",
        "subscription",
        "timestamp",
    )

    def __init__(
        self,
        subscription: Source,
        timestamp: int,
        attempts: int,
        message_id: bytes,
        body: bytes,
    ) -> None:
        self.subscription = subscription
        self.timestamp = timestamp
        self.attempts = attempts
        self.id = message_id
        self.body = body
        self.received_at = subscription.heard_at
        self.answered = False
        self.finished = False
        self.offset: int | None = None
        self.size: int | None = None
        self.life: Life | None = None
        self._ext: bytes | None = None

    @classmethod
    def from_raw(cls, subscription: Source, raw: layout.RawMessage) -> Message:
        """A message of any layout but the plain one."""
        message = cls(subscription, raw.timestamp, raw.attempts, raw.id, raw.body)
        message.offset, message.size = raw.offset, raw.size
        message._ext = raw.ext if raw.ext_version == layout.EXT_JSON else None
        return message

    @property
    def topic(self) -> str:
        """The topic it was published to."""
        return self.subscription.topic

    @property
    def channel(self) -> str:
        """The channel it was delivered on."""
        return self.subscription.channel

    @property
    def partition(self) -> int | None:
        """Its partition; None on an original server."""
        return self.subscription.target.partition

    @property
    def nsqd(self) -> str:
        """The nsqd it came from, "host:port"."""
        return str(self.subscription.target.address)

    @property
    def internal_id(self) -> int:
        """The server's number of it, growing within a partition (redesigned)."""
        return layout.internal_id(self.id)

    @property
    def trace_id(self) -> int:
        """What the publisher gave for tracing, or 0 (redesigned)."""
        return layout.trace_id(self.id)

    @property
    def headers(self) -> dict[str, Any]:
        """The JSON extension header; {} without one."""
        try:
            found = json.loads(self._ext) if self._ext else {}
        except (ValueError, RecursionError):  # it came from a peer
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def tag(self) -> str | None:
        """The tag it was published with, if any."""
        found = self.headers.get(TAG)
        return found if isinstance(found, str) else None

    @property
    def deadline(self) -> float:
        """When the server gives it to somebody else (monotonic seconds), unless touched."""
        return self.received_at + self.subscription.msg_timeout

    @property
    def expired(self) -> bool:
        """Whether an answer would come too late."""
        return monotonic() >= self.deadline

    def finish(self) -> bool:
        """Done: the server forgets it. False if it was too late; nothing is sent then.

        Raises AlreadyResponded the second time.
        """
        self._answer()
        self.finished = self.subscription.finish(self)
        return self.finished

    def requeue(self, delay: float | None = None, *, backoff: bool = True) -> bool:
        """Deliver it again after *delay* seconds (default: see :class:`Requeue`).

        On an ordered topic it is held here under TOUCH and its partition waits. False if it was
        too late; raises AlreadyResponded the second time.
        """
        _check_delay(delay)
        self._answer()
        return self.subscription.requeue(self, delay, backoff=backoff)

    def touch(self) -> bool:
        """Ask for a fresh ``msg_timeout``; False if it is too late."""
        if self.answered:
            raise AlreadyResponded("the message was answered before")
        if not self.subscription.touch(self):
            return False
        self.received_at = monotonic()
        return True

    @property
    def lane(self) -> Queue | None:
        """Where an ordered partition's messages queue."""
        return self.subscription.lane

    def give_back(self) -> None:
        """REQ 0 of a message that no handler saw: no failure, no delay."""
        self._answer()
        if self.subscription.live:
            self.subscription.send_requeue(self, 0.0)
        elif self.life is not None:
            self.life.note("lost")

    def _answer(self) -> None:
        if self.answered:
            raise AlreadyResponded("the message was finished or requeued before")
        self.answered = True

    def __repr__(self) -> str:
        where = f"{self.topic}/{self.channel}"
        return f"<Message {self.id.hex()} of {where} attempts={self.attempts} {len(self.body)} B>"
