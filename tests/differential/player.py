"""Plays a scenario to a server and writes down what comes back, without what differs by nature.

Ids become ``id1``, ``id2``... in the order of their first appearance; timestamps are left out.
"""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from http.client import HTTPConnection
from typing import Any

from nsqsmart.wire import commands
from nsqsmart.wire.frames import ERROR, HEARTBEAT, MESSAGE, Frame, FrameDecoder
from nsqsmart.wire.messages import PLAIN, MessageLayout, RawMessage, decode_message
from nsqsmart.wire.receipts import decode_receipt
from tests.differential.programs import Program

PATIENCE = 12.0
QUIET = 0.25
# The release 1.3.0 does not know them; a later build that calls itself 1.3.0 does.
_TOPOLOGY = b',"topology_region":"","topology_zone":""'
_TYPES = {bool: "bool", int: "int", float: "int", str: "str", type(None): "null"}


class Player:
    """One scenario's connections, and its transcript."""

    def __init__(self, program: Program, topic: str) -> None:
        self.topic = topic
        self.transcript: list[str] = []
        self._program = program
        self._ids: dict[bytes, str] = {}
        self._connections: list[Connection] = []

    def connect(
        self, name: str = "a", *, magic: bytes = commands.MAGIC_V2, layout: MessageLayout = PLAIN
    ) -> Connection:
        """A new connection, known as *name* in the transcript."""
        connection = Connection(self, name, self._program.tcp, layout)
        self._connections.append(connection)
        connection.send(magic)
        return connection

    def note(self, *words: object) -> None:
        """A line of the transcript."""
        self.transcript.append(" ".join(map(str, words)))

    def name(self, message_id: bytes) -> str:
        """What an id is called here."""
        return self._ids.setdefault(message_id, f"id{len(self._ids) + 1}")

    def shown(self, data: bytes) -> str:
        """Text of a frame; ids in it by their names."""
        data = data.replace(_TOPOLOGY, b"")
        for message_id, name in self._ids.items():
            data = data.replace(message_id, name.encode())
        return data.decode("latin-1").encode("unicode_escape").decode()

    def http(self, method: str, path: str, body: bytes = b"", *, shape: bool = False) -> Any:
        """A request; its answer is written down as it is, or of a JSON document the *shape*."""
        status, data = self.ask(method, path, body)
        try:
            document = json.loads(data)
        except ValueError:
            self.note(method, path, status, self.shown(data))
            return None
        shown = shape_of(document) if shape else document
        self.note(method, path, status, json.dumps(shown, sort_keys=True))
        return document

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """A request that is not written down."""
        connection = HTTPConnection(*self._program.http, timeout=PATIENCE)
        try:
            connection.request(method, path.replace("@T@", self.topic), body or None)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def close(self) -> None:
        """End every connection."""
        for connection in self._connections:
            connection.close()


class Connection:
    """Sends bytes in which @T@ stands for the scenario's topic; writes down the frames."""

    def __init__(
        self, player: Player, name: str, address: tuple[str, int], layout: MessageLayout
    ) -> None:
        self._player = player
        self._name = name
        self._layout = layout
        self._sock = socket.create_connection(address, PATIENCE)
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []

    def send(self, data: bytes) -> None:
        """Send; a connection that is gone is seen by who reads."""
        with suppress(OSError):
            self._sock.sendall(data.replace(b"@T@", self._player.topic.encode()))

    def ask(self, data: bytes) -> Connection:
        """Send, and write down one frame."""
        self.send(data)
        self.expect()
        return self

    def expect(self, count: int = 1) -> list[RawMessage]:
        """Write down *count* frames, heartbeats aside; the messages among them."""
        messages: list[RawMessage] = []
        for _ in range(count):
            self._player.note(self._describe(self._frame(PATIENCE), messages))
        return messages

    def message(self) -> RawMessage:
        """Write down one message."""
        (message,) = self.expect()
        return message

    def receipt(self) -> tuple[object, ...]:
        """Trace id, offset and size of a traced publish; what else came, if it was none."""
        frame = self._frame(PATIENCE)
        found = None if frame is None else decode_receipt(frame.data)
        if found is None:
            return (self._describe(frame, []),)
        return found.trace_id, found.offset, found.size

    def silence(self, seconds: float = QUIET) -> None:
        """Write down that nothing comes for so long, or what came."""
        frame = self._frame(seconds, ended="")
        self._player.note(f"{self._name} silence" if frame is None else self._describe(frame, []))

    def closed(self) -> None:
        """Write down the end of the connection, and what comes before; no heartbeat is answered."""
        while (frame := self._any_frame(PATIENCE)) is not None:
            if frame.data != HEARTBEAT:
                self._player.note(self._describe(frame, []))
        self._player.note(f"{self._name} closed")

    def heartbeat(self) -> None:
        """Wait for a heartbeat, which other waits pass over; it is not answered."""
        frame = self._any_frame(PATIENCE)
        self._player.note(self._describe(frame, []))

    def close(self) -> None:
        """End the connection."""
        self._sock.close()

    def _describe(self, frame: Frame | None, messages: list[RawMessage]) -> str:
        if frame is None:
            return f"{self._name} closed"
        if frame.type != MESSAGE:
            kind = "error" if frame.type == ERROR else "response"
            return f"{self._name} {kind} {self._player.shown(frame.data)}"
        message = decode_message(frame.data, self._layout)
        messages.append(message)
        where = "" if message.offset is None else f" offset={message.offset} size={message.size}"
        name, body = self._player.name(message.id), self._player.shown(message.body)
        ext = "" if message.ext is None else f" ext={message.ext!r}"
        return f"{self._name} message {name} attempts={message.attempts}{where}{ext} {body}"

    def _frame(self, patience: float, ended: str = "closed") -> Frame | None:
        while (frame := self._any_frame(patience, ended)) is not None and frame.data == HEARTBEAT:
            self.send(commands.NOP)
        return frame

    def _any_frame(self, patience: float, ended: str = "closed") -> Frame | None:
        deadline = time.monotonic() + patience
        while not self._frames:
            self._sock.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self._sock.recv(65536)
            except TimeoutError:
                if ended:
                    raise
                return None
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)


def shape_of(document: Any) -> Any:
    """The keys and the types of a JSON document."""
    if isinstance(document, dict):
        known = {name: value for name, value in document.items() if "topology" not in name}
        return {name: shape_of(value) for name, value in known.items()}
    if isinstance(document, list):
        return [shape_of(value) for value in document[:1]]
    return _TYPES[type(document)]
