"""/config/OPTION of an nsqd: what it was told, and the little that may be changed.

See protocol#http.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

from nsqsmart.embedded.nsqd.node import NsqdNode
from nsqsmart.embedded.nsqd.options import NsqdOptions
from nsqsmart.embedded.serving.flags import address
from nsqsmart.embedded.serving.http import HttpError, HttpRoute, Request

_NANOSECONDS = 1_000_000_000
_LOG_LEVELS = {"debug": 1, "info": 2, "warn": 3, "error": 4, "fatal": 5}
# What a redesigned nsqd allows unless told otherwise; here there is no limit then.
_CONNECTIONS = 15_000
_WAITING = 200 * 1024 * 1024
_AS_THEY_ARE = """
    broadcast_address mem_queue_size max_msg_size max_body_size max_rdy_count max_deflate_level
    snappy deflate
"""

Getter = Callable[[NsqdOptions], Any]


def _nanoseconds(name: str) -> Getter:
    return lambda options: round(getattr(options, name) * _NANOSECONDS)


def _path(name: str) -> Getter:
    return lambda options: str(getattr(options, name) or "")


def _address(name: str) -> Getter:
    def get(options: NsqdOptions) -> str:
        where = getattr(options, name)
        return f"{where[0]}:{where[1]}" if where else ""

    return get


_BOTH: dict[str, Getter] = {
    "https_address": _address("https_address"),
    "data_path": _path("data_path"),
    "tls_cert": _path("tls_cert"),
    "tls_key": _path("tls_key"),
    "tls_root_ca_file": _path("tls_root_ca"),
    "msg_timeout": _nanoseconds("msg_timeout"),
    "max_msg_timeout": _nanoseconds("max_msg_timeout"),
    "max_heartbeat_interval": _nanoseconds("max_heartbeat_interval"),
    "sync_timeout": _nanoseconds("sync_timeout"),
    "max_req_timeout": lambda options: round(options.limits().max_requeue_delay * _NANOSECONDS),
    "tls_client_auth_policy": attrgetter("tls_client_policy"),
    "tls_required": lambda options: int(options.tls_required),
    "auth_http_addresses": lambda options: list(options.auth_addresses),
    **{name: attrgetter(name) for name in _AS_THEY_ARE.split()},
}
_REDESIGNED: dict[str, Getter] = {
    "allow_ext_compatible": attrgetter("allow_ext_compatible"),
    "allow_sub_ext_compatible": attrgetter("allow_sub_ext_compatible"),
    "max_conn_for_client": lambda options: options.max_connections or _CONNECTIONS,
    "max_confirm_win": attrgetter("max_confirm_window"),
}
_WRITABLE = {
    "allow_ext_compatible": "allow_ext_compatible",
    "allow_sub_ext_compatible": "allow_sub_ext_compatible",
    "max_conn_for_client": "max_connections",
}


def config_route(node: NsqdNode) -> HttpRoute:
    """The path of every option."""
    return HttpRoute(("GET", "PUT"), _Config(node).answer)


class _Config:
    def __init__(self, node: NsqdNode) -> None:
        self._node = node
        self._known = _BOTH | _REDESIGNED if node.options.redesigned else _BOTH
        # What can be asked and changed, and means nothing here.
        self._idle: dict[str, Any] = {"log_level": 2}
        if node.options.redesigned:
            self._idle |= {"verbose": False, "max_pub_waiting_size": _WAITING}

    def answer(self, request: Request) -> Any:
        """The value: text as it is, everything else as JSON."""
        name = request.path.rpartition("/")[2]
        if request.method == "PUT":
            self._put(name, request.body)
        if name == "nsqlookupd_tcp_addresses":
            return list(self._node.lookupds)
        if name in ("tcp_address", "http_address"):
            return self._address(name)
        if name in self._idle:
            return self._idle[name]
        if name not in self._known:
            raise HttpError(400, "INVALID_OPTION")
        return self._known[name](self._node.options)

    def _address(self, name: str) -> str:
        """With the port that was chosen, where it was left open."""
        node = self._node
        where, port = node.options.tcp_address, node.tcp_port
        if name == "http_address":
            where, port = node.options.http_address, node.http_port
        return f"{where[0]}:{port}"

    def _put(self, name: str, body: bytes) -> None:
        if not body or len(body) > self._node.options.max_msg_size:
            raise HttpError(413, "INVALID_VALUE")
        if name == "nsqlookupd_tcp_addresses":
            self._node.lookupds = self._read(name, body, [])
            self._node.lookupds_changed(self._node.lookupds)
        elif name == "log_level" and not self._node.options.redesigned:
            level = _LOG_LEVELS.get(body.decode("latin-1").lower())
            if level is None:
                raise HttpError(400, "INVALID_VALUE")
            self._idle[name] = level
        elif name in self._idle:
            self._idle[name] = self._read(name, body, self._idle[name])
        elif name in _WRITABLE and name in self._known:
            before = self._known[name](self._node.options)
            changes: dict[str, Any] = {_WRITABLE[name]: self._read(name, body, before)}
            self._node.options = replace(self._node.options, **changes)
        else:
            raise HttpError(400, "INVALID_OPTION")

    @staticmethod
    def _read(name: str, body: bytes, before: object) -> Any:
        """The new value, which must be of the kind of the old one."""
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise HttpError(400, "INVALID_VALUE") from error
        if value is None:
            # Go leaves what it has.
            return before
        fits = type(value) is type(before)
        if name == "nsqlookupd_tcp_addresses":
            fits = fits and all(_is_address(each) for each in value)
        if not fits:
            raise HttpError(400, "INVALID_VALUE")
        return value


def _is_address(text: object) -> bool:
    try:
        address(str(text))
    except ValueError:
        return False
    return isinstance(text, str)
