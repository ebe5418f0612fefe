"""An nsqd: its ports and its node."""

from __future__ import annotations

import socket
import threading

from nsqsmart.embedded.nsqd.node import Node, Scope
from nsqsmart.embedded.nsqd.options import NsqdOptions
from nsqsmart.embedded.nsqd.tcp.session import Commands, Session
from nsqsmart.embedded.serving.http import HttpServer, Request, Response, Router
from nsqsmart.embedded.serving.listening import Ports
from nsqsmart.embedded.serving.misbehaving import misbehave, place_of

_HTTP_SLACK = 1024 * 1024


class Nsqd:
    """A server of one node; ``name`` is its host:port.

    Ports that were 0 are chosen at the first :meth:`listen` and kept for the later ones.
    """

    def __init__(self, options: NsqdOptions, scope: Scope) -> None:
        self.node = Node(options, scope)
        self.options = options
        self._tcp_wanted = options.tcp_address
        self._http_wanted = options.http_address
        self._ports = Ports(self.node.loop)
        self._commands: Commands | None = None
        self._router: Router | None = None
        self._closing = threading.Event()
        self._http = HttpServer(self._answer, options.max_body_size + _HTTP_SLACK)

    @property
    def name(self) -> str:
        """host:port of the TCP interface."""
        return self.node.name

    @property
    def tcp_address(self) -> tuple[str, int]:
        """Where clients connect."""
        return self._tcp_wanted

    @property
    def http_address(self) -> tuple[str, int]:
        """Where the HTTP interface is."""
        assert self._http_wanted is not None  # noqa: S101 - every nsqd of a cluster has one
        return self._http_wanted

    @property
    def listening(self) -> bool:
        """Whether it accepts connections."""
        return self._ports.listening

    def __repr__(self) -> str:
        return f"<nsqd {self.name}>"

    def offer(self, commands: Commands, router: Router) -> None:
        """Say what the two ports offer; before :meth:`listen`."""
        self._commands, self._router = commands, router

    def listen(self) -> None:
        """Open the ports; raises OSError if one is taken."""
        node = self.node
        self._closing.clear()
        self._ports.release()
        try:
            tcp = self._ports.open(self._tcp_wanted, self._accept)
            self._tcp_wanted = (self._tcp_wanted[0], tcp)
            if self._http_wanted is not None:
                http = self._ports.open(self._http_wanted, self._accept_http)
                self._http_wanted = (self._http_wanted[0], http)
                node.http_port = http
        except OSError:
            self._ports.close()
            self._ports.release()
            raise
        node.tcp_port = tcp
        host = self._tcp_wanted[0]
        node.name = f"[{host}]:{tcp}" if ":" in host else f"{host}:{tcp}"

    def listen_https(self, address: tuple[str, int]) -> int:
        """Open the HTTPS port too; the port."""
        return self._ports.open(address, self._accept_https)

    def _accept(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        commands = self._commands
        assert commands is not None  # noqa: S101 - offered before it listens
        Session(sock, peer, self.node, commands).start()

    def _accept_http(self, sock: socket.socket, peer: tuple[str, int]) -> None:  # noqa: ARG002 - the interface has it
        self._http.serve(sock)

    def _accept_https(self, sock: socket.socket, peer: tuple[str, int]) -> None:  # noqa: ARG002 - the interface has it
        self._http.serve(sock, self.node.tls)

    def _answer(self, request: Request) -> Response | None:
        node = self.node
        if node.hung:
            node.gate.wait()
        place = place_of(node.name, request)
        node.note(0, f"{request.method} {request.path}", place.topic)
        fault = node.fault(request.path, place.topic, place.partition)
        assert self._router is not None  # noqa: S101 - offered before it listens
        if fault is None:
            return self._router.answer(request)
        return misbehave(fault, request, self._router, self._closing)

    def stop_listening(self) -> None:
        """Refuse new connections."""
        self._ports.close()

    def _release(self) -> None:
        """Threads that wait go on, and see that it is over."""
        self.node.gate.set()
        self._closing.set()

    def begin_stop(self) -> None:
        """Close the ports and tell every connection to end, without waiting."""
        self.stop_listening()
        self._release()
        for connection in self.node.connections():
            connection.end()

    def stop(self, *, abruptly: bool) -> None:
        """Close the ports and end every connection."""
        self.stop_listening()
        self._release()
        self.node.end_connections(abruptly=abruptly)
        self._http.end()

    def release_ports(self) -> None:
        """It does not come back."""
        self._ports.release()
