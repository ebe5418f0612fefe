"""How an nsqd that is a program of its own tells its lookup daemons what it has.

See protocol#lookup-tcp.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from urllib.parse import quote

from nsqsmart.embedded.nsqd.hosting import Announcer
from nsqsmart.embedded.nsqd.node import NsqdNode
from nsqsmart.embedded.serving.fetching import dial, get_json

_PING_EVERY = 15.0
_RETRY_EVERY = 1.0
_TIMEOUT = 1.0
_MAX_REPLY = 1024 * 1024

Told = tuple[str, int | None, str | None]
"""Topic, partition (redesigned), channel."""


class _LookupdPeer:
    """The thread that talks to one lookup daemon."""

    def __init__(
        self, address: tuple[str, int], node: NsqdNode, everything: Callable[[], list[Told]]
    ):
        self.address = address
        self._node = node
        self._everything = everything
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._sock: socket.socket | None = None
        self.http: tuple[str, int] | None = None
        self.ready = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"nsqsmart-embedded-lookup-{address[1]}", daemon=True
        )
        self._thread.start()

    def say(self, line: bytes) -> None:
        """Queue a command; what is lost with a connection is told anew with the next."""
        self._queue.put(line)

    def stop(self) -> None:
        """End the thread."""
        self._queue.put(None)
        self._thread.join(_TIMEOUT * 2)

    def _run(self) -> None:
        while True:
            try:
                self._connect()
            except (OSError, ValueError, KeyError):
                self._disconnect()
                if not self._idle(_RETRY_EVERY):
                    return
                continue
            if not self._talk():
                return

    def _idle(self, seconds: float) -> bool:
        """Wait without a connection; False at the end."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            with suppress(Empty):
                if self._queue.get(timeout=left) is None:
                    return False
        return True

    def _connect(self) -> None:
        node = self._node
        self._sock = dial(self.address, _TIMEOUT)
        self._sock.sendall(b"  V1")
        document = node.introduction()
        if node.options.redesigned:
            document["distributed_id"] = ""
        body = json.dumps(document).encode()
        reply = json.loads(self._ask(b"IDENTIFY\n" + len(body).to_bytes(4) + body))
        self.http = (reply["broadcast_address"], int(reply["http_port"]))
        for told in self._everything():
            self._ask(command("REGISTER", told))
        self.ready.set()

    def _talk(self) -> bool:
        """Pass commands on until the connection breaks; False at the end."""
        while True:
            try:
                line = self._queue.get(timeout=_PING_EVERY)
            except Empty:
                line = b"PING\n"
            if line is None:
                self._disconnect()
                return False
            try:
                self._ask(line)
            except OSError:
                self._disconnect()
                return True

    def _ask(self, data: bytes) -> bytes:
        sock = self._sock
        if sock is None:
            raise ConnectionError
        sock.sendall(data)
        return self._read(sock, min(int.from_bytes(self._read(sock, 4)), _MAX_REPLY))

    @staticmethod
    def _read(sock: socket.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = sock.recv(count - len(data))
            if not piece:
                raise ConnectionError
            data += piece
        return data

    def _disconnect(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None


class LookupdTeller(Announcer):
    """Registers with every lookup daemon, and asks them for channels."""

    def __init__(self, node: NsqdNode, addresses: Sequence[tuple[str, int]]) -> None:
        self._node = node
        self._addresses = addresses
        self._peers: list[_LookupdPeer] = []
        self._everything: Callable[[], list[Told]] = list

    def start(self, everything: Callable[[], list[Told]]) -> None:
        """Begin to register what *everything* lists, and what is told later."""
        self._everything = everything
        self.change(self._addresses)

    def change(self, addresses: Sequence[tuple[str, int]]) -> None:
        """Leave the daemons that are not among *addresses*, and turn to the new ones."""
        gone = [peer for peer in self._peers if peer.address not in addresses]
        left = [peer for peer in self._peers if peer not in gone]
        known = [peer.address for peer in left]
        new = [address for address in dict.fromkeys(addresses) if address not in known]
        self._peers = left + [
            _LookupdPeer(address, self._node, self._everything) for address in new
        ]
        for peer in gone:
            peer.stop()

    def stop(self) -> None:
        """Leave every daemon."""
        for peer in self._peers:
            peer.stop()

    def register(self, topic: str, partition: int | None, channel: str | None = None) -> None:
        """The node has it now."""
        for peer in self._peers:
            peer.say(command("REGISTER", (topic, partition, channel)))

    def unregister(self, topic: str, partition: int | None, channel: str | None = None) -> None:
        """The node has it no longer."""
        for peer in self._peers:
            peer.say(command("UNREGISTER", (topic, partition, channel)))

    def known_channels(self, topic: str) -> list[str]:
        """What any daemon knows; one that does not answer knows nothing."""
        names: set[str] = set()
        for peer in self._peers:
            peer.ready.wait(_TIMEOUT)
            if peer.http is not None:
                with suppress(OSError, ValueError, KeyError):
                    names.update(self._channels(peer.http, topic))
        return sorted(names)

    @staticmethod
    def _channels(address: tuple[str, int], topic: str) -> list[str]:
        document = get_json(address, f"/channels?topic={quote(topic)}", _TIMEOUT)
        return list(document["channels"])


def command(verb: str, told: Told) -> bytes:
    """A line of the V1 protocol."""
    words = [verb, *(str(word) for word in told if word is not None)]
    return " ".join(words).encode() + b"\n"
