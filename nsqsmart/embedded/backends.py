"""What a cluster does differently in the two dialects."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from nsqsmart.embedded.backend import TopicWish
from nsqsmart.embedded.broker.consumer import Consumer
from nsqsmart.embedded.coordinator import (
    ClusterHosting,
    Coordinator,
    CoordinatorRefused,
    Delays,
)
from nsqsmart.embedded.hosting import OriginalTopics
from nsqsmart.embedded.interfaces import original_offer, redesigned_offer
from nsqsmart.embedded.lookup_answers import LookupAnswers
from nsqsmart.embedded.lookupd_original import original_router
from nsqsmart.embedded.lookupd_redesigned import redesigned_router
from nsqsmart.embedded.node import Scope
from nsqsmart.embedded.nsqd import Nsqd
from nsqsmart.embedded.nsqlookupd import Nsqlookupd
from nsqsmart.embedded.registrations import NO_PARTITION, Key, Peer
from nsqsmart.embedded.shard import Shard, TopicMeta

_RPC_PORT_OFFSET = 100


class LocalAnnouncer:
    """Tells the lookup daemons of this process what an original nsqd has."""

    def __init__(self, nsqd: Nsqd, lookupds: list[Nsqlookupd], topics: OriginalTopics) -> None:
        self._nsqd = nsqd
        self._lookupds = lookupds
        self._topics = topics
        self._peers: dict[Nsqlookupd, Peer] = {}

    def register(self, topic: str, partition: int | None, channel: str | None = None) -> None:  # noqa: ARG002 - the interface has it
        """Tell every daemon that listens."""
        for lookupd, peer in list(self._peers.items()):
            lookupd.registrations.register(peer, Key(topic, NO_PARTITION), channel)

    def unregister(self, topic: str, partition: int | None, channel: str | None = None) -> None:  # noqa: ARG002 - the interface has it
        """Tell every daemon that listens."""
        for lookupd, peer in list(self._peers.items()):
            lookupd.registrations.unregister(peer, Key(topic, NO_PARTITION), channel)

    def known_channels(self, topic: str) -> list[str]:
        """What any daemon knows."""
        known = [lookupd.registrations.channels(topic) for lookupd in self._peers]
        return sorted({name for names in known for name in names})

    def connect(self) -> None:
        """Introduce the node to every daemon that listens, and tell it everything."""
        node = self._nsqd.node
        info = {
            "broadcast_address": node.options.broadcast_address,
            "hostname": node.hostname,
            "tcp_port": node.tcp_port,
            "http_port": node.http_port,
            "version": node.options.version,
        }
        for number, lookupd in enumerate(self._lookupds):
            if not lookupd.listening or lookupd in self._peers:
                continue
            # Nobody dials within one process; the port is as arbitrary as a real one.
            peer = Peer(f"127.0.0.1:{1024 + (node.tcp_port + number) % 60000}", info)
            # A peer in this process never goes silent.
            lookupd.registrations.join(peer)
            peer.seen_at = float("inf")
            self._peers[lookupd] = peer
            for shard in self._topics.local():
                lookupd.registrations.register(peer, Key(shard.meta.name, NO_PARTITION), None)
                for channel in list(shard.partition.channels):
                    key = Key(shard.meta.name, NO_PARTITION)
                    lookupd.registrations.register(peer, key, channel)

    def disconnect(self, lookupd: Nsqlookupd | None = None) -> None:
        """Leave one daemon, or all."""
        for each in [lookupd] if lookupd is not None else list(self._peers):
            peer = self._peers.pop(each, None)
            if peer is not None:
                each.registrations.leave(peer)


def _end(consumers: Iterable[Consumer]) -> None:
    for consumer in consumers:
        consumer.sink.end()


class OriginalBackend:
    """Independent nsqds; nothing is led by anybody."""

    def __init__(self, nsqds: list[Nsqd], lookupds: list[Nsqlookupd]) -> None:
        self._nsqds = nsqds
        self._lookupds = lookupds
        self._topics: dict[Nsqd, OriginalTopics] = {}
        self._announcers: dict[Nsqd, LocalAnnouncer] = {}

    def start(self) -> None:
        """Every server listens."""
        for lookupd in self._lookupds:
            lookupd.router = original_router(lookupd.registrations)
            lookupd.listen()
        for nsqd in self._nsqds:
            options, node = nsqd.options, nsqd.node
            topics = OriginalTopics(node, options.limits(), node.loop, options.node_id)
            announcer = LocalAnnouncer(nsqd, self._lookupds, topics)
            topics.announcer, topics.disconnect = announcer, _end
            self._topics[nsqd], self._announcers[nsqd] = topics, announcer
            nsqd.offer(original_offer(node, topics))
            nsqd.listen()
            announcer.connect()

    def create_topic(self, name: str, wish: TopicWish) -> None:
        """On every node that runs."""
        plain = TopicWish(
            partitions=1,
            replicas=1,
            ordered=False,
            extended=False,
            multi_part=None,
            channel_auto_create=True,
        )
        if wish != plain:
            raise ValueError("a topic of an original cluster has a name and nothing else")
        for nsqd in self._nsqds:
            if nsqd.listening:
                self._topics[nsqd].get(name)

    def create_channel(self, topic: str, channel: str) -> None:
        """On every node that has the topic, or on all if none has."""
        if not any(topics.find(topic) for topics in self._topics.values()):
            for nsqd in self._nsqds:
                self._topics[nsqd].get(topic)
        for topics in self._topics.values():
            shard = topics.find(topic)
            if shard is not None:
                topics.create_channel(shard, channel)

    def leader(self, topic: str, partition: int) -> Nsqd:  # noqa: ARG002 - the interface has it
        """The first node that has the topic."""
        for nsqd, topics in self._topics.items():
            if nsqd.listening and topics.find(topic):
                return nsqd
        raise LookupError(f"no nsqd has topic {topic!r}")

    def move_leader(self, topic: str, partition: int, to: Nsqd | None, timeout: float) -> Nsqd:  # noqa: ARG002 - the interface has it
        """There is none."""
        raise ValueError("topics of an original cluster have no leader to move")

    def set_writable(self, topic: str, partition: int, *, writable: bool) -> None:  # noqa: ARG002 - the interface has it
        """They always are."""
        raise ValueError("topics of an original cluster are always writable")

    def kill(self, nsqd: Nsqd) -> None:
        """Messages were in memory, and are gone; topics and channels are on disk."""
        nsqd.stop(abruptly=True)
        self._announcers[nsqd].disconnect()
        for shard in self._topics[nsqd].local():
            with shard.lock:
                shard.partition.log.clear()
                for channel in shard.partition.channels.values():
                    channel.empty()

    def terminate(self, nsqd: Nsqd) -> None:
        """Messages are written to disk; what was in flight is delivered again."""
        nsqd.node.exiting = True
        nsqd.stop(abruptly=False)
        self._announcers[nsqd].disconnect()
        for shard in self._topics[nsqd].local():
            # Consumers are gone; their messages need not wait for a timeout of another process.
            shard.run(lambda partition, _: partition.expire(float("inf")))

    def hang(self, nsqd: Nsqd) -> None:
        """Nothing is answered, nothing times out."""
        nsqd.node.hung = True
        nsqd.node.gate.clear()
        for shard in self._topics[nsqd].local():
            shard.asleep = True

    def wake(self, nsqd: Nsqd) -> None:
        """Go on."""
        nsqd.node.hung = False
        nsqd.node.gate.set()
        for shard in self._topics[nsqd].local():
            shard.wake()

    def restart(self, nsqd: Nsqd) -> None:
        """With the topics it had."""
        nsqd.node.exiting = nsqd.node.hung = False
        nsqd.listen()
        self._announcers[nsqd].connect()

    def lookupd_changed(self, lookupd: Nsqlookupd) -> None:
        """Nodes introduce themselves to a daemon that is back."""
        for nsqd, announcer in self._announcers.items():
            if not lookupd.listening:
                announcer.disconnect(lookupd)
            elif nsqd.listening:
                announcer.connect()

    def shards(self, topic: str) -> Iterable[tuple[str, Shard[Any]]]:
        """One per node that has the topic."""
        for nsqd, topics in self._topics.items():
            shard = topics.find(topic)
            if shard is not None:
                yield nsqd.name, shard


class _LookupdView:
    """What one lookup daemon knows of the cluster it is part of."""

    def __init__(
        self, coordinator: Coordinator, lookupds: list[Nsqlookupd], own: Nsqlookupd
    ) -> None:
        self.coordinator = coordinator
        self.answers = LookupAnswers(coordinator)
        self._lookupds = lookupds
        self._own = own

    def is_leader(self) -> bool:
        """The first that listens leads."""
        return self._leader() is self._own

    def _leader(self) -> Nsqlookupd:
        return next((each for each in self._lookupds if each.listening), self._own)

    def listlookup(self) -> dict[str, Any]:
        """Ports are strings (protocol 7.3)."""
        nodes = [_lookup_node(each) for each in self._lookupds if each.listening]
        return {"lookupdleader": _lookup_node(self._leader()), "lookupdnodes": nodes}


def _lookup_node(lookupd: Nsqlookupd) -> dict[str, Any]:
    tcp, http = lookupd.tcp_address[1], lookupd.http_address[1]
    host, rpc = lookupd.options.broadcast_address, tcp + _RPC_PORT_OFFSET
    return {
        "ID": f"{host}:{rpc}:{tcp}:nsqlookup",
        "NodeIP": host,
        "TcpPort": str(tcp),
        "HttpPort": str(http),
        "RpcPort": str(rpc),
        "Epoch": 0,
    }


class RedesignedBackend:
    """A coordinated cluster."""

    def __init__(
        self, nsqds: list[Nsqd], lookupds: list[Nsqlookupd], scope: Scope, delays: Delays
    ) -> None:
        self._lookupds = lookupds
        self._delays = delays
        self._coordinator = Coordinator(scope, delays)
        self._coordinator.nsqds = nsqds

    def create_on_use(self, partitions: int, replicas: int) -> None:
        """Topics are made by whoever names them first."""
        count = len(self._coordinator.nsqds)

        def describe(name: str) -> TopicMeta:
            multi = partitions * replicas > count
            return TopicMeta(name=name, partitions=partitions, replicas=replicas, multi_part=multi)

        self._coordinator.default_meta = describe
        self._coordinator.auto_create = True

    def start(self) -> None:
        """Every server listens."""
        for lookupd in self._lookupds:
            view = _LookupdView(self._coordinator, self._lookupds, lookupd)
            lookupd.router = redesigned_router(lookupd.registrations, view)
            lookupd.listen()
        for nsqd in self._coordinator.nsqds:
            nsqd.offer(redesigned_offer(nsqd.node, ClusterHosting(nsqd, self._coordinator)))
            nsqd.listen()
            self._coordinator.joined(nsqd)

    def create_topic(self, name: str, wish: TopicWish) -> None:
        """Raises ValueError with the server's text."""
        multi = wish.multi_part
        if multi is None:
            nodes = len(self._coordinator.up)
            multi = not wish.ordered and wish.partitions * wish.replicas > nodes
        meta = TopicMeta(
            name=name,
            partitions=wish.partitions,
            replicas=wish.replicas,
            ordered=wish.ordered,
            extended=wish.extended,
            multi_part=multi,
            channel_auto_create=wish.channel_auto_create,
        )
        try:
            self._coordinator.create_topic(meta)
        except CoordinatorRefused as refused:
            raise ValueError(f"topic {name!r}: {refused}") from refused

    def create_channel(self, topic: str, channel: str) -> None:
        """On every partition."""
        slots = self._coordinator.of(topic)
        if not slots:
            raise LookupError(f"topic {topic!r} does not exist")
        for slot in slots:
            with slot.shard.lock:
                slot.shard.partition.create_channel(channel)

    def leader(self, topic: str, partition: int) -> Nsqd:
        """Raises LookupError while there is none."""
        slot = self._coordinator.slot(topic, partition)
        leader = slot.leader
        # A dead one is its slot's leader until its session has expired.
        if leader is None or slot.shard.leader is not leader.node:
            raise LookupError(f"partition {partition} of topic {topic!r} has no leader")
        return leader

    def move_leader(self, topic: str, partition: int, to: Nsqd | None, timeout: float) -> Nsqd:
        """Raises TimeoutError if it takes longer than *timeout*; 0 does not wait."""
        done = self._coordinator.begin_move(topic, partition, to)
        if timeout and not done.wait(timeout):
            raise TimeoutError(f"the leader of {topic!r}/{partition} did not move")
        return self.leader(topic, partition)

    def set_writable(self, topic: str, partition: int, *, writable: bool) -> None:
        """Take writes or refuse them."""
        self._coordinator.set_writable(topic, partition, writable=writable)

    def kill(self, nsqd: Nsqd) -> None:
        """Followers lead once its session has expired."""
        nsqd.stop(abruptly=True)
        self._coordinator.lost(nsqd)

    def terminate(self, nsqd: Nsqd) -> None:
        """It hands over, refuses publishes for a moment, and goes."""
        nsqd.node.exiting = True
        nsqd.stop_listening()
        self._coordinator.leaving(nsqd)
        time.sleep(self._delays.move)
        nsqd.stop(abruptly=False)

    def hang(self, nsqd: Nsqd) -> None:
        """Nothing is answered."""
        nsqd.node.hung = True
        nsqd.node.gate.clear()
        self._coordinator.hung(nsqd)

    def wake(self, nsqd: Nsqd) -> None:
        """It learns what it missed, and then answers."""
        nsqd.node.hung = False
        self._coordinator.woken(nsqd)
        nsqd.node.gate.set()

    def restart(self, nsqd: Nsqd) -> None:
        """With the partitions it had."""
        nsqd.node.exiting = nsqd.node.hung = False
        nsqd.node.gate.set()
        nsqd.listen()
        self._coordinator.joined(nsqd)

    def lookupd_changed(self, lookupd: Nsqlookupd) -> None:
        """Each answers out of the same topology."""

    def shards(self, topic: str) -> Iterable[tuple[str, Shard[Any]]]:
        """The partitions, in order."""
        for slot in self._coordinator.of(topic):
            yield slot.leader.name if slot.leader else "", slot.shard
