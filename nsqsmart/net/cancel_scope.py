"""The sockets of one client, which it can end all together; and what a forked child must not use.

A thread that connects, shakes hands or waits for a lookup sits in a system call with a socket that
no other thread knows: in a cancel scope it is known to the thread that closes the client. So is a
thread that waits for a name.

A child that wrote to a connection of its parent would speak in its parent's name, and a descriptor
that it keeps hides the parent's end from the server. So both are ended in the child at once, by a
hook of ``os.fork``; a child that was forked without it (by uWSGI, by C) is known by its PID.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from queue import SimpleQueue
from typing import Any, Protocol
from weakref import WeakSet, ref

Cancellable = socket.socket | SimpleQueue[Any]


class Inherited(Protocol):
    """A resource that a forked child must not use."""

    def drop(self) -> None:
        """In a child: end it here alone. It takes no lock, whose holder is gone."""


_inherited: WeakSet[Inherited] = WeakSet()


def keep_from_children(thing: Inherited) -> None:
    """Have *thing* dropped in every child that is forked; it is not kept alive."""
    _inherited.add(thing)


def _drop_all() -> None:
    for thing in list(_inherited):
        thing.drop()
    _inherited.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_all)


def _is_there(item: tuple[int, ref[Cancellable]]) -> bool:
    return item[1]() is not None


class CancelScope:
    """A weak registry of the sockets that :meth:`cut` aborts when the client closes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards both
        self._held: dict[int, ref[Cancellable]] = {}
        self._cut = False

    def add(self, wire: Cancellable) -> None:
        """Have *wire* end with the others; raises ConnectionAbortedError once they have.

        A queue gets that error, as an answer.
        """
        with self._lock:
            # No loop in here: an interrupt at its end can leave the lock held (decisions#85).
            self._held = dict(filter(_is_there, self._held.items()))
            self._held[id(wire)] = ref(wire)
            cut = self._cut
        if cut:
            raise _closed()

    def cut(self) -> None:
        """Shut every socket in both directions: a thread that waits on one returns at once."""
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
