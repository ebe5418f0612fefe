"""How the original nsqds of one process tell its lookup daemons what they have."""

from __future__ import annotations

from nsqsmart.embedded.nsqd.hosting import OriginalTopics
from nsqsmart.embedded.nsqd.server import Nsqd
from nsqsmart.embedded.nsqlookupd.registrations import NO_PARTITION, Key, Peer
from nsqsmart.embedded.nsqlookupd.server import Nsqlookupd


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
        info = node.introduction()
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
