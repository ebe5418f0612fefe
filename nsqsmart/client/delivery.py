"""What a message has besides its bytes: where it came from and when, and who has it in hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from nsqsmart.client.trace_log import Life
from nsqsmart.policy.topology import Target

T = TypeVar("T")
M_contra = TypeVar("M_contra", contravariant=True)  # the message


class Queue(Protocol[M_contra]):
    """Where an ordered partition's messages wait for the one before them."""

    def done(self, message: M_contra, *, finished: bool) -> None:
        """The handler of *message* has ended."""


class Holder(Protocol[M_contra]):
    """Who knows which messages are in an application's hands without a handler that runs."""

    def begin(self, message: M_contra) -> None:
        """A ``with`` block of *message* begins, in the calling thread."""

    def let_go(self, message: M_contra) -> bool:
        """*message* is about to be answered; False if it was given back meanwhile."""

    def done(self, message: M_contra) -> None:
        """Its answer is on the way."""

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
    def lane(self) -> Queue[M_contra] | None:
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
        """From now on no handler answers for *message*."""

    def forget(self, message: M_contra) -> None:
        """It has expired, or its connection is gone: nothing is sent."""

    def stray(self, message: M_contra) -> None:
        """It is from before where the channel was set: nothing is sent, and it fills a place."""

    def give_up(self, message: M_contra) -> bool:
        """Pass *message* on to who takes what cannot be handled, then FIN."""


class Arrival(Generic[T]):
    """One read of a subscription: its messages came together, and expire together.

    Attributes:
        source: what was read from.
        at: when, in monotonic seconds.
        deadline: when the server gives the messages to somebody else, unless touched.
        holder: who has what was pulled of it in hand.
        ack: says FIN of an id, soon, and whether it can; None where more than that is to be done.
    """

    __slots__ = ("ack", "at", "deadline", "holder", "source")

    def __init__(self, source: Source[T], ack: Callable[[bytes], bool] | None = None) -> None:
        self.source = source
        self.ack = ack
        self.holder: Holder[T] | None = None
        self.at = source.heard_at
        self.deadline = source.heard_at + source.msg_timeout


class Rarities(Generic[T]):
    """What few messages need.

    Attributes:
        holder: who has it in hand without a handler that runs.
        life: where its events are logged.
        slows: requeued, and whether to slow down for it.
        taken: given back behind the application's back.
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
