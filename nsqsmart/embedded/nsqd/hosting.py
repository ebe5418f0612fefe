"""Which topics a node has."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import Any

from nsqsmart.embedded.broker.channel import BrokerLimits
from nsqsmart.embedded.broker.consumer import FrameSink
from nsqsmart.embedded.broker.ids import RedesignedIds
from nsqsmart.embedded.broker.original_partition import OriginalPartition
from nsqsmart.embedded.broker.partition import RedesignedPartition
from nsqsmart.embedded.nsqd.shard import Shard, TopicDescription
from nsqsmart.embedded.serving.loop import Loop
from nsqsmart.names import MAX_PARTITION

DEFAULT = -1
"""The partition of a command that names none."""

OriginalShard = Shard[OriginalPartition]
RedesignedShard = Shard[RedesignedPartition]


def publish_deferred(shard: OriginalShard, body: bytes, delay: float) -> list[FrameSink]:
    """Store a message that is delivered *delay* seconds from now; the sinks to flush."""
    with shard.lock:
        now = time.monotonic()
        _, woken = shard.partition.publish_deferred(body, time.time_ns(), now, delay)
    shard.rearm()
    return woken


class Announcer:
    """What tells the lookup daemons what a node has; this one has no daemon to tell."""

    def register(self, topic: str, partition: int | None, channel: str | None = None) -> None:
        """The node has it now."""

    def unregister(self, topic: str, partition: int | None, channel: str | None = None) -> None:
        """The node has it no longer."""

    def known_channels(self, topic: str) -> list[str]:  # noqa: ARG002 - for others
        """The channels that other nodes have of *topic*."""
        return []


class RedesignedHosting(ABC):
    """The partitions of a redesigned node, alone or in a cluster."""

    coordinated = False

    @abstractmethod
    def find(self, topic: str, partition: int) -> RedesignedShard | None:
        """The partition, or the default one for -1; None if it is not here."""

    @abstractmethod
    def local(self) -> list[RedesignedShard]:
        """Everything that is here."""

    def in_sync(self, topic: str, partition: int) -> list[str]:  # noqa: ARG002 - for others
        """The ids of the nodes that have all of the partition; [] where there are no replicas."""
        return []

    def create(self, topic: str, partition: int, *, extended: bool) -> bool:  # noqa: ARG002 - as above
        """INTERNAL_CREATE_TOPIC; whether it worked, which it does not in a cluster."""
        return False

    def channel_changed(self, shard: RedesignedShard, channel: str, *, there: bool) -> None:  # noqa: B027 - as above
        """A channel was made or deleted; in a cluster lookups ask the partition itself."""


class OriginalTopics:
    """The topics of an original nsqd: made when they are first named."""

    def __init__(self, node: object, limits: BrokerLimits, loop: Loop, node_id: int = 0) -> None:
        self.announcer: Announcer = Announcer()
        self.prepare: Callable[[Shard[Any]], None] = lambda _: None
        """Called with every new partition before any client knows of it."""
        self._node = node
        self._node_id = node_id
        self._limits = limits
        self._loop = loop
        self._topics: dict[str, OriginalShard] = {}
        self._lock = threading.Lock()

    def find(self, topic: str) -> OriginalShard | None:
        """The topic, None if it is not here."""
        return self._topics.get(topic)

    def local(self) -> list[OriginalShard]:
        """Every topic."""
        return list(self._topics.values())

    def get(self, topic: str) -> OriginalShard:
        """The topic, made if need be, with the channels that the lookup daemons know of it."""
        shard = self._topics.get(topic)
        if shard is not None:
            return shard
        # Ask before any client can see the topic: its first channel takes the whole backlog.
        known = self.announcer.known_channels(topic)
        with self._lock:
            shard = self._topics.get(topic)
            if shard is not None:
                return shard
            partition = OriginalPartition(self._node_id, self._limits, Random())  # noqa: S311
            shard = Shard(TopicDescription(name=topic), 0, partition, self._loop)
            shard.leader = self._node
            partition.ephemeral = topic.endswith("#ephemeral")
            self.prepare(shard)
            names = [name for name in known if not name.endswith("#ephemeral")]
            for name in names:
                partition.create_channel(name)
            self._topics[topic] = shard
        self.announcer.register(topic, None)
        for name in names:
            self.announcer.register(topic, None, name)
        return shard

    def delete(self, topic: str) -> bool:
        """Forget the topic and end the connections of its consumers; whether it was there."""
        with self._lock:
            shard = self._topics.pop(topic, None)
        if shard is None:
            return False
        for name in list(shard.partition.channels):
            self.delete_channel(shard, name)
        self.announcer.unregister(topic, None)
        return True

    def create_channel(self, shard: OriginalShard, name: str) -> None:
        """Make a channel, unless it is there."""
        with shard.lock:
            new = name not in shard.partition.channels
            shard.partition.create_channel(name)
        if new:
            self.announcer.register(shard.meta.name, None, name)

    def delete_channel(self, shard: OriginalShard, name: str) -> bool:
        """Forget a channel and end its connections; whether it was there."""
        with shard.lock:
            there = name in shard.partition.channels
            gone = shard.partition.delete_channel(name)
        if there:
            self.announcer.unregister(shard.meta.name, None, name)
        for consumer in gone:
            consumer.sink.end()
        if shard.meta.name.endswith("#ephemeral") and not shard.partition.channels:
            self.delete(shard.meta.name)
        return there


class StandaloneTopics(RedesignedHosting):
    """The partitions of a redesigned nsqd without a coordinator (protocol#create-topic)."""

    def __init__(self, node: object, limits: BrokerLimits, loop: Loop) -> None:
        self.announcer: Announcer = Announcer()
        self.prepare: Callable[[Shard[Any]], None] = lambda _: None
        """Called with every new partition before any client knows of it."""
        self._node = node
        self._limits = limits
        self._loop = loop
        self._shards: dict[tuple[str, int], RedesignedShard] = {}
        self._first: dict[str, RedesignedShard] = {}
        self._lock = threading.Lock()

    def find(self, topic: str, partition: int) -> RedesignedShard | None:
        """The partition, or any of the topic for -1."""
        if partition == DEFAULT:
            return self._first.get(topic)
        return self._shards.get((topic, partition))

    def local(self) -> list[RedesignedShard]:
        """Every partition."""
        return list(self._shards.values())

    def create(self, topic: str, partition: int, *, extended: bool) -> bool:
        """A partition; an existing one stays as it is."""
        if partition > MAX_PARTITION:
            return False
        self.add(TopicDescription(name=topic, extended=extended), partition)
        return True

    def add(self, meta: TopicDescription, number: int) -> RedesignedShard:
        """A partition of any kind, as a metadata file may name it."""
        with self._lock:
            shard = self._shards.get((meta.name, number))
            if shard is not None:
                return shard
            ids = RedesignedIds(number, coordinated=False)
            partition = RedesignedPartition(
                ids,
                self._limits,
                Random(),  # noqa: S311 - sampling is no secret
                extended=meta.extended,
            )
            shard = Shard(meta, number, partition, self._loop)
            shard.leader = self._node
            self.prepare(shard)
            self._shards[meta.name, number] = shard
            self._first.setdefault(meta.name, shard)
        self.announcer.register(meta.name, number)
        return shard

    def channel_changed(self, shard: RedesignedShard, channel: str, *, there: bool) -> None:
        """Tell the lookup daemons."""
        tell: Any = self.announcer.register if there else self.announcer.unregister
        tell(shard.meta.name, shard.number, channel)
