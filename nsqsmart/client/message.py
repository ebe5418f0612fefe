"""A message as the handler gets it."""

from __future__ import annotations

import json
from time import monotonic
from types import TracebackType
from typing import Any, Protocol, Self

from nsqsmart.client.trace_log import Life
from nsqsmart.errors import AlreadyResponded
from nsqsmart.policy.topology import Target
from nsqsmart.wire import messages as layout
from nsqsmart.wire.ext import TAG


class Queue(Protocol):
    """Where an ordered partition's messages wait for the one before them."""

    def done(self, message: Message, *, finished: bool) -> None:
        """The handler of *message* has ended."""


class Holder(Protocol):
    """Who knows which messages are in an application's hands without a handler that runs."""

    def begin(self, message: Message) -> None:
        """A ``with`` block of *message* begins, in the calling thread."""

    def let_go(self, message: Message) -> bool:
        """*message* is about to be answered; False if it was given back meanwhile."""

    def done(self, message: Message) -> None:
        """Its answer is on the way."""


class Source(Protocol):
    """The subscription a message came from, as far as the message needs it."""

    topic: str
    channel: str
    target: Target
    heard_at: float
    msg_timeout: float
    max_msg_timeout: float

    @property
    def lane(self) -> Queue | None:
        """None unless the subscription is ordered."""

    @property
    def live(self) -> bool:
        """Whether it can be answered on."""

    def finish(self, message: Message) -> bool:
        """FIN, unless it is too late."""

    def requeue(self, message: Message, delay: float | None, *, backoff: bool) -> bool:
        """REQ, unless it is too late; *backoff* is told in any case."""

    def touch(self, message: Message) -> bool:
        """TOUCH, unless it is too late."""

    def send_requeue(self, message: Message, delay: float) -> None:
        """REQ, now."""

    def hold(self, message: Message) -> Holder:
        """From now on no handler answers for *message*."""

    def forget(self, message: Message) -> None:
        """It has expired, or its connection is gone: nothing is sent."""

    def stray(self, message: Message) -> None:
        """It is from before where the channel was set: nothing is sent, and it fills a place."""

    def give_up(self, message: Message) -> bool:
        """Pass *message* on to who takes what cannot be handled, then FIN."""


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


def wish_of(error: BaseException) -> Requeue:
    """What a handler that raised *error* wants: what ends the process delays no message."""
    if isinstance(error, Requeue):
        return error
    return Requeue() if isinstance(error, Exception) else Requeue(0.0)


class Message:
    """One delivery; it belongs to the thread that handles it, until :meth:`detach`.

    As a context manager it is finished at the end of the block, and requeued if that raises; a
    :class:`Requeue` raised there says how, and goes no further.

    Attributes:
        body: bytes.
        id: 16 raw bytes; opaque on an original nsqd.
        timestamp: nanoseconds since the epoch, when the server took it.
        attempts: deliveries so far, this one included (a redesigned leader counts afresh).
        offset, size: where its record lies in the partition's log; None unless ordered or
            ``positions=True``.
        received_at: monotonic seconds.
        deadline: when the server gives it to somebody else (monotonic seconds), unless touched.
        life: where its events are logged; None unless it is traced.
    """

    __slots__ = (
        "_ext",
        "answered",
        "attempts",
        "body",
        "deadline",
        "finished",
        "holder",
        "id",
        "life",
        "offset",
        "received_at",
        "size",
        "slows",
        "subscription",
        "taken",
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
        self.received_at = heard_at = subscription.heard_at
        self.deadline: float = heard_at + subscription.msg_timeout
        self.answered = False
        self.finished = False
        self.slows: bool | None = None  # requeued, and whether to slow down for it
        self.taken = False  # given back behind the application's back
        self.holder: Holder | None = None
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
    def latest(self) -> float:
        """The time beyond which no touch puts its deadline (monotonic seconds)."""
        return self.received_at + self.subscription.max_msg_timeout

    @property
    def expired(self) -> bool:
        """Whether an answer would come too late."""
        return monotonic() >= self.deadline

    def finish(self) -> bool:
        """Done: the server forgets it. False if it was too late; nothing is sent then.

        Raises AlreadyResponded the second time.
        """
        holder = self.holder
        if (self.answered or self.taken or holder is not None) and not self._answer():
            return False
        self.answered = True
        self.finished = finished = self.subscription.finish(self)
        if holder is not None:
            holder.done(self)
        return finished

    def requeue(self, delay: float | None = None, *, backoff: bool = True) -> bool:
        """Deliver it again after *delay* seconds (default: see :class:`Requeue`).

        On an ordered topic it is held here under TOUCH and its partition waits. False if it was
        too late; raises AlreadyResponded the second time.
        """
        _check_delay(delay)
        if not self._answer():
            return False
        self.slows = backoff
        sent = self.subscription.requeue(self, delay, backoff=backoff)
        if self.holder is not None:
            self.holder.done(self)
        return sent

    def touch(self) -> bool:
        """Ask for a fresh ``msg_timeout``; False if it is too late.

        The server goes no further than its maximum behind the delivery, 15 minutes by default.
        """
        if self.answered:
            raise AlreadyResponded("the message was answered before")
        if self.taken or not self.subscription.touch(self):
            return False
        self.extend()
        return True

    def extend(self) -> None:
        """It was touched."""
        self.deadline = min(monotonic() + self.subscription.msg_timeout, self.latest)

    def detach(self) -> None:
        """Take it out of its handler's hands: somebody answers it later, from any thread.

        The handler's return means nothing for it then; raising still requeues it. It counts as in
        flight, holds its partition on an ordered topic, expires like any other (:meth:`touch` it),
        and is given back when the consumer closes: answers after that return False.
        Raises AlreadyResponded if it was answered.
        """
        if self.answered:
            raise AlreadyResponded("the message was answered before")
        if self.holder is None:
            self.holder = self.subscription.hold(self)

    def skip(self) -> bool:
        """Finish it without having handled it: a failing head lets its ordered partition go on.

        ``on_giving_up`` or ``dead_letter_topic`` gets it first; if that fails it is requeued, and
        the answer is False, as it is when it is too late. Raises AlreadyResponded if it was
        answered.
        """
        if self.answered:
            raise AlreadyResponded("the message was answered before")
        return self.subscription.give_up(self)

    def __enter__(self) -> Self:
        if self.holder is not None:
            self.holder.begin(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self.answered:
            return isinstance(error, Requeue)
        if error is None:
            self.finish()
            return False
        wish = wish_of(error)
        self.requeue(wish.delay, backoff=wish.backoff)
        return wish is error

    @property
    def lane(self) -> Queue | None:
        """Where an ordered partition's messages queue."""
        return self.subscription.lane

    def give_back(self) -> None:
        """REQ 0 of what nobody has answered: no failure, no delay; later answers are too late."""
        if self.answered or self.taken:
            return
        self.taken = True
        if self.subscription.live:
            self.subscription.send_requeue(self, 0.0)
        elif self.life is not None:
            self.life.note("lost")

    def _answer(self) -> bool:
        """Whether it is still the caller's to answer."""
        if self.answered:
            raise AlreadyResponded("the message was finished or requeued before")
        if self.taken or (self.holder is not None and not self.holder.let_go(self)):
            return False
        self.answered = True
        return True

    def __repr__(self) -> str:
        where = f"{self.topic}/{self.channel}"
        return f"<Message {self.id.hex()} of {where} attempts={self.attempts} {len(self.body)} B>"
