"""Who leads what in a redesigned cluster.

One object plays etcd, the leading nsqlookupd and the coordinators of the nsqds. Replicas share the
records of a partition: an acknowledged message is on every in-sync member at once, and a node that
is restarted has its data. What a leader switch loses is what a real one loses: everything about
the channels but their confirm positions (cluster 8).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from nsqsmart.embedded.broker.consumer import Consumer
from nsqsmart.embedded.broker.ids import RedesignedIds
from nsqsmart.embedded.broker.partition import redesigned_partition
from nsqsmart.embedded.hosting import DEFAULT, RedesignedShard
from nsqsmart.embedded.node import Scope
from nsqsmart.embedded.nsqd import Nsqd
from nsqsmart.embedded.refusals import not_leader, not_writable
from nsqsmart.embedded.shard import Shard, TopicMeta

_MAX_PARTITIONS = 255
_NO_NODE = "ErrType:9 ErrCode:1 : No node is available for topic"


class CoordinatorRefused(Exception):
    """An administrative request failed; the text is the server's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """How long the cluster takes, in seconds; real ones take about 22, 0.5 and 12."""

    election: float = 0.05
    move: float = 0.05
    replication: float = 0.2


@dataclass(slots=True, eq=False)
class Slot:
    """A partition and the nodes it lives on.

    ``leader`` is None while there is none; ``registered`` says whether lookups for writing name
    it.
    """

    shard: RedesignedShard
    replicas: list[Nsqd]
    in_sync: set[Nsqd]
    leader: Nsqd | None = None
    readonly: bool = False
    moving: bool = False
    resigned: bool = False
    write_failed: bool = False
    settled: threading.Event = field(default_factory=threading.Event)

    @property
    def has_quorum(self) -> bool:
        """The write rule (cluster 5.1)."""
        return len(self.in_sync) > self.shard.meta.replicas // 2

    @property
    def writable(self) -> bool:
        """Whether the leader takes writes, and says so to the lookup daemons."""
        blocked = self.readonly or self.moving or self.resigned or self.write_failed
        return self.leader is not None and self.has_quorum and not blocked


