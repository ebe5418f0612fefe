"""A topic of an original nsqd."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from nsqsmart.embedded.broker.channel import BrokerChannel, BrokerLimits
from nsqsmart.embedded.broker.consumer import ChannelConsumer, FrameSink
from nsqsmart.embedded.broker.ids import OriginalIds
from nsqsmart.embedded.broker.log import NewMessage, OriginalLog
from nsqsmart.embedded.broker.original_channel import OriginalChannel
from nsqsmart.embedded.broker.original_memory import Overflow
from nsqsmart.embedded.broker.partition import Partition
from nsqsmart.embedded.broker.records import Record


class OriginalPartition(Partition):
    """An original topic: it keeps messages until the first channel exists, which gets them all."""

    channels: dict[str, OriginalChannel]  # type: ignore[assignment]
    make_channel = OriginalChannel

    def __init__(self, node: int, limits: BrokerLimits, random: Random) -> None:
        """An empty one on node number *node*."""
        super().__init__(OriginalLog(OriginalIds(node)), limits, random)
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
        """Keep messages from the channels, or hand them over (protocol#pause)."""
        self.log.freeze(frozen=paused)
        self._overflow()

    def publish(
        self, entries: Sequence[NewMessage], timestamp: int, now: float
    ) -> tuple[list[Record], list[FrameSink]]:
        """What no channel takes at once, and memory has no room for, goes to disk."""
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
        own = self._spill()
        spilled = [(channel, channel.spill()) for channel in self.channels.values()]
        if self.keep is None:
            return
        kept = [("", self.log.records[own.start - self.log.base :] if own else [])]
        kept += [(channel.name, channel.waiting(indexes)) for channel, indexes in spilled]
        if written := [(name, records) for name, records in kept if records]:
            self.keep(written)

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

    def _spill(self) -> range:
        """What memory has no room for, to be written to disk; or it is dropped."""
        start, end = self.waiting_from(), self.log.end
        if self.ephemeral:
            self._dropped = {index for index in self._dropped if index >= start}
            room = start + len(self._dropped) + self.limits.memory_queue
            self._dropped.update(range(max(room, start), end))
            return range(end, end)
        new = self.overflow.spill(end - start, self.overflow.count(start), end)
        return range(max(new.start, start), new.stop)

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
    ) -> tuple[Record, list[FrameSink]]:
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

    def create_channel(self, name: str, *, start: int | None = None) -> BrokerChannel:
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

    def delete_channel(self, name: str) -> list[ChannelConsumer]:
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
