"""What is on disk of one topic of an nsqd, in the manner of each dialect.

An original one writes what memory has no room for, and everything when it ends in order
(decisions#62); a redesigned one writes everything at once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from nsqsmart.embedded.broker.ext import BadHeader, BadTraceId, read_header
from nsqsmart.embedded.broker.records import RECORD_OVERHEAD, Extension, Record
from nsqsmart.embedded.nsqd.disk.diskqueue import DiskQueue, KeptMessage
from nsqsmart.embedded.nsqd.hosting import OriginalShard, RedesignedShard
from nsqsmart.wire.frames import MESSAGE

_HEAD = struct.Struct(">QIHI")
_FRAME_HEAD = struct.Struct(">II")
_FIRST = (1).to_bytes(2)
_MESSAGE_HEAD = 26

Spilled = list[tuple[str, list[Record]]]


class OriginalKeeper:
    """A disk queue of the topic, and one of each channel.

    Of both keepers only :meth:`keep` is called with the lock of the partition.
    """

    def __init__(self, folder: Path, shard: OriginalShard) -> None:
        self._folder = folder
        self._shard = shard
        self._queues: dict[str, DiskQueue] = {}

    def _queue(self, channel: str) -> DiskQueue:
        queue = self._queues.get(channel)
        if queue is None:
            topic = self._shard.meta.name
            name = f"{topic}:{channel}" if channel else topic
            queue = self._queues[channel] = DiskQueue(self._folder, name)
        return queue

    def keep(self, spilled: Spilled) -> None:
        """What memory has no room for."""
        for channel, records in spilled:
            self._queue(channel).write(records)

    def load(self, document: dict[str, Any]) -> None:
        """Everything goes back to the queues it was in; it stays on disk."""
        partition = self._shard.partition
        channels = {each["name"]: each for each in document.get("channels") or ()}
        kept = {name: self._queue(name).load() for name in channels}
        places = self._restore(message for each in kept.values() for message in each)
        for name, description in channels.items():
            channel = partition.create_channel(name, start=0)
            own = {places[each.id]: each.attempts for each in kept[name]}
            channel.leave_out(set(places.values()) - own.keys())
            channel.attempts.update((index, tries) for index, tries in own.items() if tries)
            channel.paused = bool(description.get("paused"))
        if document.get("paused"):
            partition.pause(paused=True)
        self._restore(self._queue("").load())
        end = partition.log.end
        for each in partition.channels.values():
            each.overflow.clear(0)
            each.overflow.add(0, partition.log.visible)
        partition.overflow.add(partition.waiting_from(), end)
        self.save()

    def _restore(self, messages: Iterable[KeptMessage]) -> dict[bytes, int]:
        """Each message once, in the order of ids; their indexes."""
        log = self._shard.partition.log
        different = {each.id: each.message for each in messages}
        places: dict[bytes, int] = {}
        for message_id, message in sorted(different.items()):
            head = _FRAME_HEAD.pack(len(message) + 4, MESSAGE)
            frame = b"".join((head, message[:8], _FIRST, message[10:]))
            places[message_id] = log.end
            size = len(message) - _MESSAGE_HEAD + RECORD_OVERHEAD
            log.restore(frame, log.next_offset, size, None)
        return places

    def sync(self) -> None:
        """Note what is finished, or has gone from the topic to its channels."""
        partition = self._shard.partition
        with self._shard.lock:
            for name, queue in list(self._queues.items()):
                channel = partition.channels.get(name)
                if channel is not None:
                    queue.sync(channel.confirmed.__contains__)
                elif not name:
                    queue.sync(range(partition.waiting_from()).__contains__)

    def save(self) -> None:
        """Everything that was not finished."""
        partition = self._shard.partition
        with self._shard.lock:
            waiting = partition.log.records[partition.waiting_from() - partition.log.base :]
            self._queue("").replace((record, 0) for record in waiting)
            for channel in partition.channels.values():
                if not channel.ephemeral:
                    self._queue(channel.name).replace(channel.unfinished())

    def forget(self, channel: str | None) -> None:
        """No file is left of it."""
        with self._shard.lock:
            for name in list(self._queues) if channel is None else [channel]:
                self._queue(name).empty()
                del self._queues[name]

    def close(self) -> None:
        """Let go of the files."""
        for queue in self._queues.values():
            queue.close()


class RedesignedKeeper:
    """One file with everything; what is finished is said by the metadata."""

    def __init__(self, folder: Path, shard: RedesignedShard) -> None:
        self._path = folder / f"{shard.meta.name}-{shard.number}.messages"
        self._shard = shard
        self._file: BinaryIO | None = None

    def keep(self, spilled: Spilled) -> None:
        """Everything that is published."""
        if self._file is None:
            self._file = self._path.open("ab", buffering=0)
        self._file.write(b"".join(_pack(record) for _, records in spilled for record in records))

    def load(self, document: dict[str, Any]) -> None:
        """All messages, and channels where they were."""
        partition = self._shard.partition
        if self._path.exists():
            end = 0
            for behind, frame, offset, size, ext in _read(self._path.read_bytes()):
                partition.log.restore(frame, offset, size, ext)
                end = behind
            # Half a record is what a process left that was killed while it wrote.
            with self._path.open("r+b") as file:
                file.truncate(end)
        for channel in document.get("channels") or ():
            begin = min(int(channel.get("position", partition.log.end)), partition.log.end)
            made = partition.create_channel(channel["name"], start=begin)
            made.leave_out(channel.get("finished") or ())
            made.paused = bool(channel.get("paused"))

    def sync(self) -> None:
        """The metadata say it."""

    def save(self) -> None:
        """It is all there."""

    def forget(self, channel: str | None) -> None:
        """Messages belong to the topic alone."""
        if channel is None:
            self.close()
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the file."""
        with self._shard.lock:
            if self._file is not None:
                self._file.close()
                self._file = None


def _pack(record: Record) -> bytes:
    ext = b"" if record.ext is None else record.ext.data
    head = _HEAD.pack(record.offset, record.size, len(ext), len(record.frame))
    return b"".join((head, ext, record.frame))


def _read(data: bytes) -> Iterator[tuple[int, bytes, int, int, Extension | None]]:
    """Records, each with the position after it."""
    position = 0
    while position + _HEAD.size <= len(data):
        offset, size, ext_size, frame_size = _HEAD.unpack_from(data, position)
        start = position + _HEAD.size
        middle, position = start + ext_size, start + ext_size + frame_size
        if position > len(data):
            return
        yield position, data[middle:position], offset, size, _extension(data[start:middle])


def _extension(data: bytes) -> Extension | None:
    if not data:
        return None
    try:
        return read_header(data)[0]
    except (BadHeader, BadTraceId):
        return None
