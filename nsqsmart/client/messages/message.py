"""A message as the handler gets it, and what it knows of where it came from."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from nsqsmart.client.messages.results import Requeue, check_delay, requeue_for
from nsqsmart.client.shared.process import check_process
from nsqsmart.client.shared.trace_log import Life
from nsqsmart.errors import AlreadyResponded
from nsqsmart.names import printable
from nsqsmart.policy.topology import Target
from nsqsmart.wire import messages as layout
from nsqsmart.wire.ext import TAG

T = TypeVar("T")
M_contra = TypeVar("M_contra", contravariant=True)  # the message

_making = threading.Lock()


class Queue(Protocol[M_contra]):
    """Where an ordered partition's messages wait for the one before them."""

    def done(self, message: M_contra, *, finished: bool) -> None:
        """The handler of *message* has ended."""


class Holder(Protocol[M_contra]):
    """The interface of CheckedOut: messages that an application holds without a running handler."""

    def begin(self, message: M_contra) -> None:
        """A ``with`` block of *message* begins, in the calling thread."""

    def let_go(self, message: M_contra) -> bool:
        """*message* is about to be answered; False if it was given back meanwhile."""

    def done(self, message: M_contra) -> None:
        """The answer of *message* was queued."""

    def leave(self, message: M_contra) -> None:
        """A ``with`` block of *message* is over."""


class Source(Protocol[M_contra]):
    """The subscription a message came from, as far as the message needs it."""

    topic: str
    channel: str
    target: Target
    heard_at: float
    msg_timeout: float
    max_msg_timeout: float
    process: int
    """The one that may answer."""

    @property
    def ordering(self) -> Queue[M_contra] | None:
        """None unless the subscription is ordered."""

    @property
    def live(self) -> bool:
        """Whether it can be answered on."""

    def finish(self, message: M_contra) -> bool:
        """FIN, unless it is too late."""

    def requeue(self, message: M_contra, delay: float | None, *, backoff: bool) -> bool:
        """REQ, unless it is too late; *backoff* is told in any case."""

    def touch(self, message: M_contra) -> bool:
        """TOUCH, unless it is too late."""

    def send_requeue(self, message: M_contra, delay: float) -> None:
        """REQ, now."""

    def hold(self, message: M_contra) -> Holder[M_contra]:
        """Detach *message* from its handler, which no longer answers it."""

    def forget(self, message: M_contra) -> None:
        """*message* has expired, or its connection is gone: nothing is sent."""

    def stray(self, message: M_contra) -> None:
        """Drop a message from before the start position: unanswered, it stays in flight."""

    def give_up(self, message: M_contra) -> bool:
        """Pass *message* on to the dead letters, then FIN."""


class ReadBatch(Generic[T]):
    """One read of a subscription: its messages came together, and expire together.

    Attributes:
        source: what was read from.
        at: when, in monotonic seconds.
        deadline: when the server gives the messages to another consumer, unless touched.
        holder: the CheckedOut of its pulled messages.
        ack: says FIN of an id, soon, and whether it can; None where more than that is to be done.
    """

    __slots__ = ("ack", "at", "deadline", "holder", "source")

    def __init__(self, source: Source[T], ack: Callable[[bytes], bool] | None = None) -> None:
        self.source = source
        self.ack = ack
        self.holder: Holder[T] | None = None
        self.at = source.heard_at
        self.deadline = source.heard_at + source.msg_timeout


class MessageExtras(Generic[T]):
    """Attributes that few messages need.

    Attributes:
        holder: the CheckedOut that holds it, where no handler runs.
        life: where its events are logged.
        slows: requeued, and whether to slow down for it.
        taken: requeued without the application's doing.
        timed_out: told that its time was up.
        until: the deadline, once touched.
    """

    __slots__ = ("holder", "life", "slows", "taken", "timed_out", "until")

    def __init__(self) -> None:
        self.holder: Holder[T] | None = None
        self.life: Life | None = None
        self.slows: bool | None = None
        self.taken = self.timed_out = False
        self.until: float | None = None


