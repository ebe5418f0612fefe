"""A channel of a redesigned nsqd: a position in the log, ordered or not, with tags."""

from __future__ import annotations

from collections import deque

from nsqsmart.embedded.broker.channel import BrokerChannel, Surroundings
from nsqsmart.embedded.broker.consumer import ChannelConsumer, FrameSink
from nsqsmart.embedded.broker.deferring import Alarm
from nsqsmart.embedded.broker.records import Record, encode

NOT_IN_FLIGHT = "Message ID not in flight"
IS_DEFERRED = "Message is deferred"
TOO_MUCH_REQUEUE = "Message too much requeue"
TOO_MUCH_DEFERRED = "Too much deferred messages in flight"

_REQUEUE_CEILING = 2000
_MANY_ATTEMPTS = 100
_HASTE = 0.1
_LONGER = 1.0

_GAP = 0.001


class RedesignedChannel(BrokerChannel):
    """Finishing confirms; the server stops reading while too much waits for an earlier message.

    ``ordered`` is set by the first SUB_ORDERED and stays (protocol#ordered): at most one message of
    the channel is in flight, over all its connections.
    """

    def __init__(self, name: str, surroundings: Surroundings, start: int) -> None:
        super().__init__(name, surroundings, start)
        self.ordered = False
        self.skipped = False
        self.tests_skipped = False
        self._client_limits: dict[str, int] = {}
        self.copies = Copies(self._alarm)
        self._lanes: dict[str, deque[Record]] = {}

    def depth(self) -> int:
        """Messages not yet confirmed: the consumer's lag (protocol#stats)."""
        return self.log.end - max(self.confirmed.position, self.log.base)

    def _may_hold_back(self, consumer: ChannelConsumer) -> bool:
        """Nothing of an ordered channel is held back."""
        return not self.ordered and super()._may_hold_back(consumer)

    def set_ordered(self, *, ordered: bool) -> None:
        """Begin or end one-at-a-time delivery; what was read ahead is read again."""
        if ordered == self.ordered:
            return
        self.ordered = ordered
        for lane in self._lanes.values():
            lane.clear()
        for consumer in self.consumers:
            consumer.take_all()
        self.deferred.clear()
        self.backlog.move_to(self.confirmed.position)
        self.backlog.left_out |= self.confirmed.above
        self.copies.begin()

    # ------------------------------------------------------------------------------- delivery

    def _available(self) -> int:
        if self.skipped:
            self.move_to(self.log.end)
        if self.ordered:
            busy = self.in_flight_count or self.copies.record is not None
            return 0 if busy else min(1, super()._available())
        if self.confirmed.intervals > self.limits.max_confirm_window:
            return len(self.backlog.again)
        return super()._available() + sum(map(len, self._lanes.values()))

    def _take(self, count: int) -> list[Record]:
        if self.ordered:
            return super()._take(1) if not self.in_flight_count else []
        if self.confirmed.intervals > self.limits.max_confirm_window:
            count = min(count, len(self.backlog.again))
        return super()._take(count)

    def _deliver(self, consumer: ChannelConsumer, batch: list[Record], now: float) -> bool:
        """The first message of an ordered channel may have to be sent several times."""
        if self.tests_skipped and any(map(_is_test, batch)):
            for record in filter(_is_test, batch):
                self._done(record)
            batch = [record for record in batch if not _is_test(record)]
            if not batch:
                return False
        sent = super()._deliver(consumer, batch, now)
        if self.ordered and self.copies.left and sent:
            self.copies.hold(batch[0], now)
            consumer.take(batch[0].key)
        return sent

    def _take_for(self, consumer: ChannelConsumer, count: int) -> list[Record]:
        """With tags about, messages are sorted into lanes as they are read.

        See protocol#ext-topics.
        """
        if not self._lanes:
            return self._take(count)
        lane = self._lanes[consumer.subscription.tag]
        while len(lane) < count and (found := self._take(1)):
            self._lane_of(found[0]).append(found[0])
        return [lane.popleft() for _ in range(min(count, len(lane)))]

    def _lane_of(self, record: Record) -> deque[Record]:
        tag = record.ext.tag if record.ext is not None else ""
        return self._lanes[tag if tag in self._lanes else ""]

    def add(self, consumer: ChannelConsumer) -> None:
        """A connection subscribes; its tag opens a lane."""
        super().add(consumer)
        self._apply_limits()
        self._sort_lanes()

    def limit_clients(self, prefix: str, most: int) -> None:
        """Clients whose address begins with *prefix* have at most *most* messages in flight."""
        self._client_limits[prefix] = most
        self._apply_limits()

    def _apply_limits(self) -> None:
        for consumer in self.consumers:
            for prefix, most in self._client_limits.items():
                if consumer.subscription.address.startswith(prefix):
                    consumer.most = most

    def release(self, until: float) -> None:
        """What is deferred and due before *until* goes out again now."""
        for record in self.deferred.take_due(until):
            self._put_back(record)

    def _sort_lanes(self) -> None:
        self._put_lanes_back()
        tags = {consumer.subscription.tag for consumer in self.consumers}
        self._lanes = {tag: deque() for tag in tags | {""}} if tags - {""} else {}

    def _put_lanes_back(self) -> None:
        waiting = sorted(
            (record for lane in self._lanes.values() for record in lane),
            key=lambda record: record.index,
            reverse=True,
        )
        for record in waiting:
            # No client was sent it: unless it came back before, this is not another attempt.
            self.backlog.put_first(record)
        for lane in self._lanes.values():
            lane.clear()

    # -------------------------------------------------------------------------------- answers

    def finish_many(self, consumer: ChannelConsumer, keys: list[bytes]) -> list[tuple[int, str]]:
        """Every refused answer slows the connection down (protocol#flow)."""
        failed = super().finish_many(consumer, keys)
        for _ in failed:
            consumer.failed()
        return failed

    def requeue(
        self, consumer: ChannelConsumer, key: bytes, delay: float, now: float
    ) -> str | None:
        """At once, after *delay* seconds, or not at all.

        See protocol#req and protocol#ordered-answers.
        """
        if delay > 0 and self.ordered:
            return None
        if delay > 0 and key in self.deferred:
            return IS_DEFERRED
        if not consumer.holds(key):
            consumer.failed()
            return self._refuse(consumer, key)
        reason = self._hasty(consumer, key, now) if delay <= 0 else None
        if reason is None and delay > 0:
            reason = self._defer_held(consumer, key, delay, now)
        elif reason is None:
            self._give_back(consumer)
            record = consumer.take(key)
            if record is not None:
                self._count_delivery(record[0])
                self._put_back(record[0])
        if reason is not None:
            consumer.failed()
        return reason

    def _hasty(self, consumer: ChannelConsumer, key: bytes, now: float) -> str | None:
        record, delivered = self._look(consumer, key)
        attempts = self.attempts.get(record.index, 1)
        hasty = attempts > _MANY_ATTEMPTS and now - delivered < _HASTE
        return TOO_MUCH_REQUEUE if attempts >= _REQUEUE_CEILING or hasty else None

    def _defer_held(
        self, consumer: ChannelConsumer, key: bytes, delay: float, now: float
    ) -> str | None:
        record, delivered = self._look(consumer, key)
        due = now + min(delay, self.limits.max_requeue_delay)
        if self.attempts.get(record.index, 1) > _MANY_ATTEMPTS and due - delivered < _LONGER:
            due += _LONGER
        window = self.limits.max_confirm_window
        if (
            len(self.confirmed.above) > window
            and due >= delivered + consumer.subscription.msg_timeout
        ):
            return TOO_MUCH_DEFERRED
        self._give_back(consumer)
        consumer.take(key)
        self._count_delivery(record)
        self.deferred.hold(record, due)
        return None

    def _give_back(self, consumer: ChannelConsumer) -> None:
        consumer.requeued += 1
        self.requeue_count += 1

    @staticmethod
    def _look(consumer: ChannelConsumer, key: bytes) -> tuple[Record, float]:
        entry = consumer.in_flight.get(key)
        return entry if entry is not None else consumer.touched[key][:2]

    def _refuse(self, consumer: ChannelConsumer, key: bytes) -> str:
        copied = self.copies.record
        if copied is not None and copied.key == key:
            self._send_copy()
            return NOT_IN_FLIGHT
        if key in self.deferred:
            return f"client does not own message : 0 vs {consumer.id}"
        owner = self._owner(key)
        if owner is None:
            return NOT_IN_FLIGHT
        return f"client does not own message : {owner.id} vs {consumer.id}"

    def _send_copy(self) -> None:
        record = self.copies.take()
        if record is not None:
            self.backlog.put_first(record)

    # ------------------------------------------------------------------------------- requeuing

    def expire(self, now: float) -> None:
        """Also the further copies of a first message."""
        super().expire(now)
        if self.copies.record is not None and self.copies.due <= now:
            self._send_copy()

    def next_due(self) -> float | None:
        """Also of the next copy."""
        due = super().next_due()
        if self.copies.record is None:
            return due
        return self.copies.due if due is None else min(due, self.copies.due)

    def _put_back(self, record: Record) -> None:
        self.backlog.put_back(record)

    def _time_out(self, consumer: ChannelConsumer, record: Record) -> None:
        consumer.failed()
        # The real server counts a timeout as a requeue too.
        self.requeue_count += 1
        super()._time_out(consumer, record)

    def _abandon(self, consumer: ChannelConsumer, now: float) -> None:  # noqa: ARG002 - the interface has it
        """At once to another client, and this delivery does not count (protocol#attempts)."""
        for record, _ in consumer.take_all():
            self.attempts[record.index] = self.attempts.get(record.index, 1) - 1
            self._put_back(record)
        self._sort_lanes()

    def move_to(self, index: int) -> None:
        """Also forget what was sorted into lanes."""
        super().move_to(index)
        self.copies.begin()
        for lane in self._lanes.values():
            lane.clear()

    def fail_over(self) -> list[ChannelConsumer]:
        """Another node leads: only the confirm position is known there (protocol#new-leader).

        Attempts, timeouts and deferrals are lost with the old leader; so are its connections,
        which are returned.
        """
        self.move_to(self.confirmed.position)
        gone, self.consumers = self.consumers, []
        self._lanes = {}
        return gone


