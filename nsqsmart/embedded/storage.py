"""What a stand-in nsqd keeps under ``--data-path``.

Topics and channels are written whenever one comes or goes; messages when the program ends in
order, so that a killed one loses them. The names of the metadata files are those of the real
programs, and theirs are understood: ``nsqd.dat``, and ``nsqd.ID.dat`` of the redesigned one.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nsqsmart.embedded.broker.channel import Channel
from nsqsmart.embedded.broker.ext import BadHeader, BadTraceId, read_header
from nsqsmart.embedded.broker.log import Log
from nsqsmart.embedded.broker.partition import OriginalPartition
from nsqsmart.embedded.broker.records import Extension, Record
from nsqsmart.embedded.hosting import Announcer, OriginalTopics, StandaloneTopics
from nsqsmart.embedded.options import NsqdOptions
from nsqsmart.embedded.shard import Shard, TopicMeta
from nsqsmart.names import is_valid_name

_HEAD = struct.Struct(">QIHI")


class Storage:
    """The files of one nsqd; without a data path nothing is kept.

    It stands before the announcer, because what is announced is what is worth writing.
    """

    def __init__(
        self,
        options: NsqdOptions,
        topics: OriginalTopics | StandaloneTopics,
        announcer: Announcer,
    ) -> None:
        self._folder = options.data_path
        name = f"nsqd.{options.node_id}.dat" if options.redesigned else "nsqd.dat"
        self._metadata = None if self._folder is None else self._folder / name
        self._topics = topics
        self._announcer = announcer
        self._lock = threading.Lock()

    # -------------------------------------------------------------------------------- announcing

    def register(self, topic: str, partition: int | None, channel: str | None = None) -> None:
        """The node has it now."""
        self._announcer.register(topic, partition, channel)
        self._save_metadata()

    def unregister(self, topic: str, partition: int | None, channel: str | None = None) -> None:
        """The node has it no longer."""
        self._announcer.unregister(topic, partition, channel)
        self._save_metadata()

    def known_channels(self, topic: str) -> list[str]:
        """What lookup daemons know."""
        return self._announcer.known_channels(topic)

    # ----------------------------------------------------------------------------------- loading

    def load(self) -> None:
        """Bring back what was there; raises OSError for a folder that cannot be used."""
        if self._metadata is None:
            return
        self._metadata.parent.mkdir(parents=True, exist_ok=True)
        if not self._metadata.exists():
            return
        document = json.loads(self._metadata.read_bytes() or b"{}")
        for topic in document.get("topics") or ():
            if is_valid_name(topic.get("name", "")):
                self._load_topic(topic)

    def _load_topic(self, topic: dict[str, Any]) -> None:
        shard = self._make(topic)
        partition = shard.partition
        path = self._messages(shard)
        if path.exists():
            for frame, offset, size, ext in _read(path):
                partition.log.restore(frame, offset, size, ext)
            # Consumed now: a program that is killed must not find them again.
            path.unlink()
        for channel in topic.get("channels") or ():
            begin = min(int(channel.get("position", partition.log.end)), partition.log.end)
            made = partition.create_channel(channel["name"], start=begin)
            made.leave_out(channel.get("finished") or ())
            made.paused = bool(channel.get("paused"))
        if isinstance(partition, OriginalPartition) and topic.get("paused"):
            partition.pause(paused=True)

    def _make(self, topic: dict[str, Any]) -> Shard[Any]:
        if isinstance(self._topics, OriginalTopics):
            return self._topics.get(topic["name"])
        meta = TopicMeta(
            name=topic["name"],
            ordered=bool(topic.get("ordered")),
            extended=bool(topic.get("ext")),
            # The real program has a slip of the pen in this key.
            channel_auto_create=not topic.get("disbale_channel_auto_create"),
        )
        return self._topics.add(meta, int(topic.get("partition", 0)))

    # ------------------------------------------------------------------------------------ saving

    def save(self) -> None:
        """Write everything, messages too."""
        if self._metadata is None:
            return
        for shard in self._kept():
            if shard.partition.log.records:
                _write(self._messages(shard), shard.partition.log.records)
        self._save_metadata()

    def _save_metadata(self) -> None:
        if self._metadata is None:
            return
        with self._lock:
            topics = [_describe(shard) for shard in self._kept()]
            self._metadata.write_text(json.dumps({"version": "", "topics": topics}))

    def _kept(self) -> list[Shard[Any]]:
        local: list[Shard[Any]] = list(self._topics.local())
        return [shard for shard in local if not shard.meta.name.endswith("#ephemeral")]

    def _messages(self, shard: Shard[Any]) -> Path:
        assert self._folder is not None  # noqa: S101 - asked for only with a folder
        return self._folder / f"{shard.meta.name}-{shard.number}.messages"


def _describe(shard: Shard[Any]) -> dict[str, Any]:
    meta, log = shard.meta, shard.partition.log
    channels = list(shard.partition.channels.values())
    return {
        "name": meta.name,
        "partition": shard.number,
        "ext": meta.extended,
        "ordered": meta.ordered,
        "disbale_channel_auto_create": not meta.channel_auto_create,
        "paused": getattr(shard.partition, "paused", False),
        "channels": [_describe_channel(each, log) for each in channels if not each.ephemeral],
    }


def _describe_channel(channel: Channel, log: Log) -> dict[str, Any]:
    """Its position counts from the oldest record, which will be the first one of a new log."""
    position = max(channel.confirmed.position - log.base, 0)
    finished = sorted(index - log.base for index in list(channel.confirmed.above))
    return {
        "name": channel.name,
        "paused": channel.paused,
        "position": position,
        "finished": finished,
    }


def _write(path: Path, records: list[Record]) -> None:
    with path.open("wb") as file:
        for record in records:
            ext = b"" if record.ext is None else record.ext.data
            head = _HEAD.pack(record.offset, record.size, len(ext), len(record.frame))
            file.write(b"".join((head, ext, record.frame)))


def _read(path: Path) -> Iterator[tuple[bytes, int, int, Extension | None]]:
    data = path.read_bytes()
    position = 0
    while position + _HEAD.size <= len(data):
        offset, size, ext_size, frame_size = _HEAD.unpack_from(data, position)
        start = position + _HEAD.size
        middle, position = start + ext_size, start + ext_size + frame_size
        yield data[middle:position], offset, size, _extension(data[start:middle])


def _extension(data: bytes) -> Extension | None:
    if not data:
        return None
    try:
        return read_header(data)[0]
    except (BadHeader, BadTraceId):
        return None