class Message:
    """One delivery; it belongs to the thread that handles it, until :meth:`detach`.

    As a context manager it is finished at the end of the block, and requeued if that raises; a
    :class:`Requeue` raised there says how, and goes no further.

    Attributes:
        body: bytes.
        id: 16 raw bytes; text on an original nsqd, two numbers on a redesigned one.
        timestamp: nanoseconds since the epoch, when the server took it.
        attempts: deliveries so far, this one included (a redesigned leader counts afresh).
        offset, size: where its record lies in the partition's log; None unless ordered or
            ``positions=True``.
    """

    # A consumer makes a million a second of them: what few messages need is in ``_extras``, what a
    # whole read has in common in ``_read_batch``.
    __slots__ = ("_answer", "_extras", "_read_batch", "attempts", "body", "id", "timestamp")

    offset: int | None = None
    size: int | None = None
    _ext: bytes | None = None

    def __init__(
        self, read_batch: ReadBatch[Message], timestamp: int, attempts: int, id_: bytes, body: bytes
    ) -> None:
        self._read_batch = read_batch
        self.timestamp = timestamp
        self.attempts = attempts
        self.id = id_
        self.body = body
        self._answer: bool | None = None  # True: finished; False: answered, and not that way
        self._extras: MessageExtras[Message] | None = None

    @property
    def _subscription(self) -> Source[Message]:
        """The subscription that it came from."""
        return self._read_batch.source

    @property
    def received_at(self) -> float:
        """When it came (monotonic seconds)."""
        return self._read_batch.at

    @property
    def answered(self) -> bool:
        """Whether it was finished or requeued, or can no longer be."""
        return self._answer is not None

    @property
    def finished(self) -> bool:
        """Whether FIN was sent, or is about to be."""
        return self._answer is True

    @property
    def _life(self) -> Life | None:
        """Where its events are logged; None unless it is traced."""
        return self._extras.life if self._extras is not None else None

    @_life.setter
    def _life(self, life: Life | None) -> None:
        self._need_extras.life = life

    @property
    def _holder(self) -> Holder[Message] | None:
        """The CheckedOut that holds it; None while its handler runs."""
        return (self._extras and self._extras.holder) or self._read_batch.holder

    @property
    def _taken(self) -> bool:
        """Whether it was requeued without the application's doing."""
        return self._extras is not None and self._extras.taken

    @property
    def _slows(self) -> bool | None:
        """Requeued, and whether to slow down for it."""
        return self._extras.slows if self._extras is not None else None

    @property
    def _need_extras(self) -> MessageExtras[Message]:
        """The attributes that few messages need, made on first use."""
        return self._extras if self._extras is not None else _make_extras(self)

    @property
    def deadline(self) -> float:
        """When the server gives it to another consumer (monotonic seconds), unless touched."""
        return (self._extras and self._extras.until) or self._read_batch.deadline

    @property
    def topic(self) -> str:
        """The topic it was published to."""
        return self._subscription.topic

    @property
    def channel(self) -> str:
        """The channel it was delivered on."""
        return self._subscription.channel

    @property
    def partition(self) -> int | None:
        """Its partition; None on an original server."""
        return self._subscription.target.partition

    @property
    def nsqd(self) -> str:
        """The nsqd it came from, "host:port"."""
        return str(self._subscription.target.address)

    @property
    def internal_id(self) -> int | None:
        """The server's number of it, growing within a partition; None on an original server."""
        return None if self.partition is None else layout.internal_id(self.id)

    @property
    def trace_id(self) -> int | None:
        """What the publisher gave for tracing, or 0; None on an original server."""
        return None if self.partition is None else layout.trace_id(self.id)

    @property
    def headers(self) -> dict[str, Any]:
        """The JSON extension header; {} without one."""
        return _read_headers(self._ext) if self._ext else {}

    @property
    def tag(self) -> str | None:
        """The tag it was published with, if any."""
        found = self.headers.get(TAG)
        return found if isinstance(found, str) else None

    @property
    def _latest(self) -> float:
        """The time beyond which no touch puts its deadline (monotonic seconds)."""
        return self._read_batch.at + self._read_batch.source.max_msg_timeout

    @property
    def expired(self) -> bool:
        """Whether an answer would come too late."""
        return monotonic() >= self.deadline

    def finish(self) -> bool:
        """Done: the server forgets it. False if it was too late; nothing is sent then.

        Raises AlreadyResponded the second time, UsedAfterFork in a forked child.
        """
        check_process(self._read_batch.source.process)
        plain = self._answer is None and self._extras is None and self._read_batch.holder is None
        if not plain and not self._claim():
            return False
        self._answer = True
        if not self._subscription.finish(self):
            self._answer = False
        if self._holder is not None:
            self._holder.done(self)
        return self._answer

    def requeue(self, delay: float | None = None, *, backoff: bool = True) -> bool:
        """Deliver it again after *delay* seconds (default: see :class:`Requeue`).

        On an ordered topic it is held here under TOUCH and its partition waits. False if it was
        too late; raises as :meth:`finish`.
        """
        check_process(self._read_batch.source.process)
        check_delay(delay)
        if not self._claim():
            return False
        self._need_extras.slows = backoff
        sent = self._subscription.requeue(self, delay, backoff=backoff)
        if self._holder is not None:
            self._holder.done(self)
        return sent

    def touch(self) -> bool:
        """Ask for a fresh ``msg_timeout``; False if it is too late.

        The server extends it to at most 15 minutes after the delivery, by default.
        Raises as :meth:`finish`.
        """
        check_process(self._read_batch.source.process)
        if self.answered:
            raise AlreadyResponded("the message was answered before")
        if self._taken or not self._subscription.touch(self):
            return False
        self._extend()
        return True

    def _extend(self) -> None:
        """It was touched."""
        self._need_extras.until = min(monotonic() + self._subscription.msg_timeout, self._latest)

    def _renew(self, copy: Message) -> None:
        """It came again, as *copy*: its time begins anew."""
        self._read_batch = copy._read_batch
        if self._extras is not None:
            self._extras.until = None

    def detach(self) -> None:
        """Take it from its handler: the application answers it later, from any thread.

        The handler's return means nothing for it then; raising still requeues it. It counts as in
        flight, holds its partition on an ordered topic, expires like any other (:meth:`touch` it),
        and is given back when the consumer closes: answers after that return False.
        Raises as :meth:`finish`.
        """
        check_process(self._read_batch.source.process)
        if self.answered:
            raise AlreadyResponded("the message was answered before")
        if self._holder is None:
            self._need_extras.holder = self._subscription.hold(self)

    def skip(self) -> bool:
        """Finish it without having handled it: a failing head lets its ordered partition go on.

        ``on_giving_up`` or ``dead_letter_topic`` gets it first; if that fails it is requeued, and
        the answer is False, as it is when it is too late. Raises as :meth:`finish`.
        """
        check_process(self._read_batch.source.process)
        if self.answered:
            raise AlreadyResponded("the message was answered before")
        return self._subscription.give_up(self)

    def __enter__(self) -> Self:
        check_process(self._read_batch.source.process)
        if self._holder is not None:
            self._holder.begin(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is None:
            check_process(self._read_batch.source.process)
        elif os.getpid() != self._read_batch.source.process:
            return False  # what ends the child is not hidden
        try:
            return _conclude(self, error)
        finally:
            # Also where an interrupt has cut an answer short: close() would wait for the block.
            if self._holder is not None:
                self._holder.leave(self)

    @property
    def _ordering(self) -> Queue[Message] | None:
        """Where an ordered partition's messages queue."""
        return self._subscription.ordering

    def _give_back(self) -> None:
        """REQ 0 without a failure, unless it was answered; later answers are too late."""
        if self.answered or self._taken:
            return
        self._need_extras.taken = True
        if self._subscription.live:
            self._subscription.send_requeue(self, 0.0)
        elif self._life is not None:
            self._life.note("lost")

    def _claim(self) -> bool:
        """Whether it is still the caller's to answer."""
        if self.answered:
            raise AlreadyResponded("the message was finished or requeued before")
        if self._taken or (self._holder is not None and not self._holder.let_go(self)):
            return False
        self._answer = False
        return True

    def __repr__(self) -> str:
        where = f"{self.topic}/{self.channel}"
        return f"<Message {_name_of(self)} of {where} attempts={self.attempts} {len(self.body)} B>"


class Detailed(Message):
    """One of any layout but the plain one: it says where its record lies, or has a header."""

    __slots__ = ("_ext", "offset", "size")

    @classmethod
    def _from_raw(cls, read_batch: ReadBatch[Message], raw: layout.RawMessage) -> Message:
        """The message that was read."""
        message = cls(read_batch, raw.timestamp, raw.attempts, raw.id, raw.body)
        message.offset, message.size = raw.offset, raw.size
        message._ext = raw.ext if raw.ext_version == layout.EXT_JSON else None
        return message


def _name_of(message: Message) -> str:
    """The id as its server's logs have it: text on an original one."""
    if message.partition is not None:
        return message.id.hex()
    return printable(message.id.decode("ascii", "backslashreplace"))


def _make_extras(message: Message) -> MessageExtras[Message]:
    """The attributes, made on first use; two threads that ask at once get one object."""
    with _making:
        if message._extras is None:
            message._extras = MessageExtras()
        return message._extras


def _conclude(message: Message, error: BaseException | None) -> bool:
    """Answer as the end of a ``with`` block says; whether *error* ends there."""
    if message.answered:
        return isinstance(error, Requeue)
    if error is None:
        message.finish()
        return False
    how = requeue_for(error)
    message.requeue(how.delay, backoff=how.backoff)
    return how is error


def _read_headers(ext: bytes) -> dict[str, Any]:
    try:
        found = json.loads(ext)
    except (ValueError, RecursionError):  # it came from a peer
        return {}
    return found if isinstance(found, dict) else {}


Handler = Callable[[Message], object]
BatchHandler = Callable[[list[Message]], object]
