"""The sockets of one client, which it can end all together.

A thread that connects, shakes hands or waits for a lookup sits in a system call with a socket that
nobody else knows: here it is known to whoever closes the client.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from weakref import ref


class Wires:
    """Keeps none of them alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards both
        self._held: dict[int, ref[socket.socket]] = {}
        self._cut = False

    def add(self, sock: socket.socket) -> None:
        """Have *sock* end with the others; raises ConnectionAbortedError once they have."""
        with self._lock:
            self._held = {name: one for name, one in self._held.items() if one() is not None}
            self._held[id(sock)] = ref(sock)
            cut = self._cut
        if cut:
            raise ConnectionAbortedError("the client was closed")

    def cut(self) -> None:
        """End every one in both directions: whoever waits for it learns that at once."""
        with self._lock:
            self._cut = True
            held = [one() for one in self._held.values()]
        for sock in filter(None, held):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
