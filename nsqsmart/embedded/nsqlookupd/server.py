"""An nsqlookupd: its ports, and what nsqds tell it over the V1 protocol (protocol#lookup-tcp)."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass

from nsqsmart.embedded.nsqlookupd.registering import PeerSession
from nsqsmart.embedded.nsqlookupd.registrations import Registrations
from nsqsmart.embedded.serving.http import Router
from nsqsmart.embedded.serving.server import Scope, Server
from nsqsmart.embedded.serving.versions import VERSIONS
from nsqsmart.names import Dialect

_MAX_BODY = 1024 * 1024
_INACTIVE_AFTER = {Dialect.ORIGINAL: 300.0, Dialect.REDESIGNED: 60.0}
_TOMBSTONE_LIFETIME = {Dialect.ORIGINAL: 45.0, Dialect.REDESIGNED: float("inf")}


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupdOptions:
    """Options of one nsqlookupd; addresses are (host, port), with port 0 for any."""

    dialect: Dialect = Dialect.REDESIGNED
    tcp_address: tuple[str, int] = ("127.0.0.1", 0)
    http_address: tuple[str, int] = ("127.0.0.1", 0)
    broadcast_address: str = "127.0.0.1"


class Nsqlookupd(Server):
    """A lookup daemon; ``name`` is the host:port of its HTTP interface."""

    def __init__(self, options: LookupdOptions, scope: Scope) -> None:
        super().__init__(options.tcp_address, options.http_address, _MAX_BODY, scope)
        self.options = options
        self.registrations = Registrations(
            inactive_after=_INACTIVE_AFTER[options.dialect],
            tombstone_lifetime=_TOMBSTONE_LIFETIME[options.dialect],
            remembers=options.dialect is Dialect.ORIGINAL,
        )

    @property
    def name(self) -> str:
        """host:port of the HTTP interface."""
        return f"{self.http_address[0]}:{self.http_address[1]}"

    def offer(self, router: Router) -> None:
        """Say what the HTTP port offers; before :meth:`listen`."""
        self._router = router

    def _accept(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        dialect, others = self.options.dialect, self.connections
        PeerSession(sock, peer, others, self.registrations, dialect, self.introduction).start()

    def introduction(self) -> bytes:
        """What it answers to the IDENTIFY of an nsqd (protocol#lookup-tcp)."""
        document = {
            "broadcast_address": self.options.broadcast_address,
            "hostname": socket.gethostname(),
            "http_port": self.http_address[1],
            "tcp_port": self.tcp_address[1],
            "version": VERSIONS[self.options.dialect],
        }
        return json.dumps(document, separators=(",", ":")).encode()
