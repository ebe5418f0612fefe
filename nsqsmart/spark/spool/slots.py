"""What attempts at one task leave in the spool: what they have read, and ids in doubt.

Slot k is created exclusively, so of several attempts (a retry, a zombie, a speculative copy)
exactly one owns it. An empty slot ends the log; it takes a place as any other, so nothing can be
appended after it. All attempts then yield the same rows (decisions#55).

In doubt is an id whose FIN may not have arrived: an attempt that died between a slot and its FINs
leaves some. What nsqd delivers again of them is finished, not read. The attempt that finds such
slots writes the ids down before it asks for messages; old ones are forgotten.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator

import pyarrow as pa

from nsqsmart.spark.spool.plan import Task
from nsqsmart.spark.spool.store import FileStore

_ROWS = b"rows"

_SEPARATOR = "\n"


class SlotLog:
    """The slots of one task of one epoch, in *folder*; one user.

    *compression* is None, "lz4" or "zstd".
    """

    def __init__(
        self, store: FileStore, folder: str, schema: pa.Schema, compression: str | None
    ) -> None:
        self._store = store
        self._folder = folder
        self._schema = schema
        self._options = pa.ipc.IpcWriteOptions(compression=compression)
        self._next = 0
        self.sealed = False

    def replay(self) -> Iterator[pa.RecordBatch]:
        """What is there from the first slot on; afterwards ``sealed`` tells whether that is all."""
        self._next, self.sealed = 0, False
        while not self.sealed:
            try:
                data = self._store.get(self._path())
            except FileNotFoundError:
                return
            self._next += 1
            batches = decode(data)
            self.sealed = not batches
            yield from batches

    def append(self, batch: pa.RecordBatch) -> bool:
        """Write the next slot; False if another attempt has written one: replay, then."""
        return self._write([batch], self._schema)

    def seal(self, rows: int) -> bool:
        """End the log, which has so many *rows*; False as :meth:`append`."""
        return self._write([], self._schema.with_metadata({_ROWS: str(rows)}))

    def _write(self, batches: list[pa.RecordBatch], schema: pa.Schema) -> bool:
        data = encode(batches, schema, self._options)
        written = self._store.put_new(self._path(), data)
        self._next += written
        return written

    def _path(self) -> str:
        return f"{self._folder}/{slot_name(self._next)}"


def encode(
    batches: list[pa.RecordBatch], schema: pa.Schema, options: pa.ipc.IpcWriteOptions
) -> memoryview:
    """The bytes of a slot."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=options) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return memoryview(sink.getvalue())


def decode(data: bytes) -> list[pa.RecordBatch]:
    """What a slot holds; nothing if it is the end."""
    with pa.ipc.open_stream(data) as stream:
        return list(stream)


def slot_name(number: int) -> str:
    """The file of one slot."""
    return f"c{number:06d}.arrow"


def sealed_rows(store: FileStore, folder: str) -> int | None:
    """The rows of a log that was ended; None if it was not."""
    names = store.names(folder)
    if not names:
        return None
    with pa.ipc.open_stream(store.get(f"{folder}/{names[-1]}")) as stream:
        found = (stream.schema.metadata or {}).get(_ROWS)
    return None if found is None else int(found)


class DoubtLedger:
    """The doubtful ids of one source, in *folder*, which must be there.

    A file for each time that something was noted: ``SECONDS!PLACE!RANDOM``.
    """

    def __init__(self, store: FileStore, folder: str) -> None:
        self._store = store
        self._folder = folder

    def add(self, task: Task, ids: Iterable[str], now: int) -> None:
        """Note *ids*, which a dead attempt at *task* read; *now* in seconds since 1970."""
        name = f"{now:012d}!{task.place}!{uuid.uuid4().hex}"
        self._store.put(f"{self._folder}/{name}", _SEPARATOR.join(sorted(ids)).encode())

    def ids(self, task: Task) -> set[str]:
        """All that nsqd may deliver again to *task*, whichever task of its place read them."""
        found: set[str] = set()
        for name in self._store.names(self._folder):
            if name.split("!")[1] == task.place:
                try:
                    text = self._store.get(f"{self._folder}/{name}").decode()
                except FileNotFoundError:  # forgotten a moment ago
                    continue
                found.update(filter(None, text.split(_SEPARATOR)))
        return found

    def forget_before(self, moment: int) -> None:
        """Forget what was noted before *moment*: nsqd has given up on it."""
        for name in self._store.names(self._folder):
            if int(name.partition("!")[0]) < moment:
                self._store.discard(f"{self._folder}/{name}")
