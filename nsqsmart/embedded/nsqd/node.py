"""What the connections of one nsqd share."""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from nsqsmart.embedded.faults import Fault, FaultPlace
from nsqsmart.embedded.nsqd.options import NsqdOptions
from nsqsmart.embedded.serving.connections import Connections
from nsqsmart.embedded.serving.server import Scope
from nsqsmart.wire.identify_server import Policy

_SECOND = 1000
_RPC_PORT_OFFSET = 2


class NsqdNode:
    """An nsqd without its sockets: options, connections, and whether it runs.

    ``gate`` is closed while the node hangs: it accepts and reads, and does nothing else.
    ``name`` is its host:port once it listens.
    """

    def __init__(self, options: NsqdOptions, scope: Scope, connections: Connections) -> None:
        self.options = options
        self.scope = scope
        self.loop = scope.loop
        self.log = scope.log
        self.faults = scope.faults
        self.name = ""
        self.tcp_port = self.http_port = 0
        self.lookupds: list[str] = []
        """The addresses of the lookup daemons that it was told of, in text."""
        self.lookupds_changed: Callable[[list[str]], None] = lambda _: None
        self.hostname = os.uname().nodename
        self.started = int(time.time_ns() // 1_000_000_000)
        self.exiting = False
        self.hung = False
        self.gate = threading.Event()
        self.gate.set()
        self.tls: ssl.SSLContext | None = options.tls_context()
        self.policy = _policy(options, tls=self.tls is not None)
        self.connections = connections
        self._numbers = count(1)

    @property
    def distributed_id(self) -> str:
        """How the nodes of a coordinated cluster name it: host, RPC port, TCP port, number."""
        options = self.options
        rpc = self.tcp_port + _RPC_PORT_OFFSET
        return f"{options.broadcast_address}:{rpc}:{self.tcp_port}:{options.node_id}"

    def introduction(self) -> dict[str, Any]:
        """What it tells a lookup daemon of itself (protocol#lookup-tcp)."""
        return {
            "broadcast_address": self.options.broadcast_address,
            "hostname": self.hostname,
            "tcp_port": self.options.broadcast_tcp_port or self.tcp_port,
            "http_port": self.options.broadcast_http_port or self.http_port,
            "version": self.options.version,
        }

    def next_number(self) -> int:
        """The number of a new connection, from 1."""
        return next(self._numbers)

    def fault(self, command: str, topic: str = "", partition: int | None = None) -> Fault | None:
        """The fault that acts on this command."""
        if not self.faults.armed:
            return None
        return self.faults.take(command, FaultPlace(self.name, topic, partition))


def _policy(options: NsqdOptions, *, tls: bool) -> Policy:
    return Policy(
        dialect=options.dialect,
        version=options.version,
        msg_timeout=round(options.msg_timeout * _SECOND),
        max_msg_timeout=round(options.max_msg_timeout * _SECOND),
        heartbeat_interval=round(options.client_timeout / 2 * _SECOND),
        max_heartbeat_interval=round(options.max_heartbeat_interval * _SECOND),
        max_rdy_count=options.max_rdy_count,
        tls=tls,
        snappy=options.snappy,
        deflate=options.deflate,
        max_deflate_level=options.max_deflate_level,
        auth_required=bool(options.auth_addresses),
    )
