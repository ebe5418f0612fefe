"""An nsqd: its ports and its node."""

from __future__ import annotations

import socket

from nsqsmart.embedded.nsqd.node import NsqdNode
from nsqsmart.embedded.nsqd.options import NsqdOptions
from nsqsmart.embedded.nsqd.tcp.session import Session, Verbs
from nsqsmart.embedded.serving.http import Request, Response, Router
from nsqsmart.embedded.serving.server import Scope, Server
from nsqsmart.names import Address

_HTTP_SLACK = 1024 * 1024


class Nsqd(Server):
    """A server of one node; ``name`` is its host:port."""

    def __init__(self, options: NsqdOptions, scope: Scope) -> None:
        max_body = options.max_body_size + _HTTP_SLACK
        super().__init__(options.tcp_address, options.http_address, max_body, scope)
        self.node = NsqdNode(options, scope, self.connections)
        self.options = options
        self._commands: Verbs | None = None

    @property
    def name(self) -> str:
        """host:port of the TCP interface, once it has listened."""
        return self.node.name

    def offer(self, commands: Verbs, router: Router) -> None:
        """Say what the two ports offer; before :meth:`listen`."""
        self._commands, self._router = commands, router

    def listen(self) -> None:
        """Open the ports; raises OSError if one is taken."""
        super().listen()
        node, address = self.node, Address(*self.tcp_address)
        node.tcp_port, node.http_port = address.port, self.http_address[1]
        node.name = str(address)

    def listen_https(self, address: tuple[str, int]) -> int:
        """Open the HTTPS port too; the port."""
        return self._ports.open(address, self._accept_https)

    def _accept(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        commands = self._commands
        assert commands is not None  # noqa: S101 - offered before it listens
        Session(sock, peer, self.node, commands).start()

    def _accept_https(self, sock: socket.socket, peer: tuple[str, int]) -> None:  # noqa: ARG002 - the interface has it
        self._http.serve(sock, self.node.tls)

    def _answer(self, request: Request) -> Response | None:
        if self.node.hung:
            self.node.gate.wait()
        return super()._answer(request)

    def begin_stop(self) -> None:
        """Threads that wait for a hung node go on, and see that it is over."""
        self.node.gate.set()
        super().begin_stop()

    def stop(self, *, abruptly: bool = False) -> None:
        """Threads that wait for a hung node go on, and see that it is over."""
        self.node.gate.set()
        super().stop(abruptly=abruptly)
