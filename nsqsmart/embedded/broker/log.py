"""The log of one topic partition: records in order, each with a place in the virtual queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

from nsqsmart.embedded.broker.ids import OriginalIds, RedesignedIds
from nsqsmart.embedded.broker.original_memory import HEAD, UnreadBatch
from nsqsmart.embedded.broker.records import (
    RECORD_OVERHEAD,
    Extension,
    Record,
    extension_size,
)
from nsqsmart.wire.frames import MESSAGE

NewMessage = tuple[bytes, int, Extension | None]
"""What is published: body, trace id (0 for none), extension header."""

_DROP_AT_ONCE = 4096
_SIZE_WORD = 4
_NO_TRACE = bytes(8)


class RecordTooLong(Exception):
    """A message with its header does not fit the log; the text is the server's (protocol#pub)."""


class PartitionLog(ABC):
    """Records by index; the first ones may have been dropped, their indexes stay taken.

    ``visible`` is the index after the last record that channels may read: it is below ``end``
    while an original topic is paused.
    """

    def __init__(self, *, extended: bool = False) -> None:
        self.base = 0
        self.end = 0
        """The index after the last record."""
        self.visible = 0
        self.next_offset = 0
        self.extended = extended
        self.frozen = False
        self.lost: set[int] = set()
        """Indexes of records that a killed process took with it."""
        self._records: list[Record] = []

    def __len__(self) -> int:
        """How many records are still there."""
        return self.end - self.base

    @property
    def records(self) -> list[Record]:
        """Every record that is still there."""
        self._make(self.end)
        return self._records

    def _make(self, stop: int) -> None:  # noqa: B027 - for most there is nothing to do
        """Make the records before index *stop*, where that was put off."""

    @property
    def start_offset(self) -> int:
        """The offset of the oldest record that is still there."""
        return self._records[0].offset if self._records else self.next_offset

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
        offset, index = self.next_offset, self.end
        frame = HEAD.pack(length + RECORD_OVERHEAD, MESSAGE, timestamp, 1, message_id) + body
        record = Record(frame, key, index, offset, size, ext)
        self._records.append(record)
        self._grow(1, size)
        return record

    def _grow(self, count: int, size: int) -> None:
        self.end += count
        self.next_offset += size
        if not self.frozen:
            self.visible = self.end

    def append_all(self, entries: Sequence[NewMessage], timestamp: int) -> list[Record]:
        """Store several messages, in order; the records, if they are asked for."""
        append = self.append
        return [append(body, timestamp, trace, ext) for body, trace, ext in entries]

    def restore(self, frame: bytes, offset: int, size: int, ext: Extension | None) -> None:
        """Take back a record of an earlier life."""
        record = Record(frame, b"", self.end, offset, size, ext)
        record.key = self._known(record.id)
        self._records.append(record)
        self.next_offset = offset
        self._grow(1, size)

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
        stop = min(stop, self.visible)
        self._make(stop)
        return self._records[max(start - self.base, 0) : stop - self.base]

    def index_at_offset(self, offset: int) -> int:
        """The index of the first record at or after *offset* bytes."""
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
            self._make(index)
            del self._records[:count]
            self.base = index

    def clear_invisible(self) -> None:
        """Forget the records that channels may not read yet."""
        del self.records[self.visible - self.base :]
        self.end = self.visible

    def clear(self) -> None:
        """Forget every record; offsets and indexes go on."""
        del self.records[:]
        self.base = self.visible = self.end


class RedesignedLog(PartitionLog):
    """Internal ids that grow by one; the trace id is the second half of the id."""

    def __init__(self, ids: RedesignedIds, longest: int, *, extended: bool = False) -> None:
        """*longest* is the largest message in bytes; a header takes its room out of that."""
        super().__init__(extended=extended)
        self.ids = ids
        self._longest = longest + RECORD_OVERHEAD - _SIZE_WORD

    def append_all(self, entries: Sequence[NewMessage], timestamp: int) -> list[Record]:
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


class OriginalLog(PartitionLog):
    """Ids of hexadecimal digits, made of the time.

    No client is told the id of what was published, so the records of a batch are made when they
    are read; publishing and reading then cost about the same.
    """

    def __init__(self, ids: OriginalIds) -> None:
        super().__init__()
        self._ids = ids
        self._unread: deque[UnreadBatch] = deque()

    def append(
        self, body: bytes, timestamp: int, trace_id: int = 0, ext: Extension | None = None
    ) -> Record:
        """Store a message after the batches that were not read yet."""
        self._make(self.end)
        return super().append(body, timestamp, trace_id, ext)

    def append_all(self, entries: Sequence[NewMessage], timestamp: int) -> list[Record]:
        """Store several messages, in order; their records are made when a channel reads them."""
        if len(entries) == 1 and not self._unread:
            return [super().append(entries[0][0], timestamp)]
        bodies = [body for body, _, _ in entries]
        ids = self._ids.take_many(timestamp, len(bodies))
        batch = UnreadBatch(bodies, timestamp, ids, self.end, self.next_offset)
        self._unread.append(batch)
        self._grow(len(bodies), batch.size)
        return []

    def _make(self, stop: int) -> None:
        unread = self._unread
        while unread and unread[0].first < stop:
            self._records += unread.popleft().records()

    @property
    def start_offset(self) -> int:
        """The offset of the oldest record that is still there."""
        if self._unread and not self._records:
            return self._unread[0].offset
        return super().start_offset

    def _identify(self, timestamp: int, trace_id: int) -> tuple[bytes, bytes]:  # noqa: ARG002 - the interface has it
        (number,) = self._ids.take_many(timestamp, 1)
        message_id = b"%016x" % number
        return message_id, message_id

    def _known(self, message_id: bytes) -> bytes:
        return message_id
