"""One topic partition (on an original nsqd: a topic): its log and its channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from nsqsmart.embedded.broker.alarm import Alarm
from nsqsmart.embedded.broker.channel import Channel, Limits, Surroundings
from nsqsmart.embedded.broker.consumer import Consumer, Sink
from nsqsmart.embedded.broker.ids import OriginalIds, RedesignedIds
from nsqsmart.embedded.broker.log import Entry, Log, OriginalLog, RedesignedLog
from nsqsmart.embedded.broker.original_channel import OriginalChannel
from nsqsmart.embedded.broker.overflow import Overflow
from nsqsmart.embedded.broker.records import Record
from nsqsmart.embedded.broker.redesigned_channel import RedesignedChannel

_KEPT_BYTES = 512 * 1024 * 1024
"""Beyond this, records that every channel has finished are dropped."""


Keep = Callable[[list[tuple[str, list[Record]]]], None]
"""Whoever writes records to disk: those of each queue, by channel, "" for the topic itself."""


class Partition:
    """What both dialects share: channels by name, and publishing to all of them.

    ``alarm.at`` says when :meth:`expire` has something to do; ``keep`` is told what has to be on
    disk.
    """

    make_channel: Callable[[str, Surroundings, int], Channel]

    def __init__(self, log: Log, limits: Limits, random: Random) -> None:
        self.log = log
        self.alarm = Alarm()
        self.limits = limits
        self.channels: dict[str, Channel] = {}
        self.keep: Keep | None = None
        self._surroundings = Surroundings(log, self.alarm, limits, random)

    def publish(
        self, entries: Sequence[Entry], timestamp: int, now: float
    ) -> tuple[list[Record], list[Sink]]:
        """Store *entries* in order; returns the records, and the sinks to flush.

        *timestamp* is nanoseconds since the epoch, *now* seconds of the caller's clock.
        """
        return self.log.append_all(entries, timestamp), self.pump(now)

    def pump(self, now: float) -> list[Sink]:
        """Let every channel send what it may; returns the sinks to flush."""
        woken: list[Sink] = []
        for channel in self.channels.values():
            if channel.consumers:
                woken += channel.pump(now)
        if self.log.next_offset - self.log.start_offset > _KEPT_BYTES:
            self._trim()
        return woken

    def _trim(self) -> None:
        oldest = [channel.confirmed.position for channel in self.channels.values()]
        self.log.drop_before(min(oldest, default=self.log.base))

    def expire(self, now: float) -> list[Sink]:
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

    def create_channel(self, name: str, *, start: int | None = None) -> Channel:
        """The channel *name*, made if need be, at *start* or where this dialect begins."""
        channel = self.channels.get(name)
        if channel is None:
            begin = self._beginning() if start is None else start
            channel = self.make_channel(name, self._surroundings, begin)
            self.channels[name] = channel
        return channel

    def _beginning(self) -> int:
        return self.log.end

    def delete_channel(self, name: str) -> list[Consumer]:
        """Forget the channel; returns the consumers to disconnect."""
        channel = self.channels.pop(name, None)
        if channel is None:
            return []
        gone, channel.consumers = channel.consumers, []
        return gone


class RedesignedPartition(Partition):
    """A partition of a redesigned topic; a new channel begins at the end (protocol 4.3)."""

    channels: dict[str, RedesignedChannel]  # type: ignore[assignment]
    make_channel = RedesignedChannel

    def __init__(self, log: RedesignedLog, limits: Limits, random: Random) -> None:
        super().__init__(log, limits, random)
        self.from_oldest = False
        self.ordered_copies = 0

    def create_channel(self, name: str, *, start: int | None = None) -> Channel:
        """The channel *name*, made if need be."""
        channel = super().create_channel(name, start=start)
        if self.ordered_copies and isinstance(channel, RedesignedChannel):
            channel.copies.wanted = self.ordered_copies
        return channel

    def _beginning(self) -> int:
        return self.log.base if self.from_oldest else self.log.end

    def publish(
        self, entries: Sequence[Entry], timestamp: int, now: float
    ) -> tuple[list[Record], list[Sink]]:
        """Everything is written, whoever waits for it."""
        records, woken = super().publish(entries, timestamp, now)
        if self.keep is not None:
            self.keep([("", records)])
        return records, woken

    def fail_over(self) -> list[Consumer]:
        """Another node leads from now on; returns the consumers that lost their connection."""
        assert isinstance(self.log, RedesignedLog)  # noqa: S101 - told to the type checker
        self.log.ids.skip()
        return self.dismiss()

    def forget(self, *, positions: int, young: bool) -> None:
        """What the new leader does not know: the last *positions*, and *young* channels."""
        for channel in list(self.channels.values()):
            if channel.forget(positions=positions, young=young):
                del self.channels[channel.name]

    def redeliver(self) -> list[Sink]:
        """Send what consumers have in hand once more; returns the sinks to flush."""
        return [sink for channel in self.channels.values() for sink in channel.redeliver()]

    def dismiss(self) -> list[Consumer]:
        """Take every channel back to its confirm position; returns the consumers it had."""
        return [gone for channel in self.channels.values() for gone in channel.fail_over()]


class OriginalPartition(Partition):
    """An original topic: it keeps messages until the first channel exists, which gets them all."""

    channels: dict[str, OriginalChannel]  # type: ignore[assignment]
    make_channel = OriginalChannel

    def __init__(self, log: OriginalLog, limits: Limits, random: Random) -> None:
        super().__init__(log, limits, random)
        self.ephemeral = False
        self.overflow = Overflow(limits.memory_queue, 0)
        self._dropped: set[int] = set()
        self._waiting_from = 0
        self._delayed: list[tuple[Record, float]] = []

    @property
    def paused(self) -> bool:
        """Whether messages stay in the topic."""
        return self.log.frozen

    def pause(self, *, paused: bool) -> None:
        """Keep messages from the channels, or hand them over (protocol 6.7)."""
        self.log.freeze(frozen=paused)
        self._overflow()

    def publish(
        self, entries: Sequence[Entry], timestamp: int, now: float
    ) -> tuple[list[Record], list[Sink]]:
        """What nobody takes at once, and memory has no room for, goes to disk."""
        stored = super().publish(entries, timestamp, now)
        self._overflow()
        return stored

    def _overflow(self) -> None:
        # The usual case, quickly: less waits than memory has room for.
        room = self.limits.memory_queue
        if room and self.log.end - self.log.visible <= room:
            queues = self.channels.values()
            if queues and all(channel.backlog.available() <= room for channel in queues):
                return
        spilled = self.spill()
        if spilled and self.keep is not None:
            self.keep(spilled)

    def depth(self) -> int:
        """Messages that no channel has been given yet."""
        start = self.waiting_from()
        return self.log.end - start - sum(1 for index in self._dropped if index >= start)

    def waiting_from(self) -> int:
        """The index of the first of them."""
        start = self.log.visible if self.channels else self._waiting_from
        return max(start, self.log.base)

    def depth_on_disk(self) -> int:
        """Those of them that are on disk."""
        return 0 if self.ephemeral else self.overflow.count(self.waiting_from())

    def spill(self) -> list[tuple[str, list[Record]]]:
        """What memory has no room for: the records to be written, by channel ("" the topic)."""
        start, end = self.waiting_from(), self.log.end
        if self.ephemeral:
            self._dropped = {index for index in self._dropped if index >= start}
            room = start + len(self._dropped) + self.limits.memory_queue
            self._dropped.update(range(max(room, start), end))
            new = range(end, end)
        else:
            new = self.overflow.spill(end - start, self.overflow.count(start), end)
        spilled = [("", self.log.records[max(new.start, start) - self.log.base :] if new else [])]
        spilled += [(channel.name, channel.spill()) for channel in self.channels.values()]
        return [(name, records) for name, records in spilled if records]

    def lose_memory(self) -> None:
        """The process was killed: only what is on disk is left."""
        for channel in self.channels.values():
            channel.lose_memory()
        start, end = self.waiting_from(), self.log.end
        if self.limits.memory_queue or self.ephemeral:
            lost = {index for index in range(start, end) if index not in self.overflow}
            self._dropped |= lost
            for channel in self.channels.values():
                channel.leave_out(lost)
        self._delayed.clear()
        left = {record.index for each in self.channels.values() for record, _ in each.unfinished()}
        left.update(index for index in range(start, end) if index not in self._dropped)
        self.log.lost = set(range(self.log.base, end)) - left

    def publish_deferred(
        self, body: bytes, timestamp: int, now: float, delay: float
    ) -> tuple[Record, list[Sink]]:
        """DPUB: delivered *delay* seconds from now."""
        record = self.log.append(body, timestamp)
        if delay > 0:
            for channel in self.channels.values():
                channel.defer_new(record, now + delay)
            if not self.channels:
                self._delayed.append((record, now + delay))
        woken = self.pump(now)
        self._overflow()
        return record, woken

    def _beginning(self) -> int:
        return self.log.visible if self.channels else self._waiting_from

    def create_channel(self, name: str, *, start: int | None = None) -> Channel:
        """The first channel takes over what the topic kept."""
        new = name not in self.channels
        channel = super().create_channel(name, start=start)
        if new:
            channel.leave_out(self._dropped)
        for record, due in self._delayed:
            channel.defer_new(record, due)
        self._delayed.clear()
        if new:
            self._overflow()
        return channel

    def delete_channel(self, name: str) -> list[Consumer]:
        """After the last one the topic keeps messages again."""
        gone = super().delete_channel(name)
        if not self.channels:
            self._waiting_from = self.log.visible
        return gone

    def empty(self) -> None:
        """Forget what no channel has been given."""
        self._dropped.clear()
        if self.channels:
            self.log.clear_invisible()
            self.overflow.clear(self.log.end)
        else:
            self._waiting_from = self.log.end
            self._delayed.clear()


def redesigned_partition(
    ids: RedesignedIds, limits: Limits, random: Random, *, extended: bool
) -> RedesignedPartition:
    """An empty partition of a redesigned topic."""
    log = RedesignedLog(ids, limits.max_msg_size, extended=extended)
    return RedesignedPartition(log, limits, random)


def original_partition(node: int, limits: Limits, random: Random) -> OriginalPartition:
    """An empty original topic on node number *node*."""
    return OriginalPartition(OriginalLog(OriginalIds(node)), limits, random)
