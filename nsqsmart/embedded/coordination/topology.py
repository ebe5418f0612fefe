"""What a redesigned cluster consists of: its topics, and the nodes each partition lives on.

Replicas share the records of a partition: an acknowledged message is on every in-sync member at
once, and a node that is restarted has its data.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

from nsqsmart.embedded.broker.ids import RedesignedIds
from nsqsmart.embedded.broker.partition import RedesignedPartition
from nsqsmart.embedded.nsqd.hosting import DEFAULT, RedesignedShard
from nsqsmart.embedded.nsqd.server import Nsqd
from nsqsmart.embedded.nsqd.shard import Shard, TopicDescription
from nsqsmart.embedded.script import Script
from nsqsmart.embedded.serving.loop import Loop

_MAX_PARTITIONS = 255
_NO_NODE = "ErrType:9 ErrCode:1 : No node is available for topic"


class CoordinatorRefused(Exception):
    """An administrative request failed; the text is the server's."""


@dataclass(slots=True, eq=False)
class Slot:
    """A partition and the nodes it lives on.

    ``leader`` is None while there is none. ``said_farewell`` are in-sync members that ended in
    order; ``deadline`` is when those who wait for a silent member give up, None if none waits;
    ``complete`` is set while every in-sync member answers.
    """

    shard: RedesignedShard
    replicas: list[Nsqd]
    in_sync: set[Nsqd]
    leader: Nsqd | None = None
    unready: bool = False
    readonly: bool = False
    moving: bool = False
    resigned: bool = False
    write_failed: bool = False
    said_farewell: set[Nsqd] = field(default_factory=set)
    deadline: float | None = None
    settled: threading.Event = field(default_factory=threading.Event)
    complete: threading.Event = field(default_factory=threading.Event)

    @property
    def has_quorum(self) -> bool:
        """The write rule (protocol#leader-switch)."""
        return len(self.in_sync) > self.shard.meta.replicas // 2

    @property
    def writable(self) -> bool:
        """Whether the leader takes writes, and says so to the lookup daemons."""
        blocked = self.readonly or self.moving or self.resigned or self.write_failed
        return self.leader is not None and self.has_quorum and not blocked


class SeenSlot(NamedTuple):
    """A partition as the lookup daemons see it."""

    number: int
    leader: Nsqd | None
    writable: bool
    channels: list[str]


class Picture(NamedTuple):
    """Topics, partitions and nodes at one moment."""

    topics: dict[str, TopicDescription]
    slots: dict[tuple[str, int], SeenSlot]
    up: list[Nsqd]
    writes_disabled: str

    def of(self, topic: str, partition: int | None = None) -> list[SeenSlot]:
        """The partitions of *topic*, or one of them."""
        meta = self.topics.get(topic)
        numbers = range(0 if meta is None else meta.partitions)
        keys = [(topic, number) for number in numbers if partition in (None, number)]
        return [self.slots[key] for key in keys if key in self.slots]

    def channels(self, topic: str, partition: int | None = None) -> list[str]:
        """The channels of *topic*, of one partition if it is given."""
        return sorted({name for slot in self.of(topic, partition) for name in slot.channels})


