"""The HTTP interface of a redesigned nsqlookupd, with a coordinator or without."""

from __future__ import annotations

import re
from typing import Any

from nsqsmart.embedded.nsqlookupd.answers import NO_CHANNEL, LookupAnswers
from nsqsmart.embedded.nsqlookupd.operators import LookupdOperators
from nsqsmart.embedded.nsqlookupd.registrations import Peer, Registrations, distinct
from nsqsmart.embedded.serving.arguments import any_topic, argument, set_log_level
from nsqsmart.embedded.serving.http import HttpError, HttpRoute, Request, Response, Router
from nsqsmart.embedded.serving.versions import VERSIONS
from nsqsmart.names import Dialect

_GET, _POST = ("GET",), ("POST",)
_CREATE = ("POST", "PUT")


def redesigned_router(registrations: Registrations, cluster: LookupAnswers | None) -> Router:
    """The paths of a redesigned nsqlookupd; without *cluster* it knows registrations only."""
    reading = _Alone(registrations) if cluster is None else cluster
    operators = LookupdOperators(cluster)
    info = {"version": VERSIONS[Dialect.REDESIGNED], "ha_support": cluster is not None}
    routes = {
        "/ping": HttpRoute(_GET, lambda _: Response(body=b"OK")),
        "/info": HttpRoute(_GET, lambda _: info, negotiated=True),
        "/debug": HttpRoute(_GET, lambda _: {}, negotiated=True),
        "/lookup": HttpRoute(_GET, lambda request: _lookup(reading, request), negotiated=True),
        "/topics": HttpRoute(_GET, lambda request: _topics(reading, request), negotiated=True),
        "/channels": HttpRoute(_GET, lambda request: _channels(reading, request), negotiated=True),
        "/nodes": HttpRoute(_GET, lambda _: {"producers": reading.nodes()}, negotiated=True),
        "/listlookup": HttpRoute(_GET, operators.listlookup, negotiated=True),
        "/topic/create": HttpRoute(_CREATE, operators.create_topic),
        "/topic/delete": HttpRoute(_POST, operators.delete_topic),
        "/topic/partition/expand": HttpRoute(_POST, operators.expand),
        "/topic/partition/move": HttpRoute(_POST, operators.move),
        "/topic/meta/update": HttpRoute(_POST, operators.update_meta),
        "/cluster/stats": HttpRoute(_GET, operators.cluster_stats),
        "/cluster/node/remove": HttpRoute(_POST, operators.need_leader),
        "/cluster/upgrade/begin": HttpRoute(_POST, operators.need_leader),
        "/cluster/upgrade/done": HttpRoute(_POST, operators.need_leader),
        "/cluster/balance/topn": HttpRoute(_POST, operators.need_leader),
        "/cluster/lookupd/tombstone": HttpRoute(_POST, operators.tombstone_lookupd),
        "/loglevel/set": HttpRoute(_POST, set_log_level),
        "/topic/tombstone": HttpRoute(_POST, lambda request: _tombstone(reading, request)),
        "/channel/create": HttpRoute(_POST, operators.create_channel),
        "/channel/delete": HttpRoute(_POST, operators.delete_channel),
        "/disable/write": HttpRoute(
            _POST, lambda request: reading.disable_write(_disabled(request))
        ),
    }
    # Here an argument without a value counts as none.
    return Router({path: _without_blanks(route) for path, route in routes.items()}, escaped=False)


def _without_blanks(route: HttpRoute) -> HttpRoute:
    return route._replace(handler=lambda request: route.handler(request.without_blanks))


def _lookup(reading: LookupAnswers | _Alone, request: Request) -> Any:
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


def _topics(reading: LookupAnswers | _Alone, request: Request) -> dict[str, Any]:
    return reading.topics(with_meta=request.query.get("metaInfo") == "true")


def _channels(reading: LookupAnswers | _Alone, request: Request) -> dict[str, Any]:
    return {"channels": reading.channels(any_topic(request), _partition(request))}


def _tombstone(reading: LookupAnswers | _Alone, request: Request) -> None:
    topic = any_topic(request)
    node = argument(request, "node")
    reading.tombstone(topic, node, restore=request.query.get("restore") == "true")


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

    def topics(self, *, with_meta: bool) -> dict[str, Any]:  # noqa: ARG002 - as above
        return {"topics": self._registrations.topics()}

    def channels(self, topic: str, partition: int | None) -> list[str]:
        return self._registrations.channels(topic, partition)

    def nodes(self) -> list[dict[str, Any]]:
        listed = []
        for peer in self._registrations.peers():
            keys = sorted(peer.topics)
            topics = sorted({key.topic for key in keys})
            partitions = {
                topic: [str(key.partition) for key in keys if key.topic == topic]
                for topic in topics
            }
            gone = [self._registrations.is_tombstoned(topic, peer) for topic in topics]
            told = {"tombstones": gone, "topics": topics, "partitions": partitions}
            listed.append(peer.describe() | told)
        return listed

    def tombstone(self, topic: str, node: str, *, restore: bool) -> None:
        self._registrations.tombstone(topic, node, restore=restore)

    def disable_write(self, kind: str) -> None:
        self._writes_disabled = kind


def _describe(peer: Peer) -> dict[str, Any]:
    distributed_id = peer.info.get("distributed_id", "")
    return {"id": peer.remote_address, **peer.describe(), "distributed_id": distributed_id}
