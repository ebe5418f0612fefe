"""The log of one topic partition: records in order, each with a place in the virtual queue."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, repeat

from nsqsmart.embedded.broker.ids import OriginalIds, RedesignedIds
from nsqsmart.embedded.broker.records import (
    RECORD_OVERHEAD,
    Extension,
    Record,
    extension_size,
)
from nsqsmart.wire.frames import MESSAGE

Entry = tuple[bytes, int, Extension | None]
"""What is published: body, trace id (0 for none), extension header."""

_DROP_AT_ONCE = 4096
_SIZE_WORD = 4
_NO_TRACE = bytes(8)
# The frame of a first delivery in the plain layout (protocol 3.1); its size is the record's.
_pack = struct.Struct(">IIQH16s").pack


class RecordTooLong(Exception):
    """A message with its header does not fit the log; the text is the server's (protocol 2.10)."""


class Log(ABC):
    """Records by index; the first ones may have been dropped, their indexes stay taken.

    ``visible`` is the index behind the last record that channels may read: it stays behind
    ``end`` while an original topic is paused.
    """

    def __init__(self, *, extended: bool = False) -> None:
        self.records: list[Record] = []
        self.base = 0
        self.visible = 0
        self.next_offset = 0
        self.extended = extended
        self.frozen = False
        self.lost: set[int] = set()
        """Indexes of records that a killed process took with it."""

    @property
    def end(self) -> int:
        """The index behind the last record."""
        return self.base + len(self.records)

    @property
    def start_offset(self) -> int:
        """The offset of the oldest record that is still there."""
        return self.records[0].offset if self.records else self.next_offset

    @abstractmethod
    def _identify(self, timestamp: int, trace_id: int) -> tuple[bytes, bytes]:
        """The next message id, and the key made of it."""

    def append(
        self, body: bytes, timestamp: int, trace_id: int = 0, ext: Extension | None = None
    ) -> Record:
        """Store a message; *timestamp* in nanoseconds since the epoch."""
        message_id, key = self._identify(timestamp, trace_id)
        length = len(body)
        size = length + RECORD_OVERHEAD
        if self.extended:
            size += extension_size(ext)
        offset, records = self.next_offset, self.records
        index = self.base + len(records)
        frame = _pack(length + RECORD_OVERHEAD, MESSAGE, timestamp, 1, message_id) + body
        record = Record(frame, key, index, offset, size, ext)
        records.append(record)
        self.next_offset = offset + size
        if not self.frozen:
            self.visible = index + 1
        return record

    def append_all(self, entries: Sequence[Entry], timestamp: int) -> list[Record]:
        """Store several messages, in order."""
        append = self.append
        return [append(body, timestamp, trace, ext) for body, trace, ext in entries]

    def restore(self, frame: bytes, offset: int, size: int, ext: Extension | None) -> None:
        """Take back a record of an earlier life."""
        message_id = frame[18:34]
        key, index = self._known(message_id), self.base + len(self.records)
        self.records.append(Record(frame, key, index, offset, size, ext))
        self.next_offset = offset + size
        if not self.frozen:
            self.visible = index + 1

    @abstractmethod
    def _known(self, message_id: bytes) -> bytes:
        """The key of an id that was given before; later ones follow it."""

    def freeze(self, *, frozen: bool) -> None:
        """Show no more records, or all of them again."""
        self.frozen = frozen
        if not frozen:
            self.visible = self.end

    def read(self, start: int, stop: int) -> list[Record]:
        """The visible records of [start, stop)."""
        return self.records[max(start - self.base, 0) : min(stop, self.visible) - self.base]

    def index_at_offset(self, offset: int) -> int:
        """The index of the first record at or behind *offset* bytes."""
        return self.base + bisect_left(self.records, offset, key=lambda record: record.offset)

    def index_of_key(self, key: bytes) -> int:
        """The index of the first record whose key is not below *key*."""
        return self.base + bisect_left(self.records, key, key=lambda record: record.key)

    def index_at_time(self, timestamp: int) -> int:
        """The index of the first record accepted at or after *timestamp*, in nanoseconds."""
        return self.base + bisect_left(self.records, timestamp, key=lambda record: record.timestamp)

    def drop_before(self, index: int) -> None:
        """Forget the records before *index*; in large steps, because lists shift."""
        count = index - self.base
        if count >= _DROP_AT_ONCE:
            del self.records[:count]
            self.base = index

    def clear_invisible(self) -> None:
        """Forget the records that channels may not read yet."""
        del self.records[self.visible - self.base :]

    def clear(self) -> None:
        """Forget every record; offsets and indexes go on."""
        self.base = self.visible = self.end
        self.records = []


class RedesignedLog(Log):
    """Internal ids that grow by one; the trace id is the second half of the id."""

    def __init__(self, ids: RedesignedIds, longest: int, *, extended: bool = False) -> None:
        """*longest* is the largest message in bytes; a header takes its room out of that."""
        super().__init__(extended=extended)
        self.ids = ids
        self._longest = longest + RECORD_OVERHEAD - _SIZE_WORD

    def append_all(self, entries: Sequence[Entry], timestamp: int) -> list[Record]:
        """Store several messages, or none; raises :class:`RecordTooLong`."""
        if self.extended:
            for body, _, ext in entries:
                size = len(body) + RECORD_OVERHEAD - _SIZE_WORD + extension_size(ext)
                if size > self._longest:
                    text = f"invalid message write size ({size}) maxMsgSize={self._longest}"
                    raise RecordTooLong(text)
        return super().append_all(entries, timestamp)

    def _identify(self, timestamp: int, trace_id: int) -> tuple[bytes, bytes]:  # noqa: ARG002 - the interface has it
        key = self.ids.take().to_bytes(8)
        return key + (trace_id.to_bytes(8) if trace_id else _NO_TRACE), key

    def _known(self, message_id: bytes) -> bytes:
        self.ids.resume(int.from_bytes(message_id[:8]))
        return message_id[:8]


class OriginalLog(Log):
    """Ids of hexadecimal digits, made of the time."""

    def __init__(self, ids: OriginalIds) -> None:
        super().__init__()
        self._ids = ids

    def append_all(self, entries: Sequence[Entry], timestamp: int) -> list[Record]:
        """Store several messages, in order: column by column, or a batch costs twice as much."""
        bodies = [body for body, _, _ in entries]
        ids = self._ids.take_many(timestamp, len(bodies))
        sizes = [len(body) + RECORD_OVERHEAD for body in bodies]
        heads = map(_pack, sizes, repeat(MESSAGE), repeat(timestamp), repeat(1), ids)
        frames = map(bytes.__add__, heads, bodies)
        *offsets, offset = accumulate(sizes, initial=self.next_offset)
        index = self.end + len(bodies)
        indexes = range(self.end, index)
        added = list(map(Record, frames, ids, indexes, offsets, sizes, repeat(None)))
        self.records += added
        self.next_offset = offset
        if not self.frozen:
            self.visible = index
        return added

    def _identify(self, timestamp: int, trace_id: int) -> tuple[bytes, bytes]:  # noqa: ARG002 - the interface has it
        message_id = self._ids.take(timestamp)
        return message_id, message_id

    def _known(self, message_id: bytes) -> bytes:
        return message_id
