"""What changes a cluster by way of a redesigned nsqlookupd.

See protocol#lookup-admin, protocol#topic-create; protocol#topic-life.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from nsqsmart.embedded.coordination.coordinator import Coordinator
from nsqsmart.embedded.coordination.topology import CoordinatorRefused
from nsqsmart.embedded.gotext import GoError, atoi
from nsqsmart.embedded.nsqd.shard import TopicMeta
from nsqsmart.embedded.nsqlookupd.answers import KEY_NOT_FOUND, LookupAnswers
from nsqsmart.embedded.serving.arguments import (
    any_topic,
    number_argument,
    topic_and_channel,
    topic_argument,
)
from nsqsmart.embedded.serving.http import HttpError, Request

_NOT_LEADER = "E_FAILED_ON_NOT_LEADER"
_NOT_LOOKUP_LEADER = "Not nsqlookup leader"
_MISSING_COORDINATOR = "MISSING_COORDINATOR"


class Cluster(Protocol):
    """What a lookup daemon knows of the cluster it is part of."""

    @property
    def coordinator(self) -> Coordinator:
        """Topics and leaders."""

    @property
    def answers(self) -> LookupAnswers:
        """Lookups, with the tombstones of this daemon."""

    def is_leader(self) -> bool:
        """Whether this daemon may administer."""

    def listlookup(self) -> dict[str, Any]:
        """The answer to /listlookup."""


class Admin:
    """What changes the cluster: on its leading daemon only."""

    def __init__(self, cluster: Cluster | None) -> None:
        self._cluster = cluster

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
        meta = TopicMeta(
            name=topic,
            partitions=partitions,
            replicas=replicas,
            ordered=bool(flag("orderedmulti")),
            multi_part=bool(flag("multipart")),
            extended=bool(flag("extend")),
            channel_auto_create=not flag("disable_channel_auto_create"),
        )
        self._do(lambda cluster: cluster.coordinator.topology.create_topic(meta), _NOT_LEADER)

    def delete_topic(self, request: Request) -> None:
        """/topic/delete: all partitions or none."""
        topic = any_topic(request)
        partition = request.query.get("partition")
        if partition is None:
            raise HttpError(400, "MISSING_ARG_TOPIC_PARTITION")
        if partition != "**":
            raise HttpError(400, "REMOVE_SINGLE_PARTITION_NOT_ALLOWED")
        self._do(
            lambda cluster: cluster.coordinator.delete_topic(topic), _NOT_LOOKUP_LEADER, status=500
        )

    def create_channel(self, request: Request) -> None:
        """/channel/create: registers a channel where SUB may not make one (protocol#topic-life)."""
        topic, channel = topic_and_channel(request)

        def create(cluster: Cluster) -> None:
            if channel in cluster.coordinator.topology.channels(topic):
                raise CoordinatorRefused(f"channel {channel} already registered")
            for slot in cluster.coordinator.topology.of(topic):
                with slot.shard.lock:
                    slot.shard.partition.create_channel(channel)

        if self._meta(topic).channel_auto_create:
            raise HttpError(400, f"channel auto create NOT disabled in topic {topic}")
        self._do(create, _NOT_LOOKUP_LEADER)

    def delete_channel(self, request: Request) -> None:
        """/channel/delete: nothing to do where channels come and go by themselves."""
        topic, channel = topic_and_channel(request)

        def delete(cluster: Cluster) -> None:
            if channel not in cluster.coordinator.topology.channels(topic):
                raise CoordinatorRefused(f"channel {channel} not registered")
            for slot in cluster.coordinator.topology.of(topic):
                with slot.shard.lock:
                    gone = slot.shard.partition.delete_channel(channel)
                for consumer in gone:
                    consumer.sink.end()

        if not self._meta(topic).channel_auto_create:
            self._do(delete, _NOT_LOOKUP_LEADER)

    def _meta(self, topic: str) -> TopicMeta:
        if self._cluster is None:
            # The real one stumbles here.
            raise HttpError(500, "INTERNAL_ERROR")
        meta = self._cluster.coordinator.topology.topics.get(topic)
        if meta is None:
            raise HttpError(400, KEY_NOT_FOUND)
        return meta

    def _do(self, action: Callable[[Cluster], None], not_leader: str, *, status: int = 400) -> None:
        if self._cluster is None:
            raise HttpError(500, _MISSING_COORDINATOR)
        if not self._cluster.is_leader():
            raise HttpError(status, not_leader)
        try:
            action(self._cluster)
        except CoordinatorRefused as refused:
            raise HttpError(status, str(refused)) from refused
