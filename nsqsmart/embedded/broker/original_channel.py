"""A channel of an original nsqd."""

from __future__ import annotations

from nsqsmart.embedded.broker.channel import BrokerChannel, Surroundings
from nsqsmart.embedded.broker.consumer import ChannelConsumer
from nsqsmart.embedded.broker.original_memory import Overflow
from nsqsmart.embedded.broker.records import Record

NOT_IN_FLIGHT = "ID not in flight"
NOT_OWNER = "client does not own message"


class OriginalChannel(BrokerChannel):
    """One queue, first come first served; what comes back goes to its end.

    Messages of a lost connection stay in flight until they time out (protocol#attempts): they move
    to ``orphans``, with that deadline.
    """

    def __init__(self, name: str, surroundings: Surroundings, start: int) -> None:
        super().__init__(name, surroundings, start)
        self.orphans: dict[bytes, tuple[Record, float]] = {}
        self.overflow = Overflow(self.limits.memory_queue, start)

    @property
    def in_flight_count(self) -> int:
        """Messages sent and not answered, those of lost connections too."""
        return super().in_flight_count + len(self.orphans)

    def depth(self) -> int:
        """Messages in the queue; neither in flight nor deferred."""
        return self.backlog.unread() + len(self.backlog.again)

    def depth_on_disk(self) -> int:
        """Those of them that are on disk; all of them without a memory queue."""
        if self.ephemeral:
            return 0
        if self.limits.memory_queue == 0:
            return self.depth()
        return self.overflow.count(self.backlog.cursor, self.backlog.left_out)

    def spill(self) -> range:
        """What does not fit in memory any more: to be written to disk, or dropped."""
        limit = self.limits.memory_queue
        if limit and self.backlog.available() <= limit:
            return range(0)
        if self.ephemeral:
            self._drop()
            return range(0)
        return self.overflow.spill(self.depth(), self.depth_on_disk(), self.log.visible)

    def waiting(self, indexes: range) -> list[Record]:
        """The records of *indexes*, but for those that are read past."""
        left_out = self.backlog.left_out
        found = self.log.read(indexes.start, indexes.stop) if indexes else []
        return [record for record in found if record.index not in left_out]

    def _drop(self) -> None:
        """An ephemeral channel has no disk."""
        excess = self.depth() - self.limits.memory_queue
        if excess > 0:
            end = self.log.visible
            self.leave_out(range(max(end - excess, self.backlog.cursor), end))

    def unfinished(self) -> list[tuple[Record, int]]:
        """Everything that waits, is in flight or is deferred, each with its deliveries so far."""
        held = set(self.orphans)
        for consumer in self.consumers:
            held.update(consumer.in_flight, consumer.touched)
        # What was delivered once has no entry in the attempts.
        return [
            (record, self.attempts.get(record.index, int(record.key in held)))
            for record in self.log.read(self.confirmed.position, self.log.visible)
            if record.index not in self.confirmed
        ]

    def lose_memory(self) -> None:
        """The process was killed: only what is on disk is left."""
        kept = self.limits.memory_queue == 0 and not self.ephemeral
        lost = [
            record.index
            for record, _ in self.unfinished()
            if not kept and (self.ephemeral or record.index not in self.overflow)
        ]
        position, done, on_disk = self.confirmed.position, self.confirmed.above, self.overflow
        self.overflow = Overflow(self.limits.memory_queue, position)
        self.move_to(position)
        self.overflow = on_disk
        self.leave_out([*done, *lost])

    def requeue(
        self, consumer: ChannelConsumer, key: bytes, delay: float, now: float
    ) -> str | None:
        """Back to the end of the queue, at once or after *delay* seconds (protocol#req)."""
        entry = consumer.take(key)
        if entry is None:
            return self._refuse(consumer, key)
        record = entry[0]
        consumer.requeued += 1
        self.requeue_count += 1
        self._count_delivery(record)
        if delay <= 0:
            self._put_back(record)
        else:
            self.deferred.hold(record, now + min(delay, self.limits.max_requeue_delay))
        return None

    def _refuse(self, consumer: ChannelConsumer, key: bytes) -> str:  # noqa: ARG002 - the interface has it
        return NOT_OWNER if self._owner(key) or key in self.orphans else NOT_IN_FLIGHT

    def _put_back(self, record: Record) -> None:
        self.backlog.put_last(record)

    def _abandon(self, consumer: ChannelConsumer, now: float) -> None:  # noqa: ARG002 - the interface has it
        timeout = consumer.subscription.msg_timeout
        touched = {key: deadline for key, (_, _, deadline) in consumer.touched.items()}
        for record, delivered in consumer.take_all():
            deadline = touched.get(record.key, delivered + timeout)
            self.orphans[record.key] = (record, deadline)
            self._alarm.by(deadline)

    def expire(self, now: float) -> None:
        """Also what lost connections had."""
        super().expire(now)
        late = [record for record, deadline in self.orphans.values() if deadline <= now]
        for record in late:
            del self.orphans[record.key]
            self.timeout_count += 1
            self._count_delivery(record)
            self._put_back(record)

    def next_due(self) -> float | None:
        """Also of what lost connections had."""
        due = super().next_due()
        dues = [deadline for _, deadline in self.orphans.values()]
        return min(dues if due is None else [due, *dues], default=None)

    def move_to(self, index: int) -> None:
        """Also forget what lost connections had."""
        super().move_to(index)
        self.overflow.clear(index)
        self.orphans.clear()
