"""The HTTP interface of a redesigned nsqlookupd, with a coordinator or without."""

from __future__ import annotations

import re
from typing import Any, Protocol

from nsqsmart.embedded.nsqd.shard import TopicMeta
from nsqsmart.embedded.nsqlookupd.admin import Admin, Cluster
from nsqsmart.embedded.nsqlookupd.answers import NO_CHANNEL
from nsqsmart.embedded.nsqlookupd.operators import Operators
from nsqsmart.embedded.nsqlookupd.registrations import Peer, Registrations, distinct
from nsqsmart.embedded.serving.arguments import any_topic, set_log_level
from nsqsmart.embedded.serving.http import HttpError, Request, Response, Route, Router
from nsqsmart.embedded.serving.versions import VERSIONS
from nsqsmart.names import Dialect

_GET, _POST = ("GET",), ("POST",)
_CREATE = ("POST", "PUT")


def redesigned_router(registrations: Registrations, cluster: Cluster | None) -> Router:
    """The paths of a redesigned nsqlookupd; without *cluster* it knows registrations only."""
    reading: _Reading = _Alone(registrations) if cluster is None else _Coordinated(cluster)
    admin = Admin(cluster)
    operators = Operators(cluster)
    info = {"version": VERSIONS[Dialect.REDESIGNED], "ha_support": cluster is not None}
    routes = {
        "/ping": Route(_GET, lambda _: Response(body=b"OK")),
        "/info": Route(_GET, lambda _: info, negotiated=True),
        "/debug": Route(_GET, lambda _: {}, negotiated=True),
        "/lookup": Route(_GET, lambda request: _lookup(reading, request), negotiated=True),
        "/topics": Route(_GET, reading.topics, negotiated=True),
        "/channels": Route(_GET, reading.channels, negotiated=True),
        "/nodes": Route(_GET, reading.nodes, negotiated=True),
        "/listlookup": Route(_GET, operators.listlookup(reading.listlookup), negotiated=True),
        "/topic/create": Route(_CREATE, admin.create_topic),
        "/topic/delete": Route(_POST, admin.delete_topic),
        "/topic/partition/expand": Route(_POST, operators.expand),
        "/topic/partition/move": Route(_POST, operators.move),
        "/topic/meta/update": Route(_POST, operators.update_meta),
        "/cluster/stats": Route(_GET, operators.cluster_stats),
        "/cluster/node/remove": Route(_POST, operators.need_leader),
        "/cluster/upgrade/begin": Route(_POST, operators.need_leader),
        "/cluster/upgrade/done": Route(_POST, operators.need_leader),
        "/cluster/balance/topn": Route(_POST, operators.need_leader),
        "/cluster/lookupd/tombstone": Route(_POST, operators.tombstone_lookupd),
        "/loglevel/set": Route(_POST, set_log_level),
        "/topic/tombstone": Route(_POST, reading.tombstone),
        "/channel/create": Route(_POST, admin.create_channel),
        "/channel/delete": Route(_POST, admin.delete_channel),
        "/disable/write": Route(_POST, lambda request: reading.disable_write(_disabled(request))),
    }
    # Here an argument without a value counts as none.
    return Router({path: _without_blanks(route) for path, route in routes.items()}, escaped=False)


def _without_blanks(route: Route) -> Route:
    return route._replace(handler=lambda request: route.handler(request.without_blanks))


class _Reading(Protocol):
    """What can be asked of a lookup daemon, alone or in a cluster."""

    def lookup(
        self, topic: str, *, writing: bool, with_meta: bool, partition: int | None
    ) -> dict[str, Any]: ...

    def topics(self, request: Request) -> Any: ...

    def channels(self, request: Request) -> Any: ...

    def nodes(self, request: Request) -> Any: ...

    def listlookup(self, request: Request) -> Any: ...

    def tombstone(self, request: Request) -> None: ...

    def disable_write(self, kind: str) -> None: ...


def _lookup(reading: _Reading, request: Request) -> Any:
    topic = any_topic(request)
    access = request.query.get("access", "r")
    if access not in ("r", "w"):
        raise HttpError(400, "INVALID_ACCESS_MODE")
    # Any value asks for it, "false" too.
    with_meta = bool(request.query.get("metainfo"))
    partition = _partition(request)
    return reading.lookup(topic, writing=access == "w", with_meta=with_meta, partition=partition)


def _partition(request: Request) -> int | None:
    text = request.query.get("partition", "*")
    if text in ("*", "**", ""):
        return None
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else -1


def _disabled(request: Request) -> str:
    """/disable/write: for which topics lookups for writing name no nsqd; the nsqds go on."""
    kind = request.query.get("type")
    return kind if kind in ("all", "ordered") else ""


