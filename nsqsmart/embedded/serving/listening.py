"""Listening sockets."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

from nsqsmart.embedded.serving.loop import Loop

Accept = Callable[[socket.socket, tuple[str, int]], None]

_BACKLOG = 512


class ListeningSocket:
    """One listening socket, watched by a loop; *accept* gets every connection."""

    def __init__(self, address: tuple[str, int], loop: Loop, accept: Accept) -> None:
        self._sock = _bound(address)
        try:
            self._sock.listen(_BACKLOG)
        except OSError:
            self._sock.close()
            raise
        self._sock.setblocking(False)  # noqa: FBT003 - its only form
        self._accept = accept
        self._loop = loop
        self.address: tuple[str, int] = self._sock.getsockname()[:2]
        loop.on_readable(self._sock, self._on_readable)

    def _on_readable(self) -> None:
        with suppress(OSError):
            sock, peer = self._sock.accept()
            sock.setblocking(True)  # noqa: FBT003
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._accept(sock, peer[:2])

    def close(self) -> None:
        """Refuse new connections."""
        self._loop.forget(self._sock)
        self._sock.close()


class Ports:
    """The ports of a server: it listens on them, or they are kept for it until it is back.

    A port that is free becomes the local port of any connection that begins on the machine.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._listeners: list[ListeningSocket] = []
        self._kept: list[socket.socket] = []

    @property
    def listening(self) -> bool:
        """Whether the server accepts connections."""
        return bool(self._listeners)

    def open(self, address: tuple[str, int], accept: Accept) -> int:
        """Listen on one more; the port. Raises OSError if it is taken."""
        listener = ListeningSocket(address, self._loop, accept)
        self._listeners.append(listener)
        return listener.address[1]

    def close(self) -> None:
        """Refuse new connections, and keep the ports."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            with suppress(OSError):
                listener.close()
                self._kept.append(_bound(listener.address))

    def release(self) -> None:
        """Leave the ports to the machine, or to :meth:`open`."""
        kept, self._kept = self._kept, []
        for sock in kept:
            sock.close()


def _bound(address: tuple[str, int]) -> socket.socket:
    """A socket that has *address*; while it does not listen, connections are refused."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A server that was killed must be able to come back on its port at once.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