class Coordinator:
    """Topics, their partitions and leaders.

    Public methods take the lock; those with an underscore are called with it.
    """

    def __init__(self, scope: Scope, delays: Delays) -> None:
        self.delays = delays
        self.auto_create = False
        self.default_meta: Callable[[str], TopicMeta] = lambda name: TopicMeta(name=name)
        self.writes_disabled = ""
        self.nsqds: list[Nsqd] = []
        self.topics: dict[str, TopicMeta] = {}
        self.slots: dict[tuple[str, int], Slot] = {}
        self.up: set[Nsqd] = set()
        """Nodes that the lookup daemons see."""
        self._scope = scope
        self._session: dict[Nsqd, int] = {}
        self._farewells: dict[Nsqd, list[Consumer]] = {}
        self._placed = 0
        self._lock = threading.Lock()

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

    def channels(self, topic: str, partition: int | None = None) -> list[str]:
        """The channels of a topic, of one partition if it is given."""
        return sorted(
            {
                name
                for slot in self.of(topic)
                if partition in (None, slot.shard.number)
                for name in list(slot.shard.partition.channels)
            }
        )

    # ----------------------------------------------------------------------------------- topics

    def ensure(self, topic: str) -> None:
        """Make *topic* as a topic is made that nobody described."""
        with self._lock:
            if topic not in self.topics:
                self._create(self.default_meta(topic))

    def create_topic(self, meta: TopicMeta) -> None:
        """Make a topic; raises :class:`CoordinatorRefused` (cluster 2)."""
        with self._lock:
            before = self.topics.get(meta.name)
            if before is not None:
                if before != meta:
                    raise CoordinatorRefused("already exist")
                return
            self._create(meta)

    def _create(self, meta: TopicMeta) -> None:
        if meta.partitions >= _MAX_PARTITIONS:
            raise CoordinatorRefused("max partition allowed exceed")
        nodes = [nsqd for nsqd in self.nsqds if nsqd in self.up]
        spread = meta.multi_part or meta.ordered
        needed = meta.replicas if spread else meta.partitions * meta.replicas
        if len(nodes) < needed:
            raise CoordinatorRefused(_NO_NODE)
        step = 1 if spread else meta.replicas
        for number in range(meta.partitions):
            first = self._placed + number * step
            replicas = [nodes[(first + each) % len(nodes)] for each in range(meta.replicas)]
            slot = Slot(self._make_shard(meta, number), replicas, set(replicas), replicas[0])
            slot.shard.leader = replicas[0].node
            self.slots[meta.name, number] = slot
        self._placed += 1
        self.topics[meta.name] = meta

    def _make_shard(self, meta: TopicMeta, number: int) -> RedesignedShard:
        partition = redesigned_partition(
            RedesignedIds(number, coordinated=True),
            self.nsqds[0].options.limits(),
            Random(),  # noqa: S311 - sampling is no secret
            extended=meta.extended,
        )
        partition.from_oldest = self.auto_create
        return Shard(meta, number, partition, self._scope.loop)

    def delete_topic(self, topic: str) -> None:
        """Forget a topic; its consumers are disconnected without a frame."""
        with self._lock:
            slots = self.of(topic)
            if self.topics.pop(topic, None) is None:
                raise CoordinatorRefused("Key not found")
            for slot in slots:
                del self.slots[topic, slot.shard.number]
                self._dismiss(slot, None)

    # ----------------------------------------------------------------------------------- leaders

    def _lead(self, slot: Slot, nsqd: Nsqd | None) -> None:
        """Let *nsqd* lead from now on; consumers of the old leader lose their connection."""
        self._dismiss(slot, nsqd)
        slot.leader = nsqd
        slot.resigned = slot.write_failed = False
        self._refresh(slot)

    def _dismiss(self, slot: Slot, new: Nsqd | None) -> None:
        old, shard = slot.leader, slot.shard
        with shard.lock:
            shard.leader = None if new is None else new.node
            shard.asleep = new is None
            gone = shard.partition.fail_over() if new is not None else shard.partition.dismiss()
        if old is not None and old.node.hung:
            # Its clients notice when it wakes.
            self._farewells.setdefault(old, []).extend(gone)
            return
        for consumer in gone:
            consumer.sink.end()

    def _refresh(self, slot: Slot) -> None:
        """Bring what the shard refuses in line with the state of its replicas."""
        shard = slot.shard
        missing = slot.in_sync - self.alive()
        ready = slot.leader is not None and not missing
        if slot.resigned:
            shard.refusal = not_leader
        else:
            shard.refusal = None if slot.writable else not_writable
        waiting = slot.leader is not None and bool(missing) and slot.writable
        shard.hold = (lambda: self._replicate(slot)) if waiting else None
        # An ordered FIN needs the quorum as a write does (protocol 5.3).
        shard.confirm_refused = not slot.has_quorum or not ready
        if not waiting:
            slot.settled.set()

    def _replicate(self, slot: Slot) -> None:
        """A write that waits for a replica which does not answer (cluster 6.1)."""
        with self._lock:
            if slot.shard.hold is None:
                return
            slot.settled.clear()
        if slot.settled.wait(self.delays.replication):
            return
        with self._lock:
            if slot.in_sync <= self.alive():
                return
            answering = slot.in_sync & self.alive()
            if len(answering) > slot.shard.meta.replicas // 2:
                slot.write_failed = True
            else:
                # Without a majority the leader gives up (cluster 6.2).
                self._resign(slot)
            self._refresh(slot)

    def _resign(self, slot: Slot) -> None:
        slot.resigned = True
        with slot.shard.lock:
            gone = slot.shard.partition.dismiss()
            slot.shard.leader = None
        for consumer in gone:
            consumer.sink.end()

    def alive(self) -> set[Nsqd]:
        """Nodes that answer."""
        return {nsqd for nsqd in self.nsqds if nsqd.listening and not nsqd.node.hung}

    # -------------------------------------------------------------------- nodes come and go

    def joined(self, nsqd: Nsqd) -> None:
        """A node is up, for the first time or again."""
        with self._lock:
            self._session[nsqd] = self._session.get(nsqd, 0) + 1
            self.up.add(nsqd)
            for slot in self.slots.values():
                if nsqd in slot.replicas:
                    self._rejoin(slot, nsqd)

    def _rejoin(self, slot: Slot, nsqd: Nsqd) -> None:
        slot.in_sync.add(nsqd)
        if slot.leader is None or slot.resigned:
            self._lead(slot, slot.leader if slot.leader in self.alive() else nsqd)
        elif slot.leader is nsqd and slot.shard.leader is not nsqd.node:
            self._lead(slot, nsqd)
        else:
            slot.write_failed = False
            self._refresh(slot)

    def lost(self, nsqd: Nsqd) -> None:
        """A node is gone without a word; others lead once its session has expired."""
        with self._lock:
            self.up.discard(nsqd)
            session = self._session.get(nsqd, 0)
            for slot in self.slots.values():
                if slot.leader is nsqd:
                    self._dismiss(slot, None)
                if nsqd in slot.in_sync:
                    self._refresh(slot)
        self._later(self.delays.election, lambda: self._expire(nsqd, session))

    def hung(self, nsqd: Nsqd) -> None:
        """A node answers nothing; the lookup daemons notice before its session expires."""
        with self._lock:
            session = self._session.get(nsqd, 0)
            for slot in self.slots.values():
                if slot.leader is nsqd:
                    slot.shard.asleep = True
                elif nsqd in slot.in_sync:
                    self._refresh(slot)
        self._later(self.delays.election / 2, lambda: self._unseen(nsqd, session))
        self._later(self.delays.election, lambda: self._expire(nsqd, session))

    def woken(self, nsqd: Nsqd) -> None:
        """A hung node goes on; what it lost meanwhile it learns now."""
        with self._lock:
            gone = self._farewells.pop(nsqd, [])
        for consumer in gone:
            consumer.sink.end()
        self.joined(nsqd)
        for slot in list(self.slots.values()):
            if slot.leader is nsqd and slot.shard.asleep:
                slot.shard.wake()

    def leaving(self, nsqd: Nsqd) -> None:
        """A node ends in order: it hands over what it leads."""
        with self._lock:
            self._session[nsqd] = self._session.get(nsqd, 0) + 1
            self.up.discard(nsqd)
            self._hand_over(nsqd)

    def _unseen(self, nsqd: Nsqd, session: int) -> None:
        with self._lock:
            if self._session.get(nsqd, 0) == session and nsqd.node.hung:
                self.up.discard(nsqd)

    def _expire(self, nsqd: Nsqd, session: int) -> None:
        """The node's session has ended: the in-sync sets shrink, followers lead."""
        with self._lock:
            if self._session.get(nsqd, 0) == session:
                self.up.discard(nsqd)
                self._hand_over(nsqd)

    def _hand_over(self, nsqd: Nsqd) -> None:
        for slot in self.slots.values():
            followers = slot.in_sync - {nsqd}
            if nsqd in slot.in_sync and (followers or slot.leader is not nsqd):
                slot.in_sync = followers
                slot.write_failed = False
            if slot.leader is nsqd:
                candidates = [each for each in slot.replicas if each in followers & self.alive()]
                self._lead(slot, candidates[0] if candidates else None)
                if not candidates:
                    slot.in_sync.add(nsqd)
            else:
                self._refresh(slot)

    # ------------------------------------------------------------------------------------- moves

    def set_writable(self, topic: str, partition: int, *, writable: bool) -> None:
        """Let the leader refuse writes, or take them again; consuming goes on."""
        with self._lock:
            slot = self.slot(topic, partition)
            slot.readonly = not writable
            self._refresh(slot)

    def begin_move(self, topic: str, partition: int, to: Nsqd | None = None) -> threading.Event:
        """Move the leader; the event is set when the new one takes writes.

        Writes are refused for ``delays.move`` seconds; then consumers lose their connection, and
        the new leader is in lookups for reading, a little later in those for writing.
        """
        done = threading.Event()
        with self._lock:
            slot = self.slot(topic, partition)
            target = self._target(slot) if to is None else to
            if slot.moving or target is slot.leader:
                done.set()
                return done
            slot.moving = True
            self._refresh(slot)

        def settle() -> None:
            with self._lock:
                slot.moving = False
                self._refresh(slot)
            done.set()

        def switch() -> None:
            with self._lock:
                if target not in slot.replicas:
                    slot.replicas = [target, *slot.replicas[: slot.shard.meta.replicas - 1]]
                    slot.in_sync = (slot.in_sync & set(slot.replicas)) | {target}
                self._lead(slot, target)
            self._later(self.delays.move / 10, settle)

        self._later(self.delays.move, switch)
        return done

    def _target(self, slot: Slot) -> Nsqd:
        alive = self.alive()
        others = [each for each in slot.replicas if each in slot.in_sync & alive]
        others += [each for each in self.nsqds if each in alive and each not in slot.replicas]
        for nsqd in others:
            if nsqd is not slot.leader:
                return nsqd
        raise ValueError("no other node could lead this partition")

    def _later(self, delay: float, action: Callable[[], Any]) -> None:
        self._scope.loop.call_at(time.monotonic() + delay, action)


class ClusterHosting:
    """The partitions of one node of a cluster."""

    coordinated = True

    def __init__(self, nsqd: Nsqd, coordinator: Coordinator) -> None:
        self._nsqd = nsqd
        self._coordinator = coordinator

    def find(self, topic: str, partition: int) -> RedesignedShard | None:
        """The partition if the node is a replica; for -1 the first that it leads."""
        return self._coordinator.find(self._nsqd, topic, partition)

    def local(self) -> list[RedesignedShard]:
        """The partitions that the node is a replica of."""
        slots = list(self._coordinator.slots.values())
        return [slot.shard for slot in slots if self._nsqd in slot.replicas]

    def create(self, topic: str, partition: int, *, extended: bool) -> bool:  # noqa: ARG002 - the interface has it
        """Not here."""
        return False

    def channel_changed(self, shard: RedesignedShard, channel: str, *, there: bool) -> None:
        """Lookups ask the partition itself."""

    def may_create_channel(self, shard: RedesignedShard) -> bool:
        """Unless the topic was made so that channels must be registered."""
        return shard.meta.channel_auto_create
