"""The HTTP interface of a redesigned nsqd (protocol#http)."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote_to_bytes

from nsqsmart.embedded.broker.ext import (
    BadHeader,
    BadTraceId,
    only_internal,
    read_header,
)
from nsqsmart.embedded.broker.log import NewMessage, RecordTooLong
from nsqsmart.embedded.broker.records import Extension, Record
from nsqsmart.embedded.broker.redesigned_channel import NOT_IN_FLIGHT
from nsqsmart.embedded.gotext import GoError, atoi, parse_uint
from nsqsmart.embedded.nsqd.hosting import RedesignedHosting, RedesignedShard
from nsqsmart.embedded.nsqd.http.config import config_route
from nsqsmart.embedded.nsqd.http.operators import (
    ChannelPaths,
    NsqdOperators,
    find_or_not_exist,
    find_shard,
)
from nsqsmart.embedded.nsqd.http.posting import read_binary, read_lines
from nsqsmart.embedded.nsqd.http.stats import redesigned_stats
from nsqsmart.embedded.nsqd.http.stats_text import redesigned_text
from nsqsmart.embedded.nsqd.node import NsqdNode
from nsqsmart.embedded.nsqd.offsets import OffsetRefused, find_index, parse_position
from nsqsmart.embedded.nsqd.refusals import CommandRefused
from nsqsmart.embedded.serving.http import HttpError, HttpRoute, Request, Response, Router, dumps
from nsqsmart.wire.answers import NOT_LEADER
from nsqsmart.wire.ext import TRACE_ID

_GET, _POST = ("GET",), ("POST",)
_EXT_PREFIX = "x-nsqext-"
_NOT_FOUND = 404


def redesigned_nsqd_router(node: NsqdNode, hosting: RedesignedHosting) -> Router:
    """The paths of a redesigned nsqd."""
    posts, channels = _Publishing(node, hosting), _Channels(node, hosting)
    operators = NsqdOperators(node, hosting)
    routes = {
        "/ping": HttpRoute(_GET, lambda _: Response(body=b"OK")),
        "/info": HttpRoute(_GET, posts.info, negotiated=True),
        "/pub": HttpRoute(_POST, posts.pub, negotiated=True),
        "/pub_ext": HttpRoute(_POST, posts.pub_ext, negotiated=True),
        "/mpub": HttpRoute(_POST, posts.mpub, negotiated=True),
        "/pubtrace": HttpRoute(_POST, posts.pub_trace),
        "/stats": HttpRoute(_GET, channels.stats, negotiated=True),
        "/channel/create": HttpRoute(_POST, channels.create),
        "/channel/delete": HttpRoute(_POST, channels.delete),
        "/channel/empty": HttpRoute(_POST, channels.empty),
        "/channel/pause": HttpRoute(_POST, lambda request: channels.pause(request, paused=True)),
        "/channel/unpause": HttpRoute(_POST, lambda request: channels.pause(request, paused=False)),
        "/channel/skip": HttpRoute(_POST, lambda request: channels.skip(request, skipped=True)),
        "/channel/unskip": HttpRoute(_POST, lambda request: channels.skip(request, skipped=False)),
        "/channel/setoffset": HttpRoute(_POST, channels.set_offset),
        "/channel/setorder": HttpRoute(_POST, channels.set_order),
        "/message/finish": HttpRoute(_POST, channels.finish),
        **operators.routes(),
        "/config/*": config_route(node),
    }
    return Router(routes, escaped=False)


class _Publishing:
    def __init__(self, node: NsqdNode, hosting: RedesignedHosting) -> None:
        self._node = node
        self._hosting = hosting

    def info(self, request: Request) -> Any:  # noqa: ARG002 - the interface has it
        node = self._node
        return {
            "version": node.options.version,
            "broadcast_address": node.options.broadcast_address,
            "hostname": node.hostname,
            "http_port": node.http_port,
            "tcp_port": node.tcp_port,
            "start_time": node.started,
            "ha_support": self._hosting.coordinated,
        }

    def pub(self, request: Request) -> str:
        shard, body = self._begin(request)
        self._store(shard, [(body, 0, None)])
        return "OK"

    def pub_trace(self, request: Request) -> Any:
        shard, body = self._begin(request)
        text = request.query.get("trace_id", "")
        try:
            trace = parse_uint(text.encode())
        except GoError as error:
            raise HttpError(400, "INVALID_TRACE_ID") from error
        return _receipt(self._store(shard, [(body, trace, None)]), text)

    def pub_ext(self, request: Request) -> Any:
        shard, body = self._begin(request)
        extension, trace = self._header(request)
        kept: Extension | None = extension
        if not shard.meta.extended:
            if not (self._node.options.allow_ext_compatible and only_internal(extension)):
                raise HttpError(400, "E_EXT_NOT_SUPPORT")
            kept = None
        records = self._store(shard, [(body, trace or 0, kept)])
        return "OK" if trace is None else _receipt(records, str(trace))

    def _header(self, request: Request) -> tuple[Extension, int | None]:
        """The JSON of the argument and of X-Nsqext- headers; the argument is unescaped twice."""
        data = unquote_to_bytes(request.query.get("ext", ""))
        given = {
            name.removeprefix(_EXT_PREFIX): value
            for name, value in request.headers.items()
            if name.startswith(_EXT_PREFIX)
        }
        try:
            values = json.loads(data)
            if not isinstance(values, dict):
                raise HttpError(400, "E_INVALID_JSON_HEADER")
            # Written anew, with sorted names, whatever was sent.
            extension, trace = read_header(dumps(dict(sorted({**values, **given}.items()))))
        except (ValueError, RecursionError, BadHeader) as error:
            raise HttpError(400, "E_INVALID_JSON_HEADER") from error
        except BadTraceId as error:
            raise HttpError(400, "INVALID_TRACE_ID") from error
        return extension, trace if TRACE_ID in extension.values else None

    def mpub(self, request: Request) -> str:
        options = self._node.options
        if len(request.body) > options.max_body_size:
            raise HttpError(413, "BODY_TOO_BIG")
        shard = find_shard(self._hosting, request)
        # Any value, "false" too, means binary (protocol#http).
        read = read_binary if "binary" in request.query else read_lines
        bodies = read(request.body, options.max_msg_size, options.max_body_size)
        # A real one waits here for another publisher's message (protocol#http); that helps no test.
        self._store(shard, [(body, 0, None) for body in bodies])
        return "OK"

    def _begin(self, request: Request) -> tuple[RedesignedShard, bytes]:
        if len(request.body) > self._node.options.max_msg_size:
            raise HttpError(413, "MSG_TOO_BIG")
        if not request.body or request.chunked:
            raise HttpError(406, "MSG_EMPTY")
        shard = find_or_not_exist(self._hosting, request)
        if shard.leader is not self._node:
            raise HttpError(400, NOT_LEADER)
        return shard, request.body

    def _store(self, shard: RedesignedShard, entries: list[NewMessage]) -> list[Record]:
        if self._node.exiting:
            raise HttpError(503, "exiting")
        try:
            records, woken = shard.publish(self._node, entries)
        except CommandRefused as refused:
            raise HttpError(400, refused.code) from refused
        except RecordTooLong as error:
            raise HttpError(503, str(error)) from error
        for sink in set(woken):
            sink.flush()
        return records


def _receipt(records: list[Record], trace: str) -> dict[str, Any]:
    first = records[0]
    return {
        "status": "OK",
        "id": int.from_bytes(first.key),
        "trace_id": trace,
        "queue_offset": first.offset,
        "rawsize": first.size,
    }


class _Channels(ChannelPaths):
    def stats(self, request: Request) -> Any:
        document = redesigned_stats(self._node, self._hosting, request.query)
        if request.query.get("format") != "json":
            return Response(body=redesigned_text(document).encode())
        return document

    def create(self, request: Request) -> None:
        shard, name = self._begin(request)
        self._check_leader(shard)
        if not shard.meta.channel_auto_create:
            text = f"channel {name} not registered. channel should be initialized before use."
            raise HttpError(403, text)
        with shard.lock:
            shard.partition.create_channel(name)
        self._hosting.channel_changed(shard, name, there=True)

    def delete(self, request: Request) -> None:
        shard, name = self._begin(request)
        self._check_leader(shard)
        if not shard.meta.channel_auto_create:
            # The server's words, letter by letter.
            text = f"topic {shard.meta.name} has channel auto create disabled. "
            text += f"channel {name} cuold not be deleted localy in nsqd."
            raise HttpError(403, text)
        with shard.lock:
            gone = shard.partition.delete_channel(name)
        for consumer in gone:
            consumer.sink.end()
        self._hosting.channel_changed(shard, name, there=False)

    def empty(self, request: Request) -> None:
        shard, channel = self._channel(request)
        with shard.lock:
            channel.empty()

    def pause(self, request: Request, *, paused: bool) -> None:
        shard, channel = self._channel(request)
        channel.paused = paused
        shard.pump()

    def skip(self, request: Request, *, skipped: bool) -> None:
        shard, channel = self._channel(request)
        with shard.lock:
            channel.skipped = skipped
            if skipped:
                channel.empty()

    def set_offset(self, request: Request) -> None:
        """Forced, even with several consumers; they stay connected."""
        shard, channel = self._channel(request)
        if not request.body:
            raise HttpError(406, "MSG_EMPTY")
        try:
            position = parse_position(request.body)
        except (OffsetRefused, ValueError) as error:
            raise HttpError(400, str(error)) from error
        coordinated = self._hosting.coordinated
        try:
            with shard.lock:
                channel.move_to(find_index(shard, position, coordinated=coordinated))
        except OffsetRefused as error:
            raise HttpError(500, str(error)) from error
        shard.pump()

    def set_order(self, request: Request) -> None:
        """Also disconnects the consumers of the channel (protocol#ordered)."""
        shard, channel = self._channel(request)
        order = request.query.get("order")
        if order not in ("true", "false"):
            raise HttpError(400, "INVALID_OPTION")
        with shard.lock:
            channel.set_ordered(ordered=order == "true")
            gone = list(channel.consumers)
        for consumer in gone:
            consumer.sink.end()

    def finish(self, request: Request) -> None:
        """/message/finish: finish a message, whichever consumer has it."""
        shard, channel = self._channel(request)
        try:
            number = atoi(request.query.get("msgid", "").encode(), "ParseInt")
        except GoError as error:
            raise HttpError(400, "INVALID_REQUEST") from error
        key = number.to_bytes(8, signed=True)
        with shard.lock:
            owner = next((each for each in channel.consumers if each.holds(key)), None)
            if owner is None:
                raise HttpError(500, NOT_IN_FLIGHT)
            channel.finish_many(owner, [key])
        shard.pump()
