"""A TCP proxy that does harm on command: between a client and an nsqd, or an nsqlookupd.

::

    with Proxy("127.0.0.1:4150") as proxy:
        proxy.add(on("PUB", nth=2).cut(after=10))     # the second PUB is cut after 10 bytes
        producer = nsqsmart.Producer(address, address_map=proxy.address_map)

Unlike the faults of :mod:`nsqsmart.embedded` it works with real servers, and can do what no server
does: tear a command in the middle, swallow it, lose one side of a connection.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Self, cast

from nsqsmart.embedded import faults
from nsqsmart.embedded.faults import ALWAYS, Action, Fault, FaultBook, Match, is_path
from nsqsmart.names import Address
from nsqsmart.testing.cutting import Commands, Cutter, Frames, Opaque, Piece

__all__ = ["ALWAYS", "DOWN", "UP", "Fault", "Proxy", "after", "on"]

_CHUNK = 64 * 1024
_NSQD_PORT = 4150
_LINGER_0 = struct.pack("ii", 1, 0)
_TO_START = _TO_CUT = 10.0

_ACTIONS: Final = (
    *(Action.DELAY, Action.RESET, Action.CLOSE, Action.GARBAGE, Action.STALL),
    *(Action.DROP, Action.HALF_OPEN),
)


class Direction(Enum):
    """Which way bytes go."""

    UP = auto()
    """From the client to the server."""
    DOWN = auto()


UP: Final = Direction.UP
DOWN: Final = Direction.DOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterBytes(Match):
    """The bytes after the first *behind* of a connection in one direction."""

    direction: Direction
    behind: int


class ProxyFaults(FaultBook):
    """The faults of a proxy; they are counted over all of its connections."""

    def take_piece(self, direction: Direction, name: str, sent: int, size: int) -> Fault | None:
        """The fault that acts on a piece of *size* bytes, after *sent* bytes in that direction."""

        def fits(match: Match) -> bool:
            if isinstance(match, AfterBytes):
                return match.direction is direction and sent <= match.behind < sent + size
            return match.command == name

        return self.choose(fits)

    def _complaint(self, fault: Fault) -> str:
        if fault.action is None:
            return "say what happens: .delay(seconds), .cut(), .stall(), ..."
        if fault.action not in _ACTIONS or (fault.execute and fault.action is not Action.DELAY):
            return f"no proxy can do {fault.action.name} on {fault.match.command}: a server can"
        return ""


def on(what: str, *, nth: int = 1, times: int = 1) -> Fault:
    """A fault on the *nth* command *what* that a client sends, as ``"PUB"``, and on the next ones.

    Or on the nth frame of that kind from the server: MESSAGE, RESPONSE, ERROR, HEARTBEAT. Counted
    over all connections. Raises ValueError for a name that no nsqd knows. Commands inside TLS,
    snappy and deflate cannot be told apart: use :func:`after` there.
    """
    if is_path(what):
        raise ValueError(f"{what!r} is HTTP, which goes by unread: use after(0, UP)")
    return faults.on(what, nth=nth, times=times)


def after(count: int, direction: Direction, *, nth: int = 1, times: int = 1) -> Fault:
    """A fault after *count* bytes in *direction*, on the *nth* connection that carries so many.

    It applies to the next bytes.
    """
    if count < 0:
        raise ValueError(f"after({count}, ...) is before the first one: count bytes from 0")
    what = f"byte {count}"
    return Fault(AfterBytes(command=what, nth=nth, times=times, direction=direction, behind=count))


class Proxy:
    """Listens on 127.0.0.1 and passes everything on to *target*, but for what faults do.

    Args:
        target: "host:port" of an nsqd or nsqlookupd.
        segment: send everything in segments of so many bytes; 0 as it comes.

    Attributes:
        address: "host:port" to connect to.
        connections: how many there were.
    """

    def __init__(self, target: str, *, segment: int = 0) -> None:
        self._target = Address.parse(target, _NSQD_PORT)
        self._segment = segment
        self.faults = ProxyFaults()
        self._links: dict[_Link, asyncio.Task[None]] = {}
        self._clients: set[socket.socket] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = threading.Event()
        self._closed = False
        self.connections = 0
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="nsqsmart-proxy", daemon=True)
        self._thread.start()
        if not self._started.wait(_TO_START) or not self.address:
            raise RuntimeError("the proxy could not listen on 127.0.0.1")

    @property
    def address_map(self) -> dict[str, str]:
        """The option ``address_map`` that leads clients through here; join several with ``|``."""
        return {str(self._target): self.address}

    def add(self, fault: Fault) -> Fault:
        """Begin to count for *fault*; raises ValueError if it could never act."""
        return self.faults.add(fault)

    def clear(self) -> None:
        """Forget every fault; what is stalled or delayed stays so."""
        self.faults.clear()

    def cut_all(self) -> None:
        """End every connection there is by RST; they have ended when this returns.

        Raises RuntimeError if the proxy is closed.
        """
        if self._closed:
            raise RuntimeError("the proxy is closed")
        asyncio.run_coroutine_threadsafe(self._cut_links(), self._loop).result(_TO_CUT)

    def close(self) -> None:
        """End every connection, and listen no more; twice does no harm."""
        if not self._closed:
            self._closed = True
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Proxy {self.address} to {self._target}>"

    # ------------------------------------------------------------------------- on its own thread

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()
            self._started.set()

    async def _serve(self) -> None:
        # Sockets of our own: streams that are cancelled while they are made close too late.
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)  # noqa: FBT003 - its only form
        self.address = "{}:{}".format(*listener.getsockname()[:2])
        accepting = asyncio.ensure_future(self._accept(listener))
        self._started.set()
        await self._ending.wait()
        for task in (accepting, *self._tasks):
            task.cancel()
        await asyncio.gather(accepting, *self._tasks, return_exceptions=True)
        listener.close()
        for sock in self._clients:
            sock.close()

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            client, _ = await self._loop.sock_accept(listener)
            self.connections += 1
            self._clients.add(client)
            task = self._loop.create_task(self._carry(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, client: socket.socket) -> None:
        family = socket.AF_INET6 if ":" in self._target.host else socket.AF_INET
        with client, socket.socket(family) as server, suppress(OSError):
            for sock in (client, server):
                sock.setblocking(False)  # noqa: FBT003
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.sock_connect(server, self._target)
            link = _Link(self, client, server, self._segment)
            self._links[link] = cast("asyncio.Task[None]", asyncio.current_task())
            try:
                await link.run()
            finally:
                del self._links[link]
        self._clients.discard(client)

    async def _cut_links(self) -> None:
        for link in self._links:
            link.cut()
        # Its task closes the sockets: until then a client sends on what is about to end.
        await asyncio.gather(*self._links.values(), return_exceptions=True)


class _Link:
    """One connection of a client and the one to the server."""

    def __init__(
        self, proxy: Proxy, client: socket.socket, server: socket.socket, segment: int
    ) -> None:
        self._proxy = proxy
        self._client, self._server = client, server
        self._segment = segment
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._deaf = False
        self._running = 2
        self._sent = {UP: 0, DOWN: 0}

    async def run(self) -> None:
        """Pass on until it is over; the caller closes the sockets."""
        opaque = Opaque()
        up = self._pump(UP, Commands(opaque), self._client, self._server)
        down = self._pump(DOWN, Frames(opaque), self._server, self._client)
        pumps = [asyncio.ensure_future(each) for each in (up, down)]
        try:
            await self._over.wait()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    def cut(self) -> None:
        """End by RST."""
        for sock in (self._client, self._server):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
        self._over.set()

    async def _pump(
        self,
        direction: Direction,
        cutter: Cutter,
        source: socket.socket,
        sink: socket.socket,
    ) -> None:
        try:
            while data := await self._loop.sock_recv(source, _CHUNK):
                for piece in cutter.feed(data):
                    await self._pass(direction, piece, sink)
            if not self._deaf:
                await self._send(direction, cutter.rest(), sink)
                sink.shutdown(socket.SHUT_WR)
        except OSError:
            self._over.set()
        self._running -= 1
        if not self._running:
            self._over.set()

    async def _pass(self, direction: Direction, piece: Piece, sink: socket.socket) -> None:
        await self._flowing.wait()
        sent, size = self._sent[direction], len(piece.data)
        fault = self._proxy.faults.take_piece(direction, piece.name, sent, size)
        if fault is None:
            await self._send(direction, piece.data, sink)
            return
        # The fault begins after so many bytes.
        head = fault.match.behind - sent if isinstance(fault.match, AfterBytes) else 0
        await self._send(direction, piece.data[:head], sink)
        await self._harm(direction, fault, piece.data[head:], sink)

    async def _harm(
        self, direction: Direction, fault: Fault, data: bytes, sink: socket.socket
    ) -> None:
        match fault.action:
            case Action.DELAY:
                await asyncio.sleep(fault.seconds)
                await self._send(direction, data, sink)
            case Action.GARBAGE:
                await self._send(direction, fault.data, sink)
            case Action.RESET | Action.CLOSE:
                await self._send(direction, data[: fault.keep], sink)
                if fault.action is Action.RESET:
                    self.cut()
                self._over.set()
                await asyncio.Event().wait()  # until this is cancelled
            case Action.STALL:
                self._flowing.clear()
                await self._flowing.wait()
            case Action.HALF_OPEN:
                self._deaf = True
                self._server.shutdown(socket.SHUT_RDWR)

    async def _send(self, direction: Direction, data: bytes, sink: socket.socket) -> None:
        if self._deaf or not data:
            return
        self._sent[direction] += len(data)
        size = self._segment or len(data)
        for start in range(0, len(data), size):
            await self._loop.sock_sendall(sink, data[start : start + size])
