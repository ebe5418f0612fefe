"""What a stand-in nsqd keeps under ``--data-path``.

Topics and channels are written whenever one comes or goes, messages as the dialect writes them
(``keeping``). The names of the metadata files are those of the real programs, and theirs are
understood: ``nsqd.dat``, and ``nsqd.ID.dat`` of the redesigned one.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import Any

from nsqsmart.embedded.broker.channel import BrokerChannel
from nsqsmart.embedded.nsqd.disk.keeping import OriginalKeeper, RedesignedKeeper, Spilled
from nsqsmart.embedded.nsqd.hosting import Announcer, OriginalTopics, StandaloneTopics
from nsqsmart.embedded.nsqd.options import NsqdOptions
from nsqsmart.embedded.nsqd.shard import Shard, TopicDescription
from nsqsmart.embedded.serving.loop import Loop
from nsqsmart.names import is_valid_name

log = logging.getLogger(__name__)

Keeper = OriginalKeeper | RedesignedKeeper


class Storage(Announcer):
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
        self._sync_every = options.sync_timeout
        self._original = isinstance(topics, OriginalTopics)
        self._topics = topics
        self._announcer = announcer
        self._keepers: dict[tuple[str, int], Keeper] = {}
        self._written = ""
        self._ended = False
        self._lock = threading.Lock()

    # -------------------------------------------------------------------------------- announcing

    def register(self, topic: str, partition: int | None, channel: str | None = None) -> None:
        """The node has it now."""
        self._announcer.register(topic, partition, channel)
        self._save_metadata()

    def unregister(self, topic: str, partition: int | None, channel: str | None = None) -> None:
        """The node has it no longer."""
        self._announcer.unregister(topic, partition, channel)
        key = (topic, partition or 0)
        keeper = self._keepers.get(key)
        if keeper is not None:
            keeper.forget(channel)
            if channel is None:
                del self._keepers[key]
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
        if self._metadata.exists():
            document = json.loads(self._metadata.read_bytes() or b"{}")
            for topic in document.get("topics") or ():
                if is_valid_name(topic.get("name", "")):
                    shard = self._make(topic)
                    self._keeper(shard).load(topic)
                    self._begin(shard)
        self._topics.prepare = self._begin

    def _make(self, topic: dict[str, Any]) -> Shard[Any]:
        if isinstance(self._topics, OriginalTopics):
            return self._topics.get(topic["name"])
        meta = TopicDescription(
            name=topic["name"],
            ordered=bool(topic.get("ordered")),
            extended=bool(topic.get("ext")),
            # The real program has a slip of the pen in this key.
            channel_auto_create=not topic.get("disbale_channel_auto_create"),
        )
        return self._topics.add(meta, int(topic.get("partition", 0)))

    def _keeper(self, shard: Shard[Any]) -> Keeper:
        assert self._folder is not None  # noqa: S101 - asked for only with a folder
        make = OriginalKeeper if self._original else RedesignedKeeper
        keeper: Keeper = make(self._folder, shard)
        self._keepers[shard.meta.name, shard.number] = keeper
        return keeper

    def _begin(self, shard: Shard[Any]) -> None:
        """Write from now on what comes to *shard*."""
        if _is_ephemeral(shard):
            return
        keeper = self._keepers.get((shard.meta.name, shard.number)) or self._keeper(shard)

        def keep(spilled: Spilled) -> None:
            try:
                keeper.keep(spilled)
            except OSError as error:
                log.warning("cannot write messages of %s: %s", shard.meta.name, error)

        shard.partition.keep = keep

    # ------------------------------------------------------------------------------------ saving

    def start(self, loop: Loop) -> None:
        """Note now and then, on *loop*, what is finished."""

        def tick() -> None:
            if not self._ended:
                self.sync()
                loop.call_at(time.monotonic() + self._sync_every, tick)

        if self._metadata is not None:
            loop.call_at(time.monotonic() + self._sync_every, tick)

    def sync(self) -> None:
        """Write what is finished, so that it does not come again after a kill."""
        for keeper in list(self._keepers.values()):
            keeper.sync()
        self._save_metadata()

    def save(self) -> None:
        """Write everything, messages too."""
        self._ended = True
        for keeper in list(self._keepers.values()):
            keeper.save()
        self._save_metadata()
        self.close()

    def close(self) -> None:
        """Let go of the files, as the end of the process does."""
        for keeper in list(self._keepers.values()):
            keeper.close()

    def _save_metadata(self) -> None:
        if self._metadata is None:
            return
        with self._lock:
            local: list[Shard[Any]] = list(self._topics.local())
            kept = [shard for shard in local if not _is_ephemeral(shard)]
            describe = _describe_original if self._original else _describe_redesigned
            topics = [describe(shard) for shard in kept]
            text = json.dumps({"version": "", "topics": topics})
            if text != self._written:
                # A process that is killed now leaves the old file or the new one.
                new = self._metadata.with_suffix(".new")
                new.write_text(text)
                new.replace(self._metadata)
                self._written = text


def _is_ephemeral(shard: Shard[Any]) -> bool:
    return shard.meta.name.endswith("#ephemeral")


def _kept_channels(shard: Shard[Any]) -> list[BrokerChannel]:
    return [each for each in list(shard.partition.channels.values()) if not each.ephemeral]


def _describe_original(shard: Shard[Any]) -> dict[str, Any]:
    channels = [{"name": each.name, "paused": each.paused} for each in _kept_channels(shard)]
    return {"name": shard.meta.name, "paused": shard.partition.paused, "channels": channels}


def _describe_redesigned(shard: Shard[Any]) -> dict[str, Any]:
    meta = shard.meta
    channels = [
        {
            "name": each.name,
            "paused": each.paused,
            "position": each.confirmed.position,
            "finished": sorted(each.confirmed.above),
        }
        for each in _kept_channels(shard)
    ]
    return {
        "name": meta.name,
        "partition": shard.number,
        "ext": meta.extended,
        "ordered": meta.ordered,
        "disbale_channel_auto_create": not meta.channel_auto_create,
        "channels": channels,
    }
