"""The log of one topic partition: records in order, each with a place in the virtual queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left

from nsqsmart.embedded.broker.ids import OriginalIds, RedesignedIds
from nsqsmart.embedded.broker.records import (
    RECORD_OVERHEAD,
    Extension,
    Record,
    extension_size,
    plain_frame,
)
from nsqsmart.wire.messages import redesigned_id

_DROP_AT_ONCE = 4096


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
        size = len(body) + RECORD_OVERHEAD
        if self.extended:
            size += extension_size(ext)
        offset, records = self.next_offset, self.records
        record = Record(
            plain_frame(timestamp, message_id, body),
            key,
            self.base + len(records),
            offset,
            size,
            ext,
        )
        records.append(record)
        self.next_offset = offset + size
        if not self.frozen:
            self.visible = record.index + 1
        return record

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

    def __init__(self, ids: RedesignedIds, *, extended: bool = False) -> None:
        super().__init__(extended=extended)
        self.ids = ids

    def _identify(self, timestamp: int, trace_id: int) -> tuple[bytes, bytes]:
        message_id = redesigned_id(self.ids.take(), trace_id)
        return message_id, message_id[:8]


class OriginalLog(Log):
    """Ids of hexadecimal digits, made of the time."""

    def __init__(self, ids: OriginalIds) -> None:
        super().__init__()
        self._ids = ids

    def _identify(self, timestamp: int, trace_id: int) -> tuple[bytes, bytes]:
        message_id = self._ids.take(timestamp)
        return message_id, message_id