def _tombstone_arguments(request: Request) -> tuple[str, str, bool]:
    topic = any_topic(request)
    node = request.query.get("node")
    if node is None:
        raise HttpError(400, "MISSING_ARG_NODE")
    return topic, node, request.query.get("restore") == "true"


class _Coordinated:
    """Answers out of the topology."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def lookup(
        self, topic: str, *, writing: bool, with_meta: bool, partition: int | None
    ) -> dict[str, Any]:
        return self._cluster.answers.lookup(
            topic, writing=writing, with_meta=with_meta, partition=partition
        )

    def topics(self, request: Request) -> Any:
        topics = self._cluster.answers.seen().topics
        names = sorted(topics)
        answer: dict[str, Any] = {"topics": names}
        if request.query.get("metaInfo") == "true":
            answer["meta_info"] = [_topic_info(topics[name]) for name in names]
        return answer

    def channels(self, request: Request) -> Any:
        topic = any_topic(request)
        return {"channels": self._cluster.answers.seen(topic).channels(topic, _partition(request))}

    def nodes(self, request: Request) -> Any:  # noqa: ARG002 - the interface has it
        return {"producers": self._cluster.answers.nodes()}

    def listlookup(self, request: Request) -> Any:  # noqa: ARG002 - the interface has it
        return self._cluster.listlookup()

    def tombstone(self, request: Request) -> None:
        topic, node, restore = _tombstone_arguments(request)
        change = self._cluster.answers.tombstones
        (change.discard if restore else change.add)((topic, node))

    def disable_write(self, kind: str) -> None:
        self._cluster.coordinator.topology.writes_disabled = kind


def _topic_info(meta: TopicMeta) -> dict[str, Any]:
    return {
        "topic_name": meta.name,
        "extend_support": meta.extended,
        "ordered": meta.ordered,
        "multi_part": meta.multi_part,
        "disable_channel_auto_create": not meta.channel_auto_create,
        "registered_channels": None,
    }


class _Alone:
    """Answers out of what nsqds registered."""

    def __init__(self, registrations: Registrations) -> None:
        self._registrations = registrations
        self._writes_disabled = ""

    def lookup(
        self,
        topic: str,
        *,
        writing: bool,
        with_meta: bool,  # noqa: ARG002 - there is none without a coordinator
        partition: int | None,
    ) -> dict[str, Any]:
        known = self._registrations
        partitions: dict[str, Any] = {}
        holders: list[Peer] = []
        without_channel = False
        for peer, number in known.holders(topic):
            if partition not in (None, number):
                continue
            if writing and (peer.is_old or known.is_tombstoned(topic, peer)):
                continue
            if writing and not known.channels(topic, number):
                without_channel = True
                continue
            holders.append(peer)
            if number >= 0:
                partitions[str(number)] = _describe(peer)
        if without_channel and not holders:
            raise HttpError(404, NO_CHANNEL)
        hidden = writing and self._writes_disabled == "all"
        return {
            "channels": known.channels(topic, partition),
            "partitions": None if hidden else partitions,
            "producers": None if hidden else [_describe(peer) for peer in distinct(holders)],
        }

    def topics(self, request: Request) -> Any:  # noqa: ARG002 - the interface has it
        return {"topics": self._registrations.topics()}

    def channels(self, request: Request) -> Any:
        topic = any_topic(request)
        return {"channels": self._registrations.channels(topic, _partition(request))}

    def nodes(self, request: Request) -> Any:  # noqa: ARG002 - the interface has it
        listed = []
        for peer in self._registrations.peers():
            keys = sorted(peer.topics)
            topics = sorted({key.topic for key in keys})
            partitions = {
                topic: [str(key.partition) for key in keys if key.topic == topic]
                for topic in topics
            }
            gone = [self._registrations.is_tombstoned(topic, peer) for topic in topics]
            shown = _describe(peer)
            del shown["id"], shown["distributed_id"]
            listed.append({**shown, "tombstones": gone, "topics": topics, "partitions": partitions})
        return {"producers": listed}

    def listlookup(self, request: Request) -> Any:  # noqa: ARG002 - the interface has it
        return None

    def tombstone(self, request: Request) -> None:
        topic, node, restore = _tombstone_arguments(request)
        self._registrations.tombstone(topic, node, restore=restore)

    def disable_write(self, kind: str) -> None:
        self._writes_disabled = kind


def _describe(peer: Peer) -> dict[str, Any]:
    info = peer.info
    return {
        "id": peer.remote_address,
        "remote_address": peer.remote_address,
        "hostname": info.get("hostname", ""),
        "broadcast_address": info["broadcast_address"],
        "tcp_port": info["tcp_port"],
        "http_port": info["http_port"],
        "version": info["version"],
        "distributed_id": info.get("distributed_id", ""),
    }
