"""What the lookup daemons of a coordinated cluster say.

See protocol#lookup, protocol#lookup-answers.
"""

from __future__ import annotations

from typing import Any

from nsqsmart.embedded.coordination.coordinator import Coordinator
from nsqsmart.embedded.coordination.topology import Picture, SeenSlot
from nsqsmart.embedded.nsqd.server import Nsqd
from nsqsmart.embedded.nsqd.shard import TopicDescription
from nsqsmart.embedded.nsqlookupd.seats import Seats
from nsqsmart.embedded.nsqlookupd.server import Nsqlookupd
from nsqsmart.embedded.serving.http import HttpError

NO_CHANNEL = "Topic has no channel, should init at least one for the new topic"
KEY_NOT_FOUND = "Key not found"
_NOBODY = TopicDescription(name="", partitions=0, replicas=0)


def describe(nsqd: Nsqd) -> dict[str, Any]:
    """A node, as /nodes lists it."""
    node = nsqd.node
    return {
        "remote_address": f"{node.options.broadcast_address}:{1024 + node.tcp_port % 60000}",
        "hostname": node.hostname,
        "broadcast_address": node.options.broadcast_address,
        "tcp_port": node.tcp_port,
        "http_port": node.http_port,
        "version": node.options.version,
    }


def peer(nsqd: Nsqd) -> dict[str, Any]:
    """A node, as /lookup lists it."""
    known = describe(nsqd)
    return {"id": known["remote_address"], **known, "distributed_id": nsqd.node.distributed_id}


def describe_meta(meta: TopicDescription) -> dict[str, Any]:
    """What a topic was created with."""
    return {
        "disable_channel_auto_create": not meta.channel_auto_create,
        "extend_support": meta.extended,
        "multi_part": meta.multi_part,
        "ordered": meta.ordered,
        "partition_num": meta.partitions,
        "replica": meta.replicas,
    }


def _topic_info(meta: TopicDescription) -> dict[str, Any]:
    return {
        "topic_name": meta.name,
        "extend_support": meta.extended,
        "ordered": meta.ordered,
        "multi_part": meta.multi_part,
        "disable_channel_auto_create": not meta.channel_auto_create,
        "registered_channels": None,
    }


class LookupAnswers:
    """What one lookup daemon of a cluster knows and says; ``tombstones`` are its own.

    ``frozen`` is what a daemon that learns nothing new answers out of, None for one that does.
    """

    def __init__(self, coordinator: Coordinator, seats: Seats, own: Nsqlookupd) -> None:
        self.coordinator = coordinator
        self.topology = coordinator.topology
        self._seats = seats
        self._own = own
        self.tombstones: set[tuple[str, str]] = set()
        self.frozen: Picture | None = None

    def is_leader(self) -> bool:
        """Whether this daemon leads, and so may administer."""
        return self._seats.leader() is self._own

    def listlookup(self) -> dict[str, Any]:
        """The answer to /listlookup."""
        return self._seats.listlookup()

    def tombstone(self, topic: str, node: str, *, restore: bool) -> None:
        """Hide *node* (broadcast address and HTTP port) from the lookups of *topic*, or show it."""
        (self.tombstones.discard if restore else self.tombstones.add)((topic, node))

    def disable_write(self, kind: str) -> None:
        """Name no nsqd for writing: of "all" topics, of "ordered" ones, or of none ("")."""
        self.topology.writes_disabled = kind

    def topics(self, *, with_meta: bool) -> dict[str, Any]:
        """The answer to /topics."""
        topics = self.seen().topics
        names = sorted(topics)
        answer: dict[str, Any] = {"topics": names}
        if with_meta:
            answer["meta_info"] = [_topic_info(topics[name]) for name in names]
        return answer

    def channels(self, topic: str, partition: int | None) -> list[str]:
        """The channels of a topic, of one partition if it is given."""
        return self.seen(topic).channels(topic, partition)

    def seen(self, topic: str | None = None) -> Picture:
        """What this daemon knows, of one topic if it is given."""
        return self.topology.picture(topic) if self.frozen is None else self.frozen

    def lookup(
        self, topic: str, *, writing: bool, with_meta: bool, partition: int | None
    ) -> dict[str, Any]:
        """The answer to /lookup; raises :class:`HttpError`."""
        topology = self.topology
        if topology.auto_create and topic not in topology.topics:
            topology.ensure(topic)
        seen = self.seen(topic)
        meta = seen.topics.get(topic)
        if meta is None and writing:
            raise HttpError(404, KEY_NOT_FOUND)
        disabled = seen.writes_disabled
        if writing and disabled == "ordered":
            with_meta = True
        answer: dict[str, Any] = {"channels": seen.channels(topic, partition)}
        if with_meta:
            answer["meta"] = describe_meta(meta or _NOBODY)
        if writing and meta and (disabled == "all" or (disabled == "ordered" and meta.ordered)):
            return answer | {"partitions": None, "producers": None}
        slots = seen.of(topic, partition)
        leaders = self._writable(topic, slots, seen) if writing else _readable(slots, seen)
        peers = {str(number): peer(nsqd) for number, nsqd in leaders}
        producers = {each["id"]: each for each in peers.values()}
        return answer | {"partitions": peers, "producers": list(producers.values())}

    def _writable(self, topic: str, slots: list[SeenSlot], seen: Picture) -> list[tuple[int, Nsqd]]:
        writable = [slot for slot in slots if slot.writable]
        leaders = _readable(writable, seen)
        if self.topology.auto_create:
            return leaders
        with_channel = {slot.number for slot in writable if slot.channels}
        kept = [
            (number, nsqd)
            for number, nsqd in leaders
            if number in with_channel and (topic, self._node(nsqd)) not in self.tombstones
        ]
        if leaders and not with_channel:
            raise HttpError(404, NO_CHANNEL)
        return kept

    @staticmethod
    def _node(nsqd: Nsqd) -> str:
        return f"{nsqd.node.options.broadcast_address}:{nsqd.node.http_port}"

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes of /nodes: what each node leads and takes writes for.

        See protocol#lookup-answers.
        """
        listed, seen = [], self.seen()
        for nsqd in seen.up:
            led: dict[str, list[str]] = {}
            for (topic, number), slot in sorted(seen.slots.items()):
                if slot.leader is nsqd and slot.writable:
                    led.setdefault(topic, []).append(str(number))
            gone = [(topic, self._node(nsqd)) in self.tombstones for topic in led]
            listed.append(
                {**describe(nsqd), "tombstones": gone, "topics": list(led), "partitions": led}
            )
        return listed


def _readable(slots: list[SeenSlot], seen: Picture) -> list[tuple[int, Nsqd]]:
    leaders = [(slot.number, slot.leader) for slot in slots]
    return [(number, nsqd) for number, nsqd in leaders if nsqd is not None and nsqd in seen.up]
