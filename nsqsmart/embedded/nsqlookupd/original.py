"""The HTTP interface of an original nsqlookupd (protocol#lookup)."""

from __future__ import annotations

from typing import Any

from nsqsmart.embedded.nsqlookupd.registrations import Peer, Registrations, distinct
from nsqsmart.embedded.serving.arguments import (
    any_topic,
    argument,
    topic_and_channel,
    topic_argument,
)
from nsqsmart.embedded.serving.http import HttpError, HttpRoute, Request, Response, Router
from nsqsmart.embedded.serving.versions import VERSIONS
from nsqsmart.names import Dialect

_GET, _POST = ("GET",), ("POST",)


def original_router(registrations: Registrations) -> Router:
    """The paths of an original nsqlookupd."""
    api = _LookupdApi(registrations)
    routes = {
        "/ping": HttpRoute(_GET, lambda _: Response(body=b"OK")),
        "/info": HttpRoute(_GET, lambda _: {"version": VERSIONS[Dialect.ORIGINAL]}),
        "/debug": HttpRoute(_GET, lambda _: {}),
        "/lookup": HttpRoute(_GET, api.lookup),
        "/topics": HttpRoute(_GET, lambda _: {"topics": registrations.topics()}),
        "/channels": HttpRoute(_GET, api.channels),
        "/nodes": HttpRoute(_GET, api.nodes),
        "/topic/create": HttpRoute(_POST, api.create_topic),
        "/topic/delete": HttpRoute(_POST, api.delete_topic),
        "/topic/tombstone": HttpRoute(_POST, api.tombstone),
        "/channel/create": HttpRoute(_POST, api.create_channel),
        "/channel/delete": HttpRoute(_POST, api.delete_channel),
    }
    return Router(routes, escaped=True)


class _LookupdApi:
    def __init__(self, registrations: Registrations) -> None:
        self._registrations = registrations

    def lookup(self, request: Request) -> Any:
        topic = any_topic(request)
        known = self._registrations
        if not known.knows(topic):
            raise HttpError(404, "TOPIC_NOT_FOUND")
        peers = distinct(peer for peer, _ in known.holders(topic))
        shown = [_describe(peer) for peer in peers if not known.is_tombstoned(topic, peer)]
        return {"channels": known.channels(topic), "producers": shown}

    def channels(self, request: Request) -> Any:
        return {"channels": self._registrations.channels(any_topic(request))}

    def nodes(self, request: Request) -> Any:  # noqa: ARG002 - the interface has it
        listed = []
        for peer in self._registrations.peers():
            topics = sorted({key.topic for key in list(peer.topics)})
            gone = [self._registrations.is_tombstoned(topic, peer) for topic in topics]
            listed.append({**_describe(peer), "tombstones": gone, "topics": topics})
        return {"producers": listed}

    def create_topic(self, request: Request) -> None:
        self._registrations.make(topic_argument(request))

    def delete_topic(self, request: Request) -> None:
        self._registrations.forget_topic(any_topic(request))

    def create_channel(self, request: Request) -> None:
        topic, channel = topic_and_channel(request)
        self._registrations.make(topic, channel)

    def delete_channel(self, request: Request) -> None:
        topic, channel = topic_and_channel(request)
        if not self._registrations.forget_channel(topic, channel):
            raise HttpError(404, "CHANNEL_NOT_FOUND")

    def tombstone(self, request: Request) -> None:
        topic = any_topic(request)
        self._registrations.tombstone(topic, argument(request, "node"))


def _describe(peer: Peer) -> dict[str, Any]:
    places = {name: peer.info.get(name, "") for name in ("topology_zone", "topology_region")}
    return peer.describe() | places
