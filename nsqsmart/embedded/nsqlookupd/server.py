"""An nsqlookupd: its ports, and what nsqds tell it over the V1 protocol (protocol#lookup-tcp)."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

from nsqsmart.embedded.commandlog import CommandLog
from nsqsmart.embedded.faults import FaultBook
from nsqsmart.embedded.gotext import shown
from nsqsmart.embedded.nsqlookupd.registering import PeerProtocol
from nsqsmart.embedded.nsqlookupd.registrations import Registrations
from nsqsmart.embedded.serving.http import HttpServer, Request, Response, Router
from nsqsmart.embedded.serving.listening import Ports
from nsqsmart.embedded.serving.loop import Loop
from nsqsmart.embedded.serving.misbehaving import misbehave, place_of
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


class Nsqlookupd:
    """A lookup daemon; ``name`` is the host:port of its HTTP interface.

    Ports that were 0 are chosen at the first :meth:`listen` and kept for the later ones.
    """

    def __init__(
        self, options: LookupdOptions, loop: Loop, faults: FaultBook, log: CommandLog | None
    ) -> None:
        self.options = options
        self.registrations = Registrations(
            inactive_after=_INACTIVE_AFTER[options.dialect],
            tombstone_lifetime=_TOMBSTONE_LIFETIME[options.dialect],
            remembers=options.dialect is Dialect.ORIGINAL,
        )
        self.tcp_address = options.tcp_address
        self.http_address = options.http_address
        self.router: Router | None = None
        self.closing = threading.Event()
        self._faults = faults
        self._log = log
        self._ports = Ports(loop)
        self._http = HttpServer(self._answer, _MAX_BODY)
        self._peers: set[PeerSession] = set()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """host:port of the HTTP interface."""
        return f"{self.http_address[0]}:{self.http_address[1]}"

    @property
    def listening(self) -> bool:
        """Whether it accepts connections."""
        return self._ports.listening

    def __repr__(self) -> str:
        return f"<nsqlookupd {self.name}>"

    def listen(self) -> None:
        """Open both ports; raises OSError if one is taken."""
        self.closing.clear()
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

    def _accept(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        session = PeerSession(sock, peer, self)
        with self._lock:
            self._peers.add(session)
        session.start()

    def _accept_http(self, sock: socket.socket, peer: tuple[str, int]) -> None:  # noqa: ARG002 - the interface has it
        self._http.serve(sock)

    def left(self, session: PeerSession) -> None:
        """A peer's thread has ended."""
        with self._lock:
            self._peers.discard(session)

    def _answer(self, request: Request) -> Response | None:
        topic = request.query.get("topic", "")
        if self._log is not None:
            self._log.add(self.name, 0, f"{request.method} {request.path}", topic)
        fault = None
        if self._faults.armed:
            fault = self._faults.take(request.path, place_of(self.name, request))
        assert self.router is not None  # noqa: S101 - set before it listens
        if fault is None:
            return self.router.answer(request)
        return misbehave(fault, request, self.router, self.closing)

    def stop(self) -> None:
        """Close the ports and end every connection."""
        self._ports.close()
        self.closing.set()
        with self._lock:
            peers = list(self._peers)
        for session in peers:
            session.end()
        self._http.end()
        for session in peers:
            session.join(1.0)

    def release_ports(self) -> None:
        """It does not come back."""
        self._ports.release()


class PeerSession:
    """The thread of one nsqd."""

    def __init__(self, sock: socket.socket, peer: tuple[str, int], lookupd: Nsqlookupd) -> None:
        self._sock = sock
        self._lookupd = lookupd
        self._protocol = PeerProtocol(
            lookupd.registrations, f"{peer[0]}:{peer[1]}", lookupd.options.dialect
        )
        self._protocol.introduce = self._introduction
        self._buffer = b""
        self._thread = threading.Thread(
            target=self._run, name=f"nsqsmart-embedded-peer-{peer[1]}", daemon=True
        )

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def end(self) -> None:
        """End the connection."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout)

    def _introduction(self) -> bytes:
        lookupd = self._lookupd
        document = {
            "broadcast_address": lookupd.options.broadcast_address,
            "hostname": socket.gethostname(),
            "http_port": lookupd.http_address[1],
            "tcp_port": lookupd.tcp_address[1],
            "version": self._protocol.version,
        }
        return json.dumps(document, separators=(",", ":")).encode()

    def _run(self) -> None:
        try:
            if self._read(4) != b"  V1":
                self._send(b"E_BAD_PROTOCOL")
                return
            while True:
                line = self._read_line()
                answer, stays = self._protocol.execute(shown(line).split(), self._read)
                self._send(answer)
                if not stays:
                    return
        except (EOFError, OSError):
            pass
        finally:
            self._protocol.leave()
            self._sock.close()
            self._lookupd.left(self)

    def _send(self, data: bytes) -> None:
        self._sock.sendall(len(data).to_bytes(4) + data)

    def _read(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._more()
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data

    def _read_line(self) -> bytes:
        while b"\n" not in self._buffer:
            self._more()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _more(self) -> None:
        data = self._sock.recv(64 * 1024)
        if not data or len(self._buffer) > _MAX_BODY:
            raise EOFError
        self._protocol.seen(time.monotonic())
        self._buffer += data
