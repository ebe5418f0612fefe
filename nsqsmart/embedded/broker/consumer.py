"""What one subscribed connection asked for and has in hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from nsqsmart.embedded.broker.records import Record
from nsqsmart.wire.messages import PLAIN, MessageLayout

LIMITED_RDY = 50_000
"""What a redesigned nsqd allows each client unless an operator says otherwise (protocol#flow)."""
_SLOW_AFTER = 5
_ERRORS_OVER_RDY = 20


class FrameSink(Protocol):
    """Where frames for a consumer go."""

    def put(self, frames: Iterable[bytes]) -> None:
        """Queue *frames*; must not block and must not take a lock (the partition's is held)."""

    def deliver(self, frames: list[bytes], *, hold: bool) -> bool:
        """Queue messages, to be held back for a while where that may be; as :meth:`put`.

        Whether they are to be sent now.
        """

    def flush(self) -> None:
        """Send what is queued; called without the partition's lock."""

    def end(self) -> None:
        """End the connection; called without the partition's lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionTerms:
    """What SUB and the IDENTIFY before it settled; ``msg_timeout`` in seconds."""

    msg_timeout: float = 60.0
    layout: MessageLayout = PLAIN
    sample_rate: int = 0
    tag: str = ""
    address: str = ""
    wants: Callable[[Record], bool] | None = None
    """The server-side filter, None for everything (protocol#ext-filter)."""


class ChannelConsumer:
    """One subscribed connection, as its channel sees it.

    ``in_flight`` maps the key of a message to it and the time it was delivered, oldest first;
    ``touched`` holds those whose deadline a TOUCH changed, with that deadline. An operator may
    allow at most ``most`` in flight; a ``muted`` one gets nothing at all.
    """

    __slots__ = (
        "delivered",
        "errors",
        "finished",
        "id",
        "in_flight",
        "most",
        "muted",
        "rdy",
        "requeued",
        "sink",
        "subscription",
        "timed_out",
        "touched",
    )

    def __init__(self, number: int, sink: FrameSink, subscription: SubscriptionTerms) -> None:
        self.id = number
        self.sink = sink
        self.subscription = subscription
        self.rdy = 0
        self.muted = False
        self.most = LIMITED_RDY
        self.in_flight: dict[bytes, tuple[Record, float]] = {}
        self.touched: dict[bytes, tuple[Record, float, float]] = {}
        self.errors = 0
        self.delivered = self.finished = self.requeued = self.timed_out = 0

    @property
    def holding(self) -> int:
        """How many messages this connection has not answered."""
        return len(self.in_flight) + len(self.touched)

    def room(self) -> int:
        """How many messages it may be sent now (protocol#flow)."""
        limit = self.rdy
        if limit > self.most:
            limit = self.most
        if self.muted:
            return 0
        if self.errors >= _SLOW_AFTER and limit > 1:
            limit = max(1, limit - self.errors + _SLOW_AFTER)
        return limit - len(self.in_flight) - len(self.touched)

    def failed(self) -> None:
        """A timeout or a refused answer: a redesigned nsqd slows the connection down."""
        self.errors = min(self.errors + 1, self.rdy + _ERRORS_OVER_RDY)

    def succeeded(self, count: int) -> None:
        """*count* messages were finished."""
        self.finished += count
        if self.errors:
            self.errors = max(0, self.errors - 2 * count)

    def take(self, key: bytes) -> tuple[Record, float] | None:
        """Take a message out of hand: it, and when it was delivered."""
        entry = self.in_flight.pop(key, None)
        if entry is not None:
            return entry
        touched = self.touched.pop(key, None)
        return None if touched is None else touched[:2]

    def holds(self, key: bytes) -> bool:
        """Whether it was sent that message and has not answered."""
        return key in self.in_flight or key in self.touched

    def take_all(self) -> list[tuple[Record, float]]:
        """Everything in hand, oldest first, and nothing is left."""
        entries = list(self.in_flight.values())
        entries += [(record, delivered) for record, delivered, _ in self.touched.values()]
        self.in_flight.clear()
        self.touched.clear()
        return sorted(entries, key=lambda entry: entry[0].index)

    def take_expired(self, now: float) -> list[Record]:
        """What was not answered in time."""
        oldest = now - self.subscription.msg_timeout
        expired: list[Record] = []
        for record, delivered in self.in_flight.values():
            if delivered > oldest:
                break
            expired.append(record)
        for record in expired:
            del self.in_flight[record.key]
        late = [key for key, (_, _, deadline) in self.touched.items() if deadline <= now]
        expired += [self.touched.pop(key)[0] for key in late]
        self.timed_out += len(expired)
        return expired

    def deadlines(self) -> Iterable[float]:
        """When the next message times out: a bound for those in flight, all of the touched."""
        for _, delivered in self.in_flight.values():
            yield delivered + self.subscription.msg_timeout
            break
        for _, _, deadline in self.touched.values():
            yield deadline
