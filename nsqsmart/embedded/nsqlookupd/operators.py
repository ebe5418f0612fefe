"""What changes a cluster by way of a redesigned nsqlookupd.

See protocol#lookup-admin, protocol#topic-create and protocol#topic-life.

The order of the checks, and which of them need the leading daemon, are those of the real program.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from nsqsmart.embedded.coordination.topology import ClusterTopology, CoordinatorRefused, Slot
from nsqsmart.embedded.gotext import GoError, atoi
from nsqsmart.embedded.nsqd.server import Nsqd
from nsqsmart.embedded.nsqd.shard import TopicDescription
from nsqsmart.embedded.nsqlookupd.answers import KEY_NOT_FOUND, LookupAnswers, describe, peer
from nsqsmart.embedded.serving.arguments import (
    any_topic,
    number_argument,
    topic_and_channel,
    topic_argument,
)
from nsqsmart.embedded.serving.http import HttpError, Request

_NOT_LEADER = "E_FAILED_ON_NOT_LEADER"
_NOT_LOOKUP_LEADER = "Not nsqlookup leader"
_NOT_CREATED = "topic is not created"
_UNSTABLE = "the cluster is unstable"
_MAX_PARTITIONS = 255
_SHOWN = ("hostname", "broadcast_address", "tcp_port", "http_port")


@contextmanager
def _refusing(status: int) -> Iterator[None]:
    """Answer what the coordinator refuses with *status*."""
    try:
        yield
    except CoordinatorRefused as refused:
        raise HttpError(status, str(refused)) from refused


class LookupdOperators:
    """The paths of operators; without a cluster there is nothing to operate."""

    def __init__(self, cluster: LookupAnswers | None) -> None:
        self._known = cluster
        self._tombstones: set[str] = set()

    def _cluster(self) -> LookupAnswers:
        if self._known is None:
            raise HttpError(500, "MISSING_COORDINATOR")
        return self._known

    def _leading(self, status: int = 400, refusal: str = _NOT_LOOKUP_LEADER) -> LookupAnswers:
        cluster = self._cluster()
        if not cluster.is_leader():
            raise HttpError(status, refusal)
        return cluster

    def _meta(self, topic: str) -> TopicDescription:
        if self._known is None:
            # The real one stumbles here.
            raise HttpError(500, "INTERNAL_ERROR")
        meta = self._known.topology.topics.get(topic)
        if meta is None:
            raise HttpError(400, KEY_NOT_FOUND)
        return meta

    # ------------------------------------------------------------------------ topics, channels

    def create_topic(self, request: Request) -> None:
        """/topic/create (protocol#topic-create)."""
        query = request.query
        topic = topic_argument(request)
        partitions = number_argument(request, "partition_num", (1, 255), "TOPIC_PARTITION_NUM")
        replicas = number_argument(request, "replicator", (1, 5), "TOPIC_REPLICATOR")
        if "suggestload" in query:
            number_argument(request, "suggestload", (0, 10000), "TOPIC_LOAD_FACTOR")
        if "syncdisk" in query:
            number_argument(request, "syncdisk", (-(2**63), 2**63 - 1), "TOPIC_SYNC_DISK")
        try:
            atoi(query.get("retention", "0").encode())
        except GoError as error:
            raise HttpError(400, str(error)) from error
        flag = {name: query.get(name) == "true" for name in query}.get
        meta = TopicDescription(
            name=topic,
            partitions=partitions,
            replicas=replicas,
            ordered=bool(flag("orderedmulti")),
            multi_part=bool(flag("multipart")),
            extended=bool(flag("extend")),
            channel_auto_create=not flag("disable_channel_auto_create"),
        )
        topology = self._leading(refusal=_NOT_LEADER).topology
        with _refusing(400):
            topology.create_topic(meta)

    def delete_topic(self, request: Request) -> None:
        """/topic/delete: all partitions or none."""
        topic = any_topic(request)
        partition = request.query.get("partition")
        if partition is None:
            raise HttpError(400, "MISSING_ARG_TOPIC_PARTITION")
        if partition != "**":
            raise HttpError(400, "REMOVE_SINGLE_PARTITION_NOT_ALLOWED")
        coordinator = self._leading(500).coordinator
        with _refusing(500):
            coordinator.delete_topic(topic)

    def create_channel(self, request: Request) -> None:
        """/channel/create: registers a channel where SUB may not make one (protocol#topic-life)."""
        topic, channel = topic_and_channel(request)
        if self._meta(topic).channel_auto_create:
            raise HttpError(400, f"channel auto create NOT disabled in topic {topic}")
        topology = self._leading().topology
        if channel in topology.channels(topic):
            raise HttpError(400, f"channel {channel} already registered")
        topology.create_channel(topic, channel)

    def delete_channel(self, request: Request) -> None:
        """/channel/delete: nothing to do where channels come and go by themselves."""
        topic, channel = topic_and_channel(request)
        if self._meta(topic).channel_auto_create:
            return
        topology = self._leading().topology
        if channel not in topology.channels(topic):
            raise HttpError(400, f"channel {channel} not registered")
        for slot in topology.of(topic):
            with slot.shard.lock:
                gone = slot.shard.partition.delete_channel(channel)
            for consumer in gone:
                consumer.sink.end()

    # -------------------------------------------------------------------------------- operators

    def cluster_stats(self, request: Request) -> Any:
        """/cluster/stats: whether everything is in its place, and how loaded each node is."""
        if self._known is None:
            return {"stable": False, "node_stat_list": [], "topn_topics": []}
        topology = self._leading(refusal=_NOT_LEADER).topology
        nodes = [_load(topology, nsqd) for nsqd in topology.nsqds if nsqd in topology.up]
        count = request.query.get("topn", "")
        slots = list(topology.slots) if count.isdigit() else []
        listed = [{"topic": f"{name}-{part}", "load_factor": 0.0} for name, part in slots]
        stable = _is_stable(topology)
        return {"stable": stable, "node_stat_list": nodes, "topn_topics": listed[: int(count or 0)]}

    def expand(self, request: Request) -> None:
        """/topic/partition/expand: more partitions, never fewer."""
        self._cluster()
        topic = any_topic(request)
        count = number_argument(request, "partition_num", (1, 255), "TOPIC_PARTITION_NUM")
        topology = self._leading(500).topology
        if count >= _MAX_PARTITIONS:
            raise HttpError(500, "max partition allowed exceed")
        if not _is_stable(topology):
            raise HttpError(500, _UNSTABLE)
        if topic not in topology.topics:
            raise HttpError(500, _NOT_CREATED)
        with _refusing(500):
            topology.expand(topic, count)

    def move(self, request: Request) -> None:
        """/topic/partition/move: a replica, or the lead, from one node to another."""
        coordinator = self._cluster().coordinator
        topology = coordinator.topology
        topic, number = any_topic(request), _partition(request)
        if not _is_stable(topology):
            raise HttpError(400, _UNSTABLE)
        begin, end = request.query.get("move_from", ""), request.query.get("move_to", "")
        if begin == end:
            raise HttpError(400, "move to and from node can not be the same")
        slot = topology.slots.get((topic, number))
        if slot is None:
            raise HttpError(400, KEY_NOT_FOUND)
        source, target = _node(topology, begin), _node(topology, end)
        replicas = list(slot.replicas)
        if source is None or source not in replicas or target is None:
            raise HttpError(400, "the node is not in the replicas, or not there")
        if request.query.get("move_leader") == "true" or source is slot.leader:
            moved = coordinator.leadership.begin_move(topic, number, target)
            moved.wait()
        if target not in replicas:
            _replace(topology, slot, [target if each is source else each for each in replicas])

    def update_meta(self, request: Request) -> None:
        """/topic/meta/update: what may be changed of a topic that is there.

        See protocol#topic-life.
        """
        self._cluster()
        topic, changes = any_topic(request), {}
        if request.query.get("replicator"):
            changes["replicas"] = number_argument(request, "replicator", (1, 5), "TOPIC_REPLICATOR")
        _check_number(request, "syncdisk", "INVALID_ARG_TOPIC_SYNC_DISK")
        _check_number(request, "retention", None)
        topology = self._leading().topology
        meta = topology.topics.get(topic)
        if meta is None:
            raise HttpError(400, _NOT_CREATED)
        new = replace(
            meta,
            replicas=changes.get("replicas", meta.replicas),
            extended=meta.extended or request.query.get("upgradeext") == "true",
            channel_auto_create={"true": False, "false": True}.get(
                request.query.get("disable_channel_auto_create", ""), meta.channel_auto_create
            ),
        )
        topology.update(new)

    def need_leader(self, request: Request) -> None:  # noqa: ARG002 - the interface has it
        """Whatever only the leading daemon does, and no client can see."""
        self._leading()

    def tombstone_lookupd(self, request: Request) -> None:
        """/cluster/lookupd/tombstone: hide a daemon in /listlookup of this one, or show it."""
        node = request.query.get("node")
        if not node:
            raise HttpError(400, "MISSING_ARG_NODE")
        tombstones = self._tombstones
        if request.query.get("restore"):
            if node not in tombstones:
                raise HttpError(404, "lookup node id not found")
            tombstones.discard(node)
            return
        listed = self._cluster().listlookup()["lookupdnodes"]
        if node not in (each["ID"] for each in listed):
            raise HttpError(404, "lookup node id not found")
        tombstones.add(node)

    def listlookup(self, request: Request) -> Any:  # noqa: ARG002 - the interface has it
        """/listlookup: the daemons of the cluster without those that are hidden."""
        document = None if self._known is None else self._known.listlookup()
        if document is not None and self._tombstones:
            nodes = document["lookupdnodes"]
            left = [each for each in nodes if each["ID"] not in self._tombstones]
            document["lookupdnodes"] = left or None
        return document


def _partition(request: Request) -> int:
    text = request.query.get("partition")
    if not text:
        raise HttpError(400, "MISSING_ARG_TOPIC_PARTITION")
    if not text.isdigit() or int(text) >= _MAX_PARTITIONS:
        raise HttpError(400, "INVALID_ARG_TOPIC_PARTITION_NUM")
    return int(text)


def _check_number(request: Request, name: str, refusal: str | None) -> None:
    text = request.query.get(name)
    try:
        atoi((text or "0").encode())
    except GoError as error:
        raise HttpError(400, refusal or str(error)) from error


def _is_stable(topology: ClusterTopology) -> bool:
    """Never without a topic; else when every partition is complete (protocol#cluster-nodes)."""
    alive = topology.alive()
    slots = list(topology.slots.values())
    return bool(slots) and all(
        slot.leader is not None
        and not slot.moving
        and len(slot.in_sync & alive) >= slot.shard.meta.replicas
        for slot in slots
    )


def _load(topology: ClusterTopology, nsqd: Nsqd) -> dict[str, Any]:
    """Made of the messages that a node holds; the real figures count rates too."""
    slots = list(topology.slots.values())
    led = sum(len(slot.shard.partition.log) for slot in slots if slot.leader is nsqd)
    held = sum(len(slot.shard.partition.log) for slot in slots if nsqd in slot.replicas)
    known = describe(nsqd)
    return {
        **{name: known[name] for name in _SHOWN},
        "leader_load_factor": led / 1024,
        "node_load_factor": held / 1024,
    }


def _node(topology: ClusterTopology, name: str) -> Nsqd | None:
    """The node of a distributed id, if it is there."""
    found = (nsqd for nsqd in topology.nsqds if peer(nsqd)["distributed_id"] == name)
    return next((nsqd for nsqd in found if nsqd in topology.up), None)


def _replace(topology: ClusterTopology, slot: Slot, replicas: list[Nsqd]) -> None:
    """The partition is on *replicas*, and all of them have it."""
    with topology.lock:
        slot.replicas, slot.in_sync = replicas, set(replicas)
