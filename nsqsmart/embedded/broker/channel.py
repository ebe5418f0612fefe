"""A channel: its place in the log, its consumers, and what they have not answered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from nsqsmart.embedded.broker.backlog import ChannelBacklog
from nsqsmart.embedded.broker.confirming import Confirmed
from nsqsmart.embedded.broker.consumer import ChannelConsumer, FrameSink
from nsqsmart.embedded.broker.deferring import Alarm, Deferrals
from nsqsmart.embedded.broker.log import PartitionLog
from nsqsmart.embedded.broker.records import Record, encode
from nsqsmart.wire.messages import PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimits:
    """What the server grants at most; times in seconds, sizes in bytes."""

    max_msg_timeout: float = 900.0
    max_requeue_delay: float = 3600.0
    max_confirm_window: int = 500
    max_attempts: int = 65535
    max_msg_size: int = 1024 * 1024
    memory_queue: int = 10_000


class Surroundings(NamedTuple):
    """What every channel of a partition shares."""

    log: PartitionLog
    alarm: Alarm
    limits: BrokerLimits
    random: Random


class BrokerChannel(ABC):
    """What both dialects have in common.

    A message that was delivered once and not answered has no entry in ``attempts``: the common
    case costs nothing.
    """

    def __init__(self, name: str, surroundings: Surroundings, start: int) -> None:
        self.name = name
        self.log, self._alarm, self.limits, self._random = surroundings
        self.consumers: list[ChannelConsumer] = []
        self.paused = False
        self.confirmed = Confirmed(start)
        self.backlog = ChannelBacklog(self.log, start)
        self.deferred = Deferrals(self._alarm)
        self.attempts: dict[int, int] = {}
        self.began_at = start
        self.requeue_count = self.timeout_count = 0
        self._turn = 0

    @property
    def ephemeral(self) -> bool:
        """Whether the channel goes with its last consumer."""
        return self.name.endswith("#ephemeral")

    @property
    def in_flight_count(self) -> int:
        """Messages sent and not answered."""
        return sum(consumer.holding for consumer in self.consumers)

    @abstractmethod
    def depth(self) -> int:
        """Messages that wait, as this dialect counts them."""

    # ------------------------------------------------------------------------------- delivery

    def pump(self, now: float) -> list[FrameSink]:
        """Send what may be sent; returns the sinks to flush."""
        woken: list[FrameSink] = []
        if self.paused:
            return woken
        while True:
            ready = [consumer for consumer in self.consumers if consumer.room() > 0]
            available = self._available() if ready else 0
            if available <= 0:
                return woken
            self._turn += 1
            first = self._turn % len(ready)
            share = -(-available // len(ready))
            progress = False
            for consumer in ready[first:] + ready[:first]:
                if batch := self._take_for(consumer, min(consumer.room(), share)):
                    progress = True
                    if self._deliver(consumer, batch, now):
                        woken.append(consumer.sink)
            if not progress:
                return woken

    def _available(self) -> int:
        """An upper bound of what may be sent."""
        return self.backlog.available()

    def _take_for(self, consumer: ChannelConsumer, count: int) -> list[Record]:  # noqa: ARG002 - the interface has it
        """Up to *count* messages for *consumer*."""
        return self._take(count)

    def _take(self, count: int) -> list[Record]:
        """Up to *count* messages, requeued ones where their turn has come."""
        return self.backlog.take(count)

    def _deliver(self, consumer: ChannelConsumer, batch: list[Record], now: float) -> bool:
        """Put *batch* in the hands of *consumer*; whether anything is to be sent now."""
        subscription = consumer.subscription
        if subscription.sample_rate or subscription.wants:
            batch = [record for record in batch if self._is_wanted(consumer, record)]
            if not batch:
                return False
        layout = subscription.layout
        if layout == PLAIN and not self.attempts:
            frames = [record.frame for record in batch]
        else:
            frames = [encode(record, layout, self._next_attempt(record)) for record in batch]
        in_flight = consumer.in_flight
        for record in batch:
            in_flight[record.key] = (record, now)
        consumer.delivered += len(batch)
        self._alarm.by(now + subscription.msg_timeout)
        return consumer.sink.deliver(frames, hold=self._may_hold_back(consumer))

    def _may_hold_back(self, consumer: ChannelConsumer) -> bool:
        """Whether messages may wait for others: not when no other can come (protocol#buffering)."""
        return consumer.room() > 0

    def _next_attempt(self, record: Record) -> int:
        before = self.attempts.get(record.index)
        if before is None:
            return 1
        self.attempts[record.index] = attempt = min(before + 1, self.limits.max_attempts)
        return attempt

    def _is_wanted(self, consumer: ChannelConsumer, record: Record) -> bool:
        """Sampling and filters; what is not wanted is done with.

        See protocol#sampling, protocol#ext-filter.
        """
        subscription = consumer.subscription
        rate = subscription.sample_rate
        if rate and self._random.randrange(100) > rate:
            self._done(record)
            return False
        if subscription.wants and not subscription.wants(record):
            self._done(record)
            return False
        return True

    # -------------------------------------------------------------------------------- answers

    def finish_many(self, consumer: ChannelConsumer, keys: list[bytes]) -> list[tuple[int, str]]:
        """FIN of several messages; the position and the reason of each that failed."""
        failed: list[tuple[int, str]] = []
        take, confirm, attempts = consumer.in_flight.pop, self.confirmed.add, self.attempts
        for position, key in enumerate(keys):
            entry = take(key, None)
            if entry is None:
                touched = consumer.touched.pop(key, None)
                if touched is None:
                    failed.append((position, self._refuse(consumer, key)))
                    continue
                entry = touched[:2]
            index = entry[0].index
            confirm(index)
            if attempts:
                attempts.pop(index, None)
        consumer.succeeded(len(keys) - len(failed))
        return failed

    @abstractmethod
    def requeue(
        self, consumer: ChannelConsumer, key: bytes, delay: float, now: float
    ) -> str | None:
        """REQ after *delay* seconds; the reason if it failed."""

    def touch(self, consumer: ChannelConsumer, key: bytes, now: float) -> str | None:
        """TOUCH: a fresh timeout, within the limit since delivery; the reason if it failed."""
        entry = consumer.take(key)
        if entry is None:
            return self._refuse(consumer, key)
        record, delivered = entry
        latest = delivered + self.limits.max_msg_timeout
        deadline = min(now + consumer.subscription.msg_timeout, latest)
        consumer.touched[key] = (record, delivered, deadline)
        self._alarm.by(deadline)
        return None

    @abstractmethod
    def _refuse(self, consumer: ChannelConsumer, key: bytes) -> str:
        """Why an answer to *key* cannot be taken from *consumer*."""

    def _owner(self, key: bytes) -> ChannelConsumer | None:
        return next((each for each in self.consumers if each.holds(key)), None)

    def _done(self, record: Record) -> None:
        """A message is finished without a FIN."""
        self.confirmed.add(record.index)
        self.attempts.pop(record.index, None)

    # ------------------------------------------------------------------------------- requeuing

    def _count_delivery(self, record: Record) -> None:
        """A message was delivered for nothing: the next delivery counts on."""
        self.attempts.setdefault(record.index, 1)

    @abstractmethod
    def _put_back(self, record: Record) -> None:
        """Queue *record* for another delivery."""

    def defer_new(self, record: Record, due: float) -> None:
        """Hold a message that no client was sent yet (DPUB)."""
        self.backlog.left_out.add(record.index)
        # Its first delivery is the first one, although it comes out of the schedule.
        self.attempts[record.index] = 0
        self.deferred.hold(record, due)

    def expire(self, now: float) -> None:
        """Put back what was not answered in time, and what was deferred until now."""
        for consumer in self.consumers:
            for record in consumer.take_expired(now):
                self.timeout_count += 1
                self._time_out(consumer, record)
        for record in self.deferred.take_due(now):
            self._put_back(record)

    def _time_out(self, consumer: ChannelConsumer, record: Record) -> None:  # noqa: ARG002 - the interface has it
        self._count_delivery(record)
        self._put_back(record)

    def next_due(self) -> float | None:
        """When to call :meth:`expire`, or None."""
        dues = [due for consumer in self.consumers for due in consumer.deadlines()]
        deferred = self.deferred.next_due()
        return min(dues if deferred is None else [deferred, *dues], default=None)

    # ------------------------------------------------------------------------------ membership

    def add(self, consumer: ChannelConsumer) -> None:
        """A connection subscribes."""
        self.consumers.append(consumer)

    def remove(self, consumer: ChannelConsumer, now: float) -> None:
        """A connection is gone, or unsubscribed; harmless if it was removed before."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self._abandon(consumer, now)

    @abstractmethod
    def _abandon(self, consumer: ChannelConsumer, now: float) -> None:
        """What becomes of the messages that a lost connection had in hand."""

    def leave_out(self, indexes: Iterable[int]) -> None:
        """These were finished in an earlier life."""
        for index in indexes:
            if index >= self.backlog.cursor:
                self.backlog.left_out.add(index)
                self.confirmed.add(index)

    def empty(self) -> None:
        """Forget everything that waits or is in flight."""
        self.move_to(self.log.end)

    def move_to(self, index: int) -> None:
        """Begin again at *index*, with nothing in flight."""
        self.backlog.move_to(index)
        self.confirmed = Confirmed(index)
        self.deferred.clear()
        self.attempts.clear()
        for consumer in self.consumers:
            consumer.take_all()