def _is_test(record: Record) -> bool:
    """Whether the header marks a message as a test, by a truth value or its text."""
    values = record.ext.values if record.ext is not None else None
    return isinstance(values, dict) and values.get("zan_test") in (True, "true")


class Copies:
    """Takes the first message out of hand right after it was sent, so that it is sent again.

    ``wanted`` is how often, on each leader. Between two copies the message has no client: a FIN
    fails, and brings the next copy at once.
    """

    def __init__(self, alarm: Alarm) -> None:
        self.wanted = 0
        self.left = 0
        self.record: Record | None = None
        self.due = 0.0
        self._alarm = alarm

    def begin(self) -> None:
        """A leader's first SUB_ORDERED: the next message comes several times."""
        self.left, self.record = self.wanted, None

    def hold(self, record: Record, now: float) -> None:
        """A copy was sent, and another follows."""
        self.left -= 1
        self.record, self.due = record, now + _GAP
        self._alarm.by(self.due)

    def take(self) -> Record | None:
        """The message that is to be sent again now, if there is one."""
        record, self.record = self.record, None
        return record


def forget(channel: RedesignedChannel, *, positions: int, young: bool) -> bool:
    """What a new leader does not know (protocol#new-leader); whether the channel is gone.

    The last *positions* of an unordered one; with *young*, a channel that nothing was
    finished of.
    """
    begin = channel.confirmed.position
    if young and begin == channel.began_at:
        channel.began_at = channel.log.end
        channel.move_to(channel.began_at)
        return not channel.ordered
    if positions and not channel.ordered:
        channel.move_to(max(begin - positions, min(begin, channel.began_at), channel.log.base))
    return False


def redeliver(channel: RedesignedChannel) -> list[FrameSink]:
    """Send what is in hand once more, as its first delivery; returns the sinks to flush."""
    for consumer in channel.consumers:
        layout = consumer.subscription.layout
        held = [record for record, _ in consumer.in_flight.values()]
        consumer.sink.put([encode(record, layout, 1) for record in held])
    return [consumer.sink for consumer in channel.consumers]
