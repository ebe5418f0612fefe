"""The sockets of one client, which it can end all together.

A thread that connects, shakes hands or waits for a lookup sits in a system call with a socket that
nobody else knows: here it is known to whoever closes the client. So is who waits for a name.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from queue import SimpleQueue
from typing import Any
from weakref import ref

Wire = socket.socket | SimpleQueue[Any]


class Wires:
    """Keeps none of them alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards both
        self._held: dict[int, ref[Wire]] = {}
        self._cut = False

    def add(self, wire: Wire) -> None:
        """Have *wire* end with the others; raises ConnectionAbortedError once they have.

        A queue gets that error, as an answer.
        """
        with self._lock:
            self._held = {name: one for name, one in self._held.items() if one() is not None}
            self._held[id(wire)] = ref(wire)
            cut = self._cut
        if cut:
            raise _closed()

    def cut(self) -> None:
        """End every one in both directions: whoever waits for it learns that at once."""
        with self._lock:
            self._cut = True
            held = [one() for one in self._held.values()]
        for wire in held:
            if isinstance(wire, socket.socket):
                with contextlib.suppress(OSError):
                    wire.shutdown(socket.SHUT_RDWR)
            elif wire is not None:
                wire.put(_closed())

    def drop(self) -> None:
        """In a forked child: close the descriptors alone; takes no lock, whose holder is gone."""
        for one in list(self._held.values()):
            if isinstance(wire := one(), socket.socket):
                wire.close()


def _closed() -> ConnectionAbortedError:
    return ConnectionAbortedError("the client was closed")
