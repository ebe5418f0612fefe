"""What waits of an original topic: batches in memory, and on disk what came when that was full."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, repeat

from nsqsmart.embedded.broker.records import RECORD_OVERHEAD, Record
from nsqsmart.wire.frames import MESSAGE

HEAD = struct.Struct(">IIQH16s")
"""The frame of a first delivery (protocol#plain-frame); its size is the record's."""


class UnreadBatch:
    """Their frames; the rest of a record is made when it is read.

    Everything is done column by column: message by message it would cost twice as much.
    """

    __slots__ = ("_frames", "_ids", "_sizes", "end", "first", "offset", "size")

    def __init__(
        self, bodies: list[bytes], timestamp: int, ids: Sequence[int], first: int, offset: int
    ) -> None:
        """*first* is the index of the first one, *offset* its place in the virtual queue."""
        self.first = first
        self.end = first + len(bodies)
        self.offset = offset
        self._ids = [b"%016x" % number for number in ids]
        self._sizes = [len(body) + RECORD_OVERHEAD for body in bodies]
        self.size = sum(self._sizes)
        fixed = repeat(MESSAGE), repeat(timestamp), repeat(1)
        heads = map(HEAD.pack, self._sizes, *fixed, self._ids)
        self._frames = list(map(bytes.__add__, heads, bodies))

    def records(self) -> list[Record]:
        """The records."""
        offsets = accumulate(self._sizes, initial=self.offset)
        indexes = range(self.first, self.end)
        return list(map(Record, self._frames, self._ids, indexes, offsets, self._sizes))


class Overflow:
    """The indexes of a topic's or a channel's messages that are on disk and not read yet.

    *memory* is how many may wait in memory; with 0 everything goes through the disk, also what a
    consumer takes at once.
    """

    def __init__(self, memory: int, start: int) -> None:
        self._memory = memory
        self._runs: deque[tuple[int, int]] = deque()
        self._seen = start

    def count(self, cursor: int, left_out: AbstractSet[int] = frozenset()) -> int:
        """How many there are from *cursor* on."""
        runs = self._runs
        while runs and runs[0][1] <= cursor:
            runs.popleft()
        if not runs:
            return 0
        total = sum(stop - max(start, cursor) for start, stop in runs)
        return total - sum(1 for index in left_out if index >= cursor and index in self)

    def spill(self, waiting: int, on_disk: int, end: int) -> range:
        """What goes to disk now that *waiting* messages wait, *on_disk* of them there already.

        *end* is the index after the last one.
        """
        excess = end - self._seen if self._memory == 0 else waiting - on_disk - self._memory
        new = range(max(end - max(excess, 0), self._seen), end)
        self._seen = end
        if new:
            self.add(new.start, new.stop)
        return new

    def add(self, start: int, stop: int) -> None:
        """These are on disk."""
        self._seen = max(self._seen, stop)
        if self._runs and self._runs[-1][1] == start:
            start = self._runs.pop()[0]
        if start < stop:
            self._runs.append((start, stop))

    def clear(self, start: int) -> None:
        """There is nothing before *start*."""
        self._runs.clear()
        self._seen = start

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and any(start <= index < stop for start, stop in self._runs)
