"""A cluster of original nsqds, which tell its lookup daemons what they have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nsqsmart.embedded.nsqd.hosting import Announcer, OriginalTopics
from nsqsmart.embedded.nsqd.http.original import original_nsqd_router
from nsqsmart.embedded.nsqd.server import Nsqd
from nsqsmart.embedded.nsqd.shard import Shard, TopicDescription
from nsqsmart.embedded.nsqd.tcp.session import original_commands
from nsqsmart.embedded.nsqlookupd.original import original_router
from nsqsmart.embedded.nsqlookupd.registrations import NO_PARTITION, Key, Peer
from nsqsmart.embedded.nsqlookupd.server import Nsqlookupd


class LocalAnnouncer(Announcer):
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
        info = node.introduction()
        for number, lookupd in enumerate(self._lookupds):
            if not lookupd.listening or lookupd in self._peers:
                continue
            # Nothing is dialled within one process; the port is as arbitrary as a real one.
            peer = Peer(f"127.0.0.1:{1024 + (node.tcp_port + number) % 60000}", info)
            # A peer in this process never goes silent.
            lookupd.registrations.join(peer)
            peer.seen_at = float("inf")
            self._peers[lookupd] = peer
            for shard in self._topics.local():
                key = Key(shard.meta.name, NO_PARTITION)
                lookupd.registrations.register(peer, key, None)
                for channel in list(shard.partition.channels):
                    lookupd.registrations.register(peer, key, channel)

    def disconnect(self, lookupd: Nsqlookupd | None = None) -> None:
        """Leave one daemon, or all."""
        for each in [lookupd] if lookupd is not None else list(self._peers):
            peer = self._peers.pop(each, None)
            if peer is not None:
                each.registrations.leave(peer)


class OriginalBackend:
    """Independent nsqds, without leaders."""

    def __init__(self, nsqds: list[Nsqd], lookupds: list[Nsqlookupd]) -> None:
        self._nsqds = nsqds
        self._lookupds = lookupds
        self._topics: dict[Nsqd, OriginalTopics] = {}
        self._announcers: dict[Nsqd, LocalAnnouncer] = {}

    def start(self) -> None:
        """Every server listens."""
        for lookupd in self._lookupds:
            lookupd.offer(original_router(lookupd.registrations))
            lookupd.listen()
        for nsqd in self._nsqds:
            options, node = nsqd.options, nsqd.node
            topics = OriginalTopics(node, options.limits(), node.loop, options.node_id)
            announcer = LocalAnnouncer(nsqd, self._lookupds, topics)
            topics.announcer = announcer
            self._topics[nsqd], self._announcers[nsqd] = topics, announcer
            nsqd.offer(original_commands(topics), original_nsqd_router(node, topics))
            nsqd.listen()
            announcer.connect()

    def create_topic(self, meta: TopicDescription, *, multi_part: bool | None) -> None:
        """On every node that runs."""
        if multi_part is not None or meta != TopicDescription(name=meta.name):
            raise ValueError("a topic of an original cluster has a name and nothing else")
        for nsqd in self._nsqds:
            if nsqd.listening:
                self._topics[nsqd].get(meta.name)

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
        """What was in memory is gone; topics, channels and the overflow are on disk."""
        nsqd.stop(abruptly=True)
        self._announcers[nsqd].disconnect()
        for shard in self._topics[nsqd].local():
            with shard.lock:
                shard.partition.lose_memory()

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

    def freeze(self, lookupd: Nsqlookupd, *, frozen: bool) -> None:  # noqa: ARG002 - the interface has it
        """Each is told by the nsqds themselves."""
        raise ValueError("lookup daemons of an original cluster cannot be frozen")

    def shards(self, topic: str) -> Iterable[tuple[str, Shard[Any]]]:
        """One per node that has the topic."""
        for nsqd, topics in self._topics.items():
            shard = topics.find(topic)
            if shard is not None:
                yield nsqd.name, shard
