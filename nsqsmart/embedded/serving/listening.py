"""Listening sockets."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

from nsqsmart.embedded.serving.loop import Loop

Accept = Callable[[socket.socket, tuple[str, int]], None]

_BACKLOG = 512


class Listener:
    """One listening socket, watched by a loop; *accept* gets every connection."""

    def __init__(self, address: tuple[str, int], loop: Loop, accept: Accept) -> None:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            # A server that was killed must be able to come back on its port at once.
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._sock.bind(address)
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
