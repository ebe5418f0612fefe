"""The HTTP interface of an original nsqd (protocol#http)."""

from __future__ import annotations

from typing import Any

from nsqsmart.embedded.broker.log import NewMessage
from nsqsmart.embedded.gotext import digits
from nsqsmart.embedded.nsqd.hosting import OriginalShard, OriginalTopics, publish_deferred
from nsqsmart.embedded.nsqd.http.config import config_route
from nsqsmart.embedded.nsqd.http.posting import read_binary, read_lines
from nsqsmart.embedded.nsqd.http.stats import original_stats
from nsqsmart.embedded.nsqd.http.stats_text import original_text
from nsqsmart.embedded.nsqd.node import NsqdNode
from nsqsmart.embedded.serving.arguments import argument, topic_and_channel, topic_argument
from nsqsmart.embedded.serving.http import HttpError, HttpRoute, Request, Response, Router

_GET, _POST = ("GET",), ("POST",)
_NANOSECONDS = 1_000_000_000


def original_nsqd_router(node: NsqdNode, topics: OriginalTopics) -> Router:
    """The paths of an original nsqd."""
    api = _NsqdApi(node, topics)
    routes = {
        "/ping": HttpRoute(_GET, lambda _: Response(body=b"OK")),
        "/info": HttpRoute(_GET, api.info),
        "/config/*": config_route(node),
        "/pub": HttpRoute(_POST, api.pub),
        "/mpub": HttpRoute(_POST, api.mpub),
        "/stats": HttpRoute(_GET, api.stats),
        "/topic/create": HttpRoute(_POST, api.create_topic),
        "/topic/delete": HttpRoute(_POST, api.delete_topic),
        "/topic/empty": HttpRoute(_POST, api.empty_topic),
        "/topic/pause": HttpRoute(_POST, lambda request: api.pause_topic(request, paused=True)),
        "/topic/unpause": HttpRoute(_POST, lambda request: api.pause_topic(request, paused=False)),
        "/channel/create": HttpRoute(_POST, api.create_channel),
        "/channel/delete": HttpRoute(_POST, api.delete_channel),
        "/channel/empty": HttpRoute(_POST, api.empty_channel),
        "/channel/pause": HttpRoute(_POST, lambda request: api.pause_channel(request, paused=True)),
        "/channel/unpause": HttpRoute(
            _POST, lambda request: api.pause_channel(request, paused=False)
        ),
    }
    return Router(routes, escaped=True)


class _NsqdApi:
    def __init__(self, node: NsqdNode, topics: OriginalTopics) -> None:
        self._node = node
        self._topics = topics

    def info(self, request: Request) -> Any:  # noqa: ARG002 - the interface has it
        node = self._node
        options = node.options
        return {
            "version": options.version,
            "broadcast_address": options.broadcast_address,
            "hostname": node.hostname,
            "http_port": node.http_port,
            "tcp_port": node.tcp_port,
            "start_time": node.started,
            "max_heartbeat_interval": round(options.max_heartbeat_interval * _NANOSECONDS),
            "max_output_buffer_size": 65536,
            "max_output_buffer_timeout": 30 * _NANOSECONDS,
            "max_deflate_level": options.max_deflate_level,
            "topology_zone": "",
            "topology_region": "",
        }

    # ------------------------------------------------------------------------------- publishing

    def pub(self, request: Request) -> str:
        limit = self._node.options.max_msg_size
        if len(request.body) > limit:
            raise HttpError(413, "MSG_TOO_BIG")
        if not request.body:
            raise HttpError(400, "MSG_EMPTY")
        topic = self._topic(request)
        delay = self._delay(request)
        shard = self._topics.get(topic)
        if delay:
            for sink in set(publish_deferred(shard, request.body, delay)):
                sink.flush()
        else:
            self._store(shard, [request.body])
        return "OK"

    def mpub(self, request: Request) -> str:
        options = self._node.options
        if len(request.body) > options.max_body_size:
            raise HttpError(413, "BODY_TOO_BIG")
        topic = self._topic(request)
        # Anything but a plain no means binary (protocol#http).
        binary = request.query.get("binary", "false") not in ("false", "0")
        read = read_binary if binary else read_lines
        bodies = read(request.body, options.max_msg_size, options.max_body_size)
        shard = self._topics.get(topic)
        self._store(shard, bodies)
        return "OK"

    def _store(self, shard: OriginalShard, bodies: list[bytes]) -> None:
        entries: list[NewMessage] = [(body, 0, None) for body in bodies]
        _, woken = shard.publish(self._node, entries)
        for sink in set(woken):
            sink.flush()

    def _topic(self, request: Request) -> str:
        if self._node.exiting:
            raise HttpError(503, "EXITING")
        return topic_argument(request, "INVALID_TOPIC")

    def _delay(self, request: Request) -> float:
        text = request.query.get("defer")
        if text is None:
            return 0.0
        delay = digits(text.encode()) if text else None
        longest = self._node.options.limits().max_requeue_delay
        if delay is None or delay / 1000 > longest:
            raise HttpError(400, "INVALID_DEFER")
        return delay / 1000

    # ------------------------------------------------------------------------- topics, channels

    def create_topic(self, request: Request) -> None:
        self._topics.get(topic_argument(request, "INVALID_TOPIC"))

    def delete_topic(self, request: Request) -> None:
        if not self._topics.delete(argument(request, "topic")):
            raise HttpError(404, "TOPIC_NOT_FOUND")

    def empty_topic(self, request: Request) -> None:
        shard = self._find(topic_argument(request, "INVALID_TOPIC"))
        with shard.lock:
            shard.partition.empty()

    def pause_topic(self, request: Request, *, paused: bool) -> None:
        shard = self._find(argument(request, "topic"))
        with shard.lock:
            shard.partition.pause(paused=paused)
        shard.pump()

    def create_channel(self, request: Request) -> None:
        topic, channel = topic_and_channel(request)
        self._topics.create_channel(self._find(topic), channel)

    def delete_channel(self, request: Request) -> None:
        topic, channel = topic_and_channel(request)
        if not self._topics.delete_channel(self._find(topic), channel):
            raise HttpError(404, "CHANNEL_NOT_FOUND")

    def empty_channel(self, request: Request) -> None:
        shard, name = self._channel(request)
        with shard.lock:
            shard.partition.channels[name].empty()

    def pause_channel(self, request: Request, *, paused: bool) -> None:
        shard, name = self._channel(request)
        shard.partition.channels[name].paused = paused
        shard.pump()

    def _find(self, topic: str) -> OriginalShard:
        shard = self._topics.find(topic)
        if shard is None:
            raise HttpError(404, "TOPIC_NOT_FOUND")
        return shard

    def _channel(self, request: Request) -> tuple[OriginalShard, str]:
        topic, channel = topic_and_channel(request)
        shard = self._find(topic)
        if channel not in shard.partition.channels:
            raise HttpError(404, "CHANNEL_NOT_FOUND")
        return shard, channel

    def stats(self, request: Request) -> Any:
        document = original_stats(self._node, self._topics, request.query)
        if request.query.get("format") != "json":
            return Response(body=original_text(document).encode())
        return document
