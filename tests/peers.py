"""Peers that do exactly as told: for everything a healthy server never does."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable
from typing import Self

from nsqsmart.wire.frames import MESSAGE, OK_FRAME, RESPONSE, encode_frame

Script = Callable[["Talk"], None]

GRANT = json.dumps({"max_rdy_count": 2500, "version": "1.3.0", "msg_timeout": 60000}).encode()


class Talk:
    """The peer's side of one connection."""

    def __init__(self, sock: socket.socket, released: threading.Event) -> None:
        # Without it a second small frame would wait for the client's delayed ACK.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.released = released
        self._file = sock.makefile("rb")

    def read(self, count: int) -> bytes:
        """Exactly *count* bytes; EOFError at the end."""
        data = self._file.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def line(self) -> bytes:
        """One command line, without its LF; EOFError at the end."""
        line = self._file.readline()
        if not line:
            raise EOFError
        return line[:-1]

    def body(self) -> bytes:
        """A length and so many bytes."""
        return self.read(struct.unpack(">I", self.read(4))[0])

    def greet(self, grant: bytes = GRANT, *behind: bytes) -> dict:
        """Magic and IDENTIFY, answered, with *behind* in the same segment; returns the offer."""
        assert self.read(4) == b"  V2"
        assert self.line() == b"IDENTIFY"
        offer = json.loads(self.body())
        self.send(encode_frame(RESPONSE, grant) + b"".join(behind))
        return offer

    def publish(self) -> bytes:
        """The body of the next PUB, not answered."""
        assert self.line().startswith(b"PUB ")
        return self.body()

    def send(self, data: bytes) -> None:
        """All of *data*."""
        self.sock.sendall(data)

    def ok(self) -> None:
        """An OK frame."""
        self.send(OK_FRAME)

    def stall(self) -> None:
        """Say nothing more until the test is over."""
        self.released.wait(30)

    def reset(self) -> None:
        """End by RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


class Peer:
    """Listens on loopback and plays *scripts*, one a connection, the last one again and again."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = list(scripts)
        self._released = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.accepted = 0
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._threads[0].start()

    @property
    def url(self) -> str:
        """Where a client finds it as an nsqd."""
        return "nsq://{}:{}".format(*self.address)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[min(self.accepted, len(self._scripts) - 1)]
            self.accepted += 1
            self._sockets.append(sock)
            thread = threading.Thread(target=self._play, args=(script, sock), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _play(self, script: Script, sock: socket.socket) -> None:
        talk = Talk(sock, self._released)
        with contextlib.suppress(EOFError, OSError), talk._file, sock:
            script(talk)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._released.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)


def http_answer(status: int, body: bytes, *, length: int | None = None) -> bytes:
    """An HTTP answer; *length* may lie."""
    size = len(body) if length is None else length
    head = f"HTTP/1.1 {status} Whatever\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def http_script(answer: Callable[[str], bytes]) -> Script:
    """Answers one request: *answer* gets its path and gives the bytes."""

    def script(talk: Talk) -> None:
        path = talk.line().split()[1].decode()
        while talk.line().strip():
            pass
        talk.send(answer(path))

    return script


def lookup_of(
    leaders: dict[int, tuple[str, int]],
    *,
    ordered: bool = False,
    count: int = 0,
    extend_support: bool = False,
) -> Script:
    """A redesigned lookup that names these leaders for every topic; *leaders* may be changed."""

    def answer(path: str) -> bytes:
        if not path.startswith("/lookup?"):
            return http_answer(200, json.dumps({"lookupdnodes": []}).encode())
        partitions = {
            str(number): {"broadcast_address": host, "tcp_port": port, "http_port": 1}
            for number, (host, port) in leaders.items()
        }
        meta = {
            "partition_num": count or len(leaders),
            "ordered": ordered,
            "extend_support": extend_support,
        }
        found = {"channels": ["c"], "meta": meta, "partitions": partitions, "producers": []}
        return http_answer(200, json.dumps(found).encode())

    return http_script(answer)


def subscribed(
    note: Callable[[bytes], None], *messages: bytes, speak: Script | None = None
) -> Script:
    """An nsqd for one subscriber: *note* gets every line behind IDENTIFY.

    *messages* are frames that leave at the first RDY above 0; *speak* then takes over.
    """

    def script(talk: Talk) -> None:
        talk.greet()
        told = False
        while True:
            line = talk.line()
            note(line)
            if line.startswith(b"SUB"):
                talk.ok()
            elif line == b"CLS":
                talk.send(encode_frame(RESPONSE, b"CLOSE_WAIT"))
            elif line.startswith(b"RDY ") and line != b"RDY 0" and not told:
                told = True
                talk.send(b"".join(messages))
                if speak:
                    speak(talk)

    return script


def message_frame(number: int, body: bytes = b"x", attempts: int = 1) -> bytes:
    """A plain message frame; its id is *number* as 16 bytes."""
    head = struct.pack(">QH16s", 1_700_000_000_000_000_000, attempts, number.to_bytes(16, "big"))
    return encode_frame(MESSAGE, head + body)
