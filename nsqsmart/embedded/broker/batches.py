"""Messages of an original topic that were published together and not read yet."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, repeat

from nsqsmart.embedded.broker.records import RECORD_OVERHEAD, Record
from nsqsmart.wire.frames import MESSAGE

HEAD = struct.Struct(">IIQH16s")
"""The frame of a first delivery in the plain layout (protocol 3.1); its size is the record's."""


class Batch:
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
