"""What nsqd and nsqlookupd have in common: two ports, and HTTP with faults and a log."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from nsqsmart.embedded.commandlog import CommandLog
from nsqsmart.embedded.faults import FaultBook
from nsqsmart.embedded.serving.connections import Connections
from nsqsmart.embedded.serving.http import HttpServer, Request, Response, Router
from nsqsmart.embedded.serving.listening import Ports
from nsqsmart.embedded.serving.loop import Loop
from nsqsmart.embedded.serving.misbehaving import misbehave, place_of

Host = tuple[str, int]


def _no_leaders(_topic: str, _partition: int) -> None:
    """Outside a redesigned cluster nothing has a leader that could move."""


class Scope:
    """What several nodes share: the loop, the faults and the log of a cluster."""

    def __init__(self, name: str, *, logging: bool) -> None:
        self.loop = Loop(name)
        self.faults = FaultBook()
        self.log: CommandLog | None = CommandLog() if logging else None
        self.move_leader: Callable[[str, int], None] = _no_leaders


class Server:
    """A server with a TCP port and an HTTP port; addresses are (host, port).

    Ports that were 0 are chosen at the first :meth:`listen` and kept for the later ones.
    """

    def __init__(self, tcp: Host, http: Host, max_body: int, scope: Scope) -> None:
        self.tcp_address = tcp
        self.http_address = http
        self.scope = scope
        self.connections = Connections()
        """Those of the TCP port."""
        self._ports = Ports(scope.loop)
        self._router: Router | None = None
        self._closing = threading.Event()
        self._http = HttpServer(self._answer, max_body)

    @property
    def name(self) -> str:
        """host:port, by which faults and the log name it."""
        raise NotImplementedError

    @property
    def listening(self) -> bool:
        """Whether it accepts connections."""
        return self._ports.listening

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} {self.name}>"

    def listen(self) -> None:
        """Open both ports; raises OSError if one is taken."""
        self._closing.clear()
        self._ports.release()
        try:
            tcp = self._ports.open(self.tcp_address, self._accept)
            http = self._ports.open(self.http_address, self._accept_http)
        except OSError:
            self._ports.close()
            self._ports.release()
            raise
        self.tcp_address = (self.tcp_address[0], tcp)
        self.http_address = (self.http_address[0], http)

    def _accept(self, sock: socket.socket, peer: Host) -> None:
        """Serve a client of the TCP port."""
        raise NotImplementedError

    def _accept_http(self, sock: socket.socket, peer: Host) -> None:  # noqa: ARG002 - the interface has it
        self._http.serve(sock)

    def _answer(self, request: Request) -> Response | None:
        """The answer, unless a fault acts on it."""
        faults, log = self.scope.faults, self.scope.log
        place = place_of(self.name, request)
        if log is not None:
            log.add(self.name, 0, f"{request.method} {request.path}", place.topic)
        fault = faults.take(request.path, place) if faults.armed else None
        assert self._router is not None  # noqa: S101 - set before it listens
        if fault is None:
            return self._router.answer(request)
        return misbehave(fault, request, self._router, self._closing)

    def stop_listening(self) -> None:
        """Refuse new connections."""
        self._ports.close()

    def begin_stop(self) -> None:
        """Close the ports and tell every connection to end, without waiting."""
        self.stop_listening()
        self._closing.set()
        self.connections.begin_end()

    def stop(self, *, abruptly: bool = False) -> None:
        """Close the ports and end every connection."""
        self.stop_listening()
        self._closing.set()
        self.connections.end(abruptly=abruptly)
        self._http.connections.end()

    def release_ports(self) -> None:
        """It does not come back."""
        self._ports.release()
