"""Message ids (protocol#message-ids)."""

from __future__ import annotations

from collections.abc import Sequence

_PARTITION_SHIFT = 50
_EPOCH_TICKS = 1288834974288
_TICK_SHIFT = 20
_SEQUENCE_MASK = 0xFFF


class RedesignedIds:
    """Internal ids: a counter, with the partition above it where a coordinator runs."""

    def __init__(self, partition: int, *, coordinated: bool) -> None:
        self._base = partition << _PARTITION_SHIFT if coordinated else 0
        # The first message of a partition in a cluster has counter 2, alone it has 1.
        self._last = 1 if coordinated else 0

    def take(self) -> int:
        """The next internal id."""
        self._last += 1
        return self._base + self._last

    def resume(self, last: int) -> None:
        """Continue after the id *last*."""
        self._last = last - self._base

    def skip(self) -> None:
        """Leave one id out, as a leader switch does (protocol#ids-in-a-cluster)."""
        self._last += 1


class OriginalIds:
    """16 hexadecimal digits of a time, a node number and a sequence."""

    def __init__(self, node: int) -> None:
        self._node = (node & 0x3FF) << 12
        self._tick = 0
        self._sequence = 0

    def take(self, timestamp: int) -> int:
        """The next id, of which the 16 digits are made; *timestamp* in ns since the epoch."""
        tick = (timestamp >> _TICK_SHIFT) - _EPOCH_TICKS
        if tick <= self._tick:
            self._sequence = (self._sequence + 1) & _SEQUENCE_MASK
            if not self._sequence:
                # A real nsqd waits for the next tick; running ahead of the clock keeps ids unique.
                self._tick += 1
        else:
            self._tick, self._sequence = tick, 0
        return self._tick << 22 | self._node | self._sequence

    def take_many(self, timestamp: int, count: int) -> Sequence[int]:
        """The next *count* ids, at least one."""
        first = self.take(timestamp)
        if self._sequence + count > _SEQUENCE_MASK:
            return [first, *(self.take(timestamp) for _ in range(count - 1))]
        self._sequence += count - 1
        return range(first, first + count)
