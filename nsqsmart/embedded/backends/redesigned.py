"""A coordinated cluster of redesigned nsqds, and which of its lookup daemons leads."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from nsqsmart.embedded.coordination.coordinator import ClusterHosting, Coordinator
from nsqsmart.embedded.coordination.topology import CoordinatorRefused
from nsqsmart.embedded.nsqd.http.redesigned import redesigned_nsqd_router
from nsqsmart.embedded.nsqd.server import Nsqd
from nsqsmart.embedded.nsqd.shard import Shard, TopicDescription
from nsqsmart.embedded.nsqd.tcp.session import redesigned_commands
from nsqsmart.embedded.nsqlookupd.answers import LookupAnswers
from nsqsmart.embedded.nsqlookupd.redesigned import redesigned_router
from nsqsmart.embedded.nsqlookupd.seats import Seats
from nsqsmart.embedded.nsqlookupd.server import Nsqlookupd
from nsqsmart.embedded.script import Script
from nsqsmart.embedded.serving.server import Scope


class RedesignedBackend:
    """A coordinated cluster."""

    def __init__(
        self, nsqds: list[Nsqd], lookupds: list[Nsqlookupd], scope: Scope, script: Script
    ) -> None:
        self._lookupds = lookupds
        self._script = script
        self._seats = Seats(lookupds, script.election_delay)
        self._views: dict[Nsqlookupd, LookupAnswers] = {}
        self._coordinator = Coordinator(nsqds, script, scope.loop)
        self._topology = self._coordinator.topology

    def create_on_use(self, partitions: int, replicas: int) -> None:
        """Topics are made when they are first named."""
        count = len(self._topology.nsqds)

        def describe(name: str) -> TopicDescription:
            multi = partitions * replicas > count
            return TopicDescription(
                name=name, partitions=partitions, replicas=replicas, multi_part=multi
            )

        self._topology.default_meta = describe
        self._topology.auto_create = True

    def start(self) -> None:
        """Every server listens."""
        for lookupd in self._lookupds:
            view = LookupAnswers(self._coordinator, self._seats, lookupd)
            self._views[lookupd] = view
            lookupd.offer(redesigned_router(lookupd.registrations, view))
            lookupd.listen()
        for nsqd in self._topology.nsqds:
            hosting = ClusterHosting(nsqd, self._topology)
            router = redesigned_nsqd_router(nsqd.node, hosting)
            nsqd.offer(redesigned_commands(hosting), router)
            nsqd.listen()
            self._coordinator.liveness.joined(nsqd)

    def create_topic(self, meta: TopicDescription, *, multi_part: bool | None) -> None:
        """Raises ValueError with the server's text."""
        if multi_part is None:
            nodes = len(self._topology.up)
            multi_part = not meta.ordered and meta.partitions * meta.replicas > nodes
        try:
            self._topology.create_topic(replace(meta, multi_part=multi_part))
        except CoordinatorRefused as refused:
            raise ValueError(f"topic {meta.name!r}: {refused}") from refused

    def create_channel(self, topic: str, channel: str) -> None:
        """On every partition."""
        if topic not in self._topology.topics:
            raise LookupError(f"topic {topic!r} does not exist")
        self._topology.create_channel(topic, channel)

    def leader(self, topic: str, partition: int) -> Nsqd:
        """Raises LookupError while there is none."""
        slot = self._topology.slot(topic, partition)
        leader = slot.leader
        # A dead one is its slot's leader until its session has expired.
        if leader is None or slot.shard.leader is not leader.node:
            raise LookupError(f"partition {partition} of topic {topic!r} has no leader")
        return leader

    def move_leader(self, topic: str, partition: int, to: Nsqd | None, timeout: float) -> Nsqd:
        """Raises TimeoutError if it takes longer than *timeout*; 0 does not wait."""
        done = self._coordinator.leadership.begin_move(topic, partition, to)
        if timeout and not done.wait(timeout):
            raise TimeoutError(f"the leader of {topic!r}/{partition} did not move")
        return self.leader(topic, partition)

    def set_writable(self, topic: str, partition: int, *, writable: bool) -> None:
        """Take writes or refuse them."""
        self._coordinator.leadership.set_writable(topic, partition, writable=writable)

    def kill(self, nsqd: Nsqd) -> None:
        """Followers lead once its session has expired."""
        nsqd.stop(abruptly=True)
        self._coordinator.liveness.lost(nsqd)

    def terminate(self, nsqd: Nsqd) -> None:
        """It refuses publishes, hands over, and goes a moment later."""
        delay = self._script.exit_delay
        self._coordinator.leadership.close_for_writing(nsqd)
        nsqd.stop_listening()
        time.sleep(delay / 10)
        nsqd.node.exiting = True
        self._coordinator.liveness.leaving(nsqd)
        time.sleep(delay)
        nsqd.stop(abruptly=False)

    def hang(self, nsqd: Nsqd) -> None:
        """Nothing is answered."""
        nsqd.node.hung = True
        nsqd.node.gate.clear()
        self._coordinator.liveness.hung(nsqd)

    def wake(self, nsqd: Nsqd) -> None:
        """It learns what it missed, and then answers."""
        nsqd.node.hung = False
        self._coordinator.liveness.woken(nsqd)
        nsqd.node.gate.set()

    def restart(self, nsqd: Nsqd) -> None:
        """With the partitions it had."""
        nsqd.node.exiting = nsqd.node.hung = False
        nsqd.node.gate.set()
        nsqd.listen()
        self._coordinator.liveness.joined(nsqd)

    def lookupd_changed(self, lookupd: Nsqlookupd) -> None:
        """Choose another leading lookupd; each of them answers from the one topology."""
        self._seats.changed(lookupd)

    def freeze(self, lookupd: Nsqlookupd, *, frozen: bool) -> None:
        """It learns nothing new, or again."""
        with self._topology.lock:
            picture = self._topology.picture() if frozen else None
        self._views[lookupd].frozen = picture

    def shards(self, topic: str) -> Iterable[tuple[str, Shard[Any]]]:
        """The partitions, in order."""
        for slot in self._topology.of(topic):
            yield slot.leader.name if slot.leader else "", slot.shard
