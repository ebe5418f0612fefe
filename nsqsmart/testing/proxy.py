"""A TCP proxy that does harm on command: between a client and an nsqd, or an nsqlookupd.

::

    with Proxy("127.0.0.1:4150") as proxy:
        proxy.add(on("PUB", nth=2).cut(after=10))     # the second PUB is torn behind 10 bytes
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
from enum import Enum, auto
from types import TracebackType
from typing import Final, Self

from nsqsmart.embedded.fault_targets import FRAMES, complaint, is_path
from nsqsmart.names import Address
from nsqsmart.testing.cutting import Commands, Frames, Opaque, Piece

ALWAYS: Final = 1_000_000_000
_CHUNK = 64 * 1024
_NSQD_PORT = 4150
_LINGER_0 = struct.pack("ii", 1, 0)
_TO_START = 10.0


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Direction(Enum):
    """Which way bytes go."""

    UP = auto()
    """From the client to the server."""
    DOWN = auto()


UP: Final = Direction.UP
DOWN: Final = Direction.DOWN


class Harm(Enum):
    """What is done to a piece, or to its connection."""

    DELAY = auto()
    CUT = auto()
    CLOSE = auto()
    STALL = auto()
    GARBAGE = auto()
    DROP = auto()
    HALF_OPEN = auto()


class Fault:
    """What is done, and when; made by :func:`on` or :func:`after`, finished by one method.

    ``acted`` counts how often it was.
    """

    def __init__(
        self, direction: Direction, *, name: str = "", behind: int = 0, nth: int = 1, times: int = 1
    ) -> None:
        if nth < 1 or times < 1 or behind < 0:
            raise ValueError(f"nth={nth} and times={times} are counted from 1, bytes from 0")
        self.direction = direction
        self.name = name
        self.behind = behind
        self.nth = nth
        self.times = times
        self.harm: Harm | None = None
        self.seconds = 0.0
        self.data = b""
        self.keep = 0
        self.seen = self.acted = 0

    def delay(self, seconds: float) -> Fault:
        """Hold it back for so long, and what comes behind it."""
        self.seconds = seconds
        return self._do(Harm.DELAY)

    def cut(self, *, after: int = 0) -> Fault:
        """Let *after* bytes of it through, and end the connection by RST on both sides."""
        self.keep = after
        return self._do(Harm.CUT)

    def close(self, *, after: int = 0) -> Fault:
        """Let *after* bytes of it through, and end the connection in order on both sides."""
        self.keep = after
        return self._do(Harm.CLOSE)

    def stall(self) -> Fault:
        """Let nothing through from now on, either way; the connection stays."""
        return self._do(Harm.STALL)

    def garbage(self, data: bytes) -> Fault:
        """Put *data* in its place."""
        self.data = data
        return self._do(Harm.GARBAGE)

    def drop(self) -> Fault:
        """Swallow it; the connection goes on without it."""
        return self._do(Harm.DROP)

    def half_open(self) -> Fault:
        """Hang up on the server, and let the client believe that it is still connected."""
        return self._do(Harm.HALF_OPEN)

    def _do(self, harm: Harm) -> Fault:
        self.harm = harm
        return self


def on(what: str, *, nth: int = 1, times: int = 1) -> Fault:
    """A fault on the *nth* command *what* that a client sends, as ``"PUB"``, and on the next ones.

    Or on the nth frame of that kind from the server: MESSAGE, RESPONSE, ERROR, HEARTBEAT. Counted
    over all connections. Raises ValueError for what no nsqd knows. Behind TLS, snappy and deflate
    nothing can be told apart: there use :func:`after`.
    """
    if is_path(what):
        raise ValueError(f"{what!r} is HTTP, which goes by unread: use after(0, UP)")
    if wrong := complaint(what):
        raise ValueError(wrong)
    return Fault(DOWN if what in FRAMES else UP, name=what, nth=nth, times=times)


def after(count: int, direction: Direction, *, nth: int = 1, times: int = 1) -> Fault:
    """A fault behind *count* bytes that went in *direction*; on the *nth* connection with so many.

    It is done to what would come next.
    """
    return Fault(direction, behind=count, nth=nth, times=times)


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
        self._lock = threading.Lock()  # guards the faults
        self._faults: list[Fault] = []
        self._links: set[_Link] = set()
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
        """Begin to count for *fault*; raises ValueError if it says not what to do."""
        if fault.harm is None:
            raise ValueError("say what happens: .delay(seconds), .cut(), .stall(), ...")
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Forget every fault; what is stalled or delayed stays so."""
        with self._lock:
            self._faults.clear()

    def cut_all(self) -> None:
        """End every connection there is by RST."""
        self._loop.call_soon_threadsafe(self._cut_links)

    def close(self) -> None:
        """End every connection, and listen no more; twice does no harm."""
        if not self._closed:
            self._closed = True
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Proxy {self.address} to {self._target}>"

    def take(self, direction: Direction, name: str, sent: int, size: int) -> Fault | None:
        """The fault that acts on a piece of *size* bytes, behind *sent* others that way."""
        with self._lock:
            for fault in self._faults:
                if fault.direction is not direction or fault.acted >= fault.times:
                    continue
                hit = name == fault.name if fault.name else sent <= fault.behind < sent + size
                fault.seen += hit
                if hit and fault.seen >= fault.nth:
                    fault.acted += 1
                    return fault
        return None

    # ------------------------------------------------------------------------- on its own thread

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()
            self._started.set()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = "{}:{}".format(*server.sockets[0].getsockname()[:2])
        self._started.set()
        await self._ending.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = self._loop.create_task(self._link((reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _link(self, client: _Streams) -> None:
        try:
            server = await asyncio.open_connection(*self._target)
        except OSError:
            client[1].close()
            return
        link = _Link(self, client, server, self._segment)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    def _cut_links(self) -> None:
        for link in list(self._links):
            link.cut()


class _Link:
    """One connection of a client and the one to the server."""

    def __init__(self, proxy: Proxy, client: _Streams, server: _Streams, segment: int) -> None:
        self._proxy = proxy
        self._client, self._server = client, server
        self._segment = segment
        self._over = asyncio.Event()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._deaf = False
        self._running = 2
        self._sent = {UP: 0, DOWN: 0}

    async def run(self) -> None:
        """Pass on until it is over."""
        opaque = Opaque()
        up = self._pump(UP, Commands(opaque), self._client[0], self._server[1])
        down = self._pump(DOWN, Frames(opaque), self._server[0], self._client[1])
        pumps = [asyncio.ensure_future(each) for each in (up, down)]
        try:
            await self._over.wait()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for _, writer in (self._client, self._server):
                writer.close()
            for _, writer in (self._client, self._server):
                with suppress(OSError):
                    await writer.wait_closed()

    def cut(self) -> None:
        """End by RST."""
        for _, writer in (self._client, self._server):
            sock = writer.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
            writer.transport.abort()
        self._over.set()

    async def _pump(
        self,
        direction: Direction,
        cutter: Commands | Frames,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
    ) -> None:
        try:
            while data := await source.read(_CHUNK):
                for piece in cutter.feed(data):
                    await self._pass(direction, piece, sink)
            if not self._deaf:
                await self._send(direction, cutter.rest(), sink)
                sink.write_eof()
        except OSError:
            self._over.set()
        self._running -= 1
        if not self._running:
            self._over.set()

    async def _pass(self, direction: Direction, piece: Piece, sink: asyncio.StreamWriter) -> None:
        await self._flowing.wait()
        sent, size = self._sent[direction], len(piece.data)
        fault = self._proxy.take(direction, piece.name, sent, size)
        if fault is None:
            await self._send(direction, piece.data, sink)
            return
        # What is behind so many bytes begins there.
        head = 0 if fault.name else fault.behind - sent
        await self._send(direction, piece.data[:head], sink)
        await self._harm(direction, fault, piece.data[head:], sink)

    async def _harm(
        self, direction: Direction, fault: Fault, data: bytes, sink: asyncio.StreamWriter
    ) -> None:
        match fault.harm:
            case Harm.DELAY:
                await asyncio.sleep(fault.seconds)
                await self._send(direction, data, sink)
            case Harm.GARBAGE:
                await self._send(direction, fault.data, sink)
            case Harm.CUT | Harm.CLOSE:
                await self._send(direction, data[: fault.keep], sink)
                self.cut() if fault.harm is Harm.CUT else self._over.set()
                await asyncio.Event().wait()
            case Harm.STALL:
                self._flowing.clear()
                await self._flowing.wait()
            case Harm.HALF_OPEN:
                self._deaf = True
                self._server[1].close()

    async def _send(self, direction: Direction, data: bytes, sink: asyncio.StreamWriter) -> None:
        if self._deaf or not data:
            return
        self._sent[direction] += len(data)
        size = self._segment or len(data)
        for start in range(0, len(data), size):
            sink.write(data[start : start + size])
            await sink.drain()