class ClusterTopology:
    """Topics, their partitions, and the nodes that are up.

    ``lock`` guards what changes: methods with an underscore, and other code that changes a slot,
    hold it.
    """

    def __init__(self, nsqds: list[Nsqd], script: Script, loop: Loop) -> None:
        self.lock = threading.Lock()
        self.appoint: Callable[[Slot], None] = lambda _: None
        """Gives a new partition its leader; called with the lock."""
        self.nsqds = nsqds
        self.topics: dict[str, TopicDescription] = {}
        self.slots: dict[tuple[str, int], Slot] = {}
        self.up: set[Nsqd] = set()
        """Nodes that the lookup daemons see."""
        self.auto_create = False
        self.default_meta: Callable[[str], TopicDescription] = lambda name: TopicDescription(
            name=name
        )
        self.writes_disabled = ""
        self._script = script
        self._loop = loop
        self._placed = 0

    def alive(self) -> set[Nsqd]:
        """Nodes that answer."""
        return {nsqd for nsqd in self.nsqds if nsqd.listening and not nsqd.node.hung}

    # ----------------------------------------------------------------------------------- asking

    def find(self, nsqd: Nsqd, topic: str, partition: int) -> RedesignedShard | None:
        """The partition if *nsqd* is a replica of it; for -1 the first that it leads."""
        if self.auto_create and topic not in self.topics:
            self.ensure(topic)
        if partition != DEFAULT:
            slot = self.slots.get((topic, partition))
            return slot.shard if slot is not None and nsqd in slot.replicas else None
        for slot in self.of(topic):
            if slot.leader is nsqd:
                return slot.shard
        return None

    def of(self, topic: str) -> list[Slot]:
        """The partitions of *topic*, in order."""
        meta = self.topics.get(topic)
        count = 0 if meta is None else meta.partitions
        slots = (self.slots.get((topic, number)) for number in range(count))
        return [slot for slot in slots if slot is not None]

    def slot(self, topic: str, partition: int) -> Slot:
        """Raises KeyError with the name if there is none."""
        slot = self.slots.get((topic, partition))
        if slot is None:
            raise KeyError(f"partition {partition} of topic {topic!r} does not exist")
        return slot

    def picture(self, topic: str | None = None) -> Picture:
        """How everything is now; of one topic, if it is given."""
        topics = self.topics.copy() if topic is None else {}
        if topic is not None and topic in self.topics:
            topics[topic] = self.topics[topic]
        slots = {
            (name, slot.shard.number): SeenSlot(
                slot.shard.number, slot.leader, slot.writable, list(slot.shard.partition.channels)
            )
            for name in topics
            for slot in self.of(name)
        }
        up = [nsqd for nsqd in self.nsqds if nsqd in self.up]
        return Picture(topics, slots, up, self.writes_disabled)

    def channels(self, topic: str, partition: int | None = None) -> list[str]:
        """The channels of a topic, of one partition if it is given."""
        return self.picture(topic).channels(topic, partition)

    # ----------------------------------------------------------------------------------- topics

    def ensure(self, topic: str) -> None:
        """Make *topic* as a topic is made that has no description."""
        with self.lock:
            if topic not in self.topics:
                self._create(self.default_meta(topic))

    def create_topic(self, meta: TopicDescription) -> None:
        """Make a topic; raises :class:`CoordinatorRefused` (protocol#topic-life)."""
        with self.lock:
            before = self.topics.get(meta.name)
            if before is not None:
                if before != meta:
                    raise CoordinatorRefused("already exist")
                return
            self._create(meta)

    def create_channel(self, topic: str, channel: str) -> None:
        """Make a channel on every partition."""
        for slot in self.of(topic):
            with slot.shard.lock:
                slot.shard.partition.create_channel(channel)

    def expand(self, topic: str, count: int) -> None:
        """Make more partitions; raises :class:`CoordinatorRefused`."""
        with self.lock:
            meta = self.topics[topic]
            if count < meta.partitions:
                raise CoordinatorRefused("the partition number can not be reduced")
            before, self._placed = self._placed, self._first_of(meta)
            try:
                self._create(replace(meta, partitions=count))
            finally:
                self._placed = before
            self._spread(self.topics[topic])

    def update(self, meta: TopicDescription) -> None:
        """Give a topic another description; an extended one keeps headers from now on."""
        with self.lock:
            self._spread(meta)

    def _spread(self, meta: TopicDescription) -> None:
        self.topics[meta.name] = meta
        for slot in self.of(meta.name):
            with slot.shard.lock:
                slot.shard.meta = meta
                slot.shard.partition.extend(extended=meta.extended)

    def _first_of(self, meta: TopicDescription) -> int:
        """Where the partitions of a topic begin, so that new ones go where they would have."""
        slot = self.slots[meta.name, 0]
        return [nsqd for nsqd in self.nsqds if nsqd in self.up].index(slot.replicas[0])

    def _create(self, meta: TopicDescription) -> None:
        if meta.partitions >= _MAX_PARTITIONS:
            raise CoordinatorRefused("max partition allowed exceed")
        nodes = [nsqd for nsqd in self.nsqds if nsqd in self.up]
        spread = meta.multi_part or meta.ordered
        needed = meta.replicas if spread else meta.partitions * meta.replicas
        if len(nodes) < needed:
            raise CoordinatorRefused(_NO_NODE)
        step = 1 if spread else meta.replicas
        for number in range(meta.partitions):
            if (meta.name, number) in self.slots:
                continue
            first = self._placed + number * step
            replicas = [nodes[(first + each) % len(nodes)] for each in range(meta.replicas)]
            slot = Slot(self._make_shard(meta, number), replicas, set(replicas))
            self.slots[meta.name, number] = slot
            self.appoint(slot)
        self._placed += 1
        self.topics[meta.name] = meta

    def _make_shard(self, meta: TopicDescription, number: int) -> RedesignedShard:
        partition = RedesignedPartition(
            RedesignedIds(number, coordinated=True),
            self.nsqds[0].options.limits(),
            Random(),  # noqa: S311 - sampling is no secret
            extended=meta.extended,
        )
        partition.from_oldest = self.auto_create
        partition.ordered_copies = self._script.ordered_copies
        return Shard(meta, number, partition, self._loop)

    def remove_topic(self, topic: str) -> list[Slot]:
        """Forget a topic; its former slots. Raises :class:`CoordinatorRefused`."""
        with self.lock:
            slots = self.of(topic)
            if self.topics.pop(topic, None) is None:
                raise CoordinatorRefused("Key not found")
            for slot in slots:
                del self.slots[topic, slot.shard.number]
            return slots
