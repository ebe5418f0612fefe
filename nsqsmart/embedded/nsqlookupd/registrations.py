"""What nsqds have told a lookup daemon (protocol#lookup-tcp)."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

NO_PARTITION = -11
"""Where a redesigned lookup daemon files what an original nsqd has."""


_EPHEMERAL = "#ephemeral"


class Key(NamedTuple):
    """A topic of an original nsqd, or one partition of a redesigned one."""

    topic: str
    partition: int


@dataclass(slots=True)
class Peer:
    """An nsqd, as it introduced itself; ``remote_address`` is its connection's."""

    remote_address: str
    info: dict[str, Any]
    topics: dict[Key, set[str]] = field(default_factory=dict)
    seen_at: float = 0.0

    @property
    def node(self) -> str:
        """What tombstones name: the address of its HTTP interface."""
        return f"{self.info['broadcast_address']}:{self.info['http_port']}"

    def describe(self) -> dict[str, Any]:
        """What every kind of lookup daemon says of it."""
        info = self.info
        return {
            "remote_address": self.remote_address,
            "hostname": info.get("hostname", ""),
            "broadcast_address": info["broadcast_address"],
            "tcp_port": info["tcp_port"],
            "http_port": info["http_port"],
            "version": info["version"],
        }

    def has(self, topic: str) -> bool:
        """Whether it has any of *topic*."""
        return any(key.topic == topic for key in self.topics)

    @property
    def is_old(self) -> bool:
        """Whether a redesigned lookup daemon takes it for an original nsqd (protocol#dialects)."""
        return not self.info.get("distributed_id") and "HA" not in self.info["version"]


class Registrations:
    """Peers by connection, and names that stay when no peer has them.

    Those are the topics and channels that were made by HTTP; where it *remembers*, as the original
    daemon does, also those that some nsqd had, but for ephemeral ones that were unregistered.
    """

    def __init__(
        self, *, inactive_after: float, tombstone_lifetime: float, remembers: bool
    ) -> None:
        self._inactive_after = inactive_after
        self._lifetime = tombstone_lifetime
        self._remembers = remembers
        self._peers: dict[str, Peer] = {}
        self._kept_topics: set[str] = set()
        self._kept_channels: dict[str, set[str]] = defaultdict(set)
        self._tombstones: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def join(self, peer: Peer) -> None:
        """An nsqd has introduced itself."""
        peer.seen_at = time.monotonic()
        with self._lock:
            self._peers[peer.remote_address] = peer

    def leave(self, peer: Peer) -> None:
        """It is gone, and what it had registered with it."""
        with self._lock:
            self._peers.pop(peer.remote_address, None)
            for key in peer.topics:
                self._tombstones.pop((key.topic, peer.node), None)

    def register(self, peer: Peer, key: Key, channel: str | None) -> None:
        """*peer* has the topic, and the channel if one is named."""
        with self._lock:
            channels = peer.topics.setdefault(key, set())
            if channel is not None:
                channels.add(channel)
            if self._remembers:
                self._keep(key.topic, channel)

    def unregister(self, peer: Peer, key: Key, channel: str | None) -> None:
        """*peer* has it no longer."""
        topic = key.topic
        with self._lock:
            if channel is not None:
                peer.topics.get(key, set()).discard(channel)
                if channel.endswith(_EPHEMERAL) and not self._has_channel(topic, channel):
                    self._kept_channels[topic].discard(channel)
                return
            peer.topics.pop(key, None)
            self._tombstones.pop((topic, peer.node), None)
            if topic.endswith(_EPHEMERAL) and not self._has_topic(topic):
                self._kept_topics.discard(topic)

    def make(self, topic: str, channel: str | None = None) -> None:
        """A topic, or a channel of it, that no nsqd need have."""
        with self._lock:
            self._keep(topic, channel)

    def _keep(self, topic: str, channel: str | None) -> None:
        self._kept_topics.add(topic)
        if channel is not None:
            self._kept_channels[topic].add(channel)

    def forget_topic(self, topic: str) -> None:
        """Until a peer registers it again."""
        with self._lock:
            self._kept_topics.discard(topic)
            self._kept_channels.pop(topic, None)
            for peer in self._peers.values():
                for key in [key for key in peer.topics if key.topic == topic]:
                    del peer.topics[key]

    def forget_channel(self, topic: str, channel: str) -> bool:
        """Whether it was known."""
        with self._lock:
            known = channel in self._channels(topic)
            self._kept_channels[topic].discard(channel)
            for peer in self._peers.values():
                for key, channels in peer.topics.items():
                    if key.topic == topic:
                        channels.discard(channel)
            return known

    def tombstone(self, topic: str, node: str, *, restore: bool = False) -> None:
        """Hide *node* (broadcast address and HTTP port) from the lookups of *topic*.

        Only one that has it now; it is seen again once it registers the topic anew.
        """
        with self._lock:
            if restore:
                self._tombstones.pop((topic, node), None)
            elif any(peer.node == node and peer.has(topic) for peer in self._peers.values()):
                self._tombstones[topic, node] = time.monotonic() + self._lifetime

    def is_tombstoned(self, topic: str, peer: Peer) -> bool:
        """Whether *peer* is hidden."""
        return self._tombstones.get((topic, peer.node), 0.0) > time.monotonic()

    def peers(self) -> list[Peer]:
        """The active ones."""
        oldest = time.monotonic() - self._inactive_after
        with self._lock:
            return [peer for peer in self._peers.values() if peer.seen_at >= oldest]

    def knows(self, topic: str) -> bool:
        """Whether any nsqd or HTTP request has named *topic*."""
        with self._lock:
            return topic in self._kept_topics or self._has_topic(topic)

    def topics(self) -> list[str]:
        """Every topic."""
        with self._lock:
            names = {key.topic for peer in self._peers.values() for key in peer.topics}
            return sorted(names | self._kept_topics)

    def channels(self, topic: str, partition: int | None = None) -> list[str]:
        """The channels of a topic, of one partition if it is given."""
        with self._lock:
            return sorted(self._channels(topic, partition))

    def _channels(self, topic: str, partition: int | None = None) -> set[str]:
        return self._kept_channels.get(topic, set()).union(
            *(
                channels
                for peer in self._peers.values()
                for key, channels in peer.topics.items()
                if key.topic == topic and partition in (None, key.partition)
            )
        )

    def _has_topic(self, topic: str) -> bool:
        return any(peer.has(topic) for peer in self._peers.values())

    def _has_channel(self, topic: str, channel: str) -> bool:
        return any(
            key.topic == topic and channel in channels
            for peer in self._peers.values()
            for key, channels in peer.topics.items()
        )

    def holders(self, topic: str) -> list[tuple[Peer, int]]:
        """The peers that have each partition of *topic*."""
        return [
            (peer, key.partition)
            for peer in self.peers()
            for key in list(peer.topics)
            if key.topic == topic
        ]


def distinct(peers: Iterable[Peer]) -> list[Peer]:
    """Each peer once, in order."""
    return list({peer.remote_address: peer for peer in peers}.values())
