"""Connections that have a thread each, and those of one server."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from io import BufferedReader
from typing import cast

_JOIN_TIMEOUT = 1.0
_READ_SIZE = 64 * 1024


def reader_of(sock: socket.socket) -> BufferedReader:
    """What reads *sock* in large pieces: a client whose bytes are left unread would see RST."""
    return cast("BufferedReader", sock.makefile("rb", _READ_SIZE))


class Served:
    """One connection, among the *others* of its server; its thread runs :meth:`_serve`.

    ``place`` says how many there were when it began, itself included.
    """

    def __init__(self, sock: socket.socket, others: Connections, name: str) -> None:
        self.place = 0
        self._sock = sock
        self._others = others
        self._thread = threading.Thread(
            target=self._run, name=f"nsqsmart-embedded-{name}", daemon=True
        )

    def start(self) -> None:
        """Begin to serve."""
        self.place = self._others.add(self)
        self._thread.start()

    def end(self) -> None:
        """End the connection in order; any thread may."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def abort(self) -> None:
        """End the connection by RST, where that can be told apart."""
        self.end()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            self._others.discard(self)

    def _serve(self) -> None:
        """Read and answer until the client is gone; let go of the socket."""
        raise NotImplementedError


class Connections:
    """Those that live; any thread may add and end them."""

    def __init__(self) -> None:
        self._served: set[Served] = set()
        self._lock = threading.Lock()

    def add(self, connection: Served) -> int:
        """A connection begins; how many there are."""
        with self._lock:
            self._served.add(connection)
            return len(self._served)

    def discard(self, connection: Served) -> None:
        """A connection has ended."""
        with self._lock:
            self._served.discard(connection)

    def every(self) -> list[Served]:
        """Those that live now."""
        with self._lock:
            return list(self._served)

    def begin_end(self) -> None:
        """Tell each of them to end in order."""
        for connection in self.every():
            connection.end()

    def end(self, *, abruptly: bool = False) -> None:
        """End each of them, and wait a second at most for the threads."""
        connections = self.every()
        for connection in connections:
            if abruptly:
                connection.abort()
            else:
                connection.end()
        deadline = time.monotonic() + _JOIN_TIMEOUT
        for connection in connections:
            connection.join(max(0.0, deadline - time.monotonic()))
