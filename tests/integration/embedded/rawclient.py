"""A client of raw sockets, built on the wire floor alone."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests

from nsqsmart.embedded.nsqd.server import Nsqd
from nsqsmart.wire import commands
from nsqsmart.wire.frames import ERROR, HEARTBEAT, MESSAGE, RESPONSE, Frame, FrameDecoder
from nsqsmart.wire.messages import PLAIN, MessageLayout, RawMessage, decode_message
from nsqsmart.wire.streams import DeflateStream, SnappyStream, Stream

V1 = {"Accept": "application/vnd.nsq; version=1.0"}


class RawClient:
    """One connection; every wait ends after *patience* seconds."""

    def __init__(
        self, address: tuple[str, int], *, magic: bool = True, patience: float = 5
    ) -> None:
        self.patience = patience
        self._sock = socket.create_connection(address, patience)
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []
        self._stream: Stream | None = None
        self._layout = PLAIN
        if magic:
            self._sock.sendall(commands.MAGIC_V2)

    def close(self) -> None:
        self._sock.close()

    def send(self, data: bytes) -> None:
        self._sock.sendall(data if self._stream is None else self._stream.outgoing(data))

    def frame(self, patience: float | None = None) -> Frame | None:
        """The next frame that is no heartbeat; None at the end of the stream."""
        while (frame := self.any_frame(patience)) is not None and frame.data == HEARTBEAT:
            self.send(commands.NOP)
        return frame

    def any_frame(self, patience: float | None = None) -> Frame | None:
        deadline = time.monotonic() + (self.patience if patience is None else patience)
        while not self._frames:
            self._sock.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self._sock.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            for piece in [data] if self._stream is None else self._stream.incoming(data):
                self._frames += self._decoder.feed(piece)
        return self._frames.pop(0)

    def silent(self, seconds: float = 0.1) -> bool:
        """Whether nothing comes for so long, heartbeats aside; what comes is kept."""
        try:
            frame = self.frame(seconds)
        except TimeoutError:
            return True
        if frame is not None:
            self._frames.insert(0, frame)
        return False

    def ended(self) -> bool:
        """Whether the server ends the connection, with no further frame."""
        return self.frame() is None

    def reset(self) -> bool:
        """Whether the connection ends by RST."""
        self._sock.settimeout(self.patience)
        try:
            return bool(self._sock.recv(1)) and False
        except ConnectionResetError:
            return True

    def response(self) -> bytes:
        frame = self.frame()
        assert frame is not None, "the connection ended"
        assert frame.type == RESPONSE, frame
        return frame.data

    def error(self) -> str:
        frame = self.frame()
        assert frame is not None, "the connection ended"
        assert frame.type == ERROR, frame
        return frame.data.decode()

    def message(self, patience: float | None = None) -> RawMessage:
        frame = self.frame(patience)
        assert frame is not None, "the connection ended"
        assert frame.type == MESSAGE, frame
        return decode_message(frame.data, self._layout)

    def ask(self, data: bytes) -> bytes:
        self.send(data)
        return self.response()

    def refused(self, data: bytes) -> str:
        self.send(data)
        return self.error()

    def identify(self, **document: Any) -> dict[str, Any]:
        """IDENTIFY with feature negotiation, and what follows it."""
        body = json.dumps({"feature_negotiation": True, **document}).encode()
        grant: dict[str, Any] = json.loads(self._ask_exactly(commands.identify(body)))
        if grant["snappy"]:
            self._upgrade(SnappyStream())
        elif grant["deflate"]:
            self._upgrade(DeflateStream(grant["deflate_level"]))
        return grant

    def identify_tls(self, context: ssl.SSLContext, **document: Any) -> dict[str, Any]:
        body = json.dumps({"feature_negotiation": True, "tls_v1": True, **document}).encode()
        grant: dict[str, Any] = json.loads(self._ask_exactly(commands.identify(body)))
        assert grant["tls_v1"]
        self._sock.settimeout(self.patience)
        self._sock = context.wrap_socket(self._sock, server_hostname="localhost")
        assert self._ask_exactly(b"") == b"OK"
        if grant["snappy"]:
            self._upgrade(SnappyStream())
        return grant

    def _upgrade(self, stream: Stream) -> None:
        self._stream = stream
        assert self.response() == b"OK"

    def _ask_exactly(self, data: bytes) -> bytes:
        """A response of which not a byte too much is read: what follows is of another layer."""
        self.send(data)
        self._sock.settimeout(self.patience)
        size = int.from_bytes(self._exactly(4))
        frame = self._exactly(size)
        assert frame[:4] == RESPONSE.to_bytes(4), frame
        return frame[4:]

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._sock.recv(count - len(data))
            assert piece, "the connection ended"
            data += piece
        return data

    def subscribe(self, line: bytes, rdy: int = 1, *, extended: bool = False) -> None:
        """A SUB of any kind, and RDY."""
        detailed = not line.startswith(b"SUB ")
        self._layout = MessageLayout(extended, detailed)
        assert self.ask(line) == b"OK"
        self.send(commands.rdy(rdy))

    def finish(self, message: RawMessage) -> None:
        self.send(commands.fin(message.id))


@contextmanager
def client(nsqd: Nsqd, **options: Any) -> Iterator[RawClient]:
    """A connection to *nsqd* that is closed at the end."""
    connection = RawClient(nsqd.tcp_address, **options)
    try:
        yield connection
    finally:
        connection.close()


def http(
    method: str, address: tuple[str, int], target: str, *, legacy: bool = False, body: bytes = b""
) -> tuple[int, Any]:
    """Status and document (text where it is none) of an HTTP request."""
    url = f"http://{address[0]}:{address[1]}{target}"
    with requests.Session() as session:
        session.trust_env = False
        reply = session.request(method, url, headers=None if legacy else V1, data=body, timeout=5)
    try:
        return reply.status_code, reply.json()
    except ValueError:
        return reply.status_code, reply.text
