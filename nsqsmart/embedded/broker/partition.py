"""One topic partition (on an original nsqd: a topic): its log and its channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from nsqsmart.embedded.broker.channel import BrokerChannel, BrokerLimits, Surroundings
from nsqsmart.embedded.broker.consumer import ChannelConsumer, FrameSink
from nsqsmart.embedded.broker.deferring import Alarm
from nsqsmart.embedded.broker.ids import RedesignedIds
from nsqsmart.embedded.broker.log import NewMessage, PartitionLog, RedesignedLog
from nsqsmart.embedded.broker.records import Record
from nsqsmart.embedded.broker.redesigned_channel import RedesignedChannel, forget, redeliver

_KEPT_BYTES = 512 * 1024 * 1024
"""Beyond this, records that every channel has finished are dropped."""


Keep = Callable[[list[tuple[str, list[Record]]]], None]
"""What writes records to disk: those of each queue, by channel, "" for the topic itself."""


class Partition:
    """What both dialects share: channels by name, and publishing to all of them.

    ``alarm.at`` says when :meth:`expire` has something to do; ``keep`` is told what has to be on
    disk.
    """

    make_channel: Callable[[str, Surroundings, int], BrokerChannel]

    def __init__(self, log: PartitionLog, limits: BrokerLimits, random: Random) -> None:
        self.log = log
        self.alarm = Alarm()
        self.limits = limits
        self.channels: dict[str, BrokerChannel] = {}
        self.keep: Keep | None = None
        self._surroundings = Surroundings(log, self.alarm, limits, random)

    def publish(
        self, entries: Sequence[NewMessage], timestamp: int, now: float
    ) -> tuple[list[Record], list[FrameSink]]:
        """Store *entries* in order; returns the records, and the sinks to flush.

        *timestamp* is nanoseconds since the epoch, *now* seconds of the caller's clock.
        """
        return self.log.append_all(entries, timestamp), self.pump(now)

    def pump(self, now: float) -> list[FrameSink]:
        """Let every channel send what it may; returns the sinks to flush."""
        woken: list[FrameSink] = []
        for channel in self.channels.values():
            if channel.consumers:
                woken += channel.pump(now)
        if self.log.next_offset - self.log.start_offset > _KEPT_BYTES:
            self._trim()
        return woken

    def _trim(self) -> None:
        oldest = [channel.confirmed.position for channel in self.channels.values()]
        self.log.drop_before(min(oldest, default=self.log.base))

    def expire(self, now: float) -> list[FrameSink]:
        """Do what was due by *now*, and set the alarm anew; returns the sinks to flush."""
        self.alarm.at = float("inf")
        for channel in self.channels.values():
            channel.expire(now)
        woken = self.pump(now)
        for channel in self.channels.values():
            due = channel.next_due()
            if due is not None:
                self.alarm.by(due)
        return woken

    def create_channel(self, name: str, *, start: int | None = None) -> BrokerChannel:
        """The channel *name*, made if need be, at *start* or where this dialect begins."""
        channel = self.channels.get(name)
        if channel is None:
            begin = self._beginning() if start is None else start
            channel = self.make_channel(name, self._surroundings, begin)
            self.channels[name] = channel
        return channel

    def _beginning(self) -> int:
        return self.log.end

    def delete_channel(self, name: str) -> list[ChannelConsumer]:
        """Forget the channel; returns the consumers to disconnect."""
        channel = self.channels.pop(name, None)
        if channel is None:
            return []
        gone, channel.consumers = channel.consumers, []
        return gone


class RedesignedPartition(Partition):
    """A partition of a redesigned topic; a new channel begins at the end (protocol#channels)."""

    channels: dict[str, RedesignedChannel]  # type: ignore[assignment]
    make_channel = RedesignedChannel

    def __init__(
        self, ids: RedesignedIds, limits: BrokerLimits, random: Random, *, extended: bool
    ) -> None:
        log = RedesignedLog(ids, limits.max_msg_size, extended=extended)
        super().__init__(log, limits, random)
        self._ids = ids
        self.from_oldest = False
        self.ordered_copies = 0

    def create_channel(self, name: str, *, start: int | None = None) -> BrokerChannel:
        """The channel *name*, made if need be."""
        channel = super().create_channel(name, start=start)
        if self.ordered_copies and isinstance(channel, RedesignedChannel):
            channel.copies.wanted = self.ordered_copies
        return channel

    def _beginning(self) -> int:
        return self.log.base if self.from_oldest else self.log.end

    def publish(
        self, entries: Sequence[NewMessage], timestamp: int, now: float
    ) -> tuple[list[Record], list[FrameSink]]:
        """Store and write everything, also what a consumer takes at once."""
        records, woken = super().publish(entries, timestamp, now)
        if self.keep is not None:
            self.keep([("", records)])
        return records, woken

    def extend(self, *, extended: bool) -> None:
        """Keep headers from now on; clients that subscribed without them get nothing more.

        See protocol#topic-life.
        """
        if extended == self.log.extended:
            return
        self.log.extended = extended
        for channel in self.channels.values():
            for consumer in channel.consumers:
                consumer.muted = not consumer.subscription.layout.extended

    def fail_over(self) -> list[ChannelConsumer]:
        """Another node leads from now on; returns the consumers that lost their connection."""
        self._ids.skip()
        return self.dismiss()

    def forget(self, *, positions: int, young: bool) -> None:
        """What the new leader does not know: the last *positions*, and *young* channels."""
        for channel in list(self.channels.values()):
            if forget(channel, positions=positions, young=young):
                del self.channels[channel.name]

    def redeliver(self) -> list[FrameSink]:
        """Send what consumers have in hand once more; returns the sinks to flush."""
        return [sink for channel in self.channels.values() for sink in redeliver(channel)]

    def dismiss(self) -> list[ChannelConsumer]:
        """Take every channel back to its confirm position; returns the consumers it had."""
        return [gone for channel in self.channels.values() for gone in channel.fail_over()]
