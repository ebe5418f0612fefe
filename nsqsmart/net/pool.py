"""Connections kept by nsqd address and lent to one caller at a time.

A loan ends clean or its connection is retired. Nothing is counted: the capacity that is left is
``size`` minus the loans alive, so a caller who is interrupted between two lines, or never leaves
its block, cannot leak a slot.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import NamedTuple
from weakref import WeakSet

from nsqsmart.errors import ClientClosed, PoolTimeout
from nsqsmart.names import Address
from nsqsmart.net.connection import Connection

# A loan that dies without its block's end wakes nobody, so whoever waits looks again.
_LOOK_AGAIN = 1.0


class _Idle(NamedTuple):
    connection: Connection
    since: float


class Loan:
    """A place in the pool, and the connection it holds; used as a context manager."""

    __slots__ = ("__weakref__", "_pool", "address", "connection")

    def __init__(self, pool: ConnectionPool, address: Address) -> None:
        self._pool = pool
        self.address = address
        self.connection: Connection | None = None

    def __enter__(self) -> Connection:
        assert self.connection is not None  # noqa: S101 - lend() has just put it there
        return self.connection

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.take_back(self)


class ConnectionPool:
    """At most *size* connections to each nsqd, the most recently used one first.

    *idle_timeout* in seconds: nobody answers heartbeats of an idle connection, so one that is
    idle for longer than 1.5 heartbeat intervals is closed at the next checkout or return.
    """

    def __init__(
        self, opener: Callable[[Address, float], Connection], size: int, idle_timeout: float
    ) -> None:
        self._open = opener
        self._size = size
        self._idle_timeout = idle_timeout
        self._changed = threading.Condition(threading.Lock())  # guards the three below
        self._idle: dict[Address, list[_Idle]] = {}
        self._loans: dict[Address, WeakSet[Loan]] = {}
        self._closed = False

    def lend(self, address: Address, deadline: float) -> Loan:
        """A loan of a usable connection to *address*, to be used in a ``with`` block.

        Raises PoolTimeout when all are lent until *deadline*, ClientClosed after :meth:`close`,
        and what opening a connection raises.
        """
        loan = Loan(self, address)
        while True:
            idle, retired = self._admit(loan, deadline)
            _close_all(retired)
            if idle is None:
                break
            loan.connection = idle
            if idle.is_usable():
                return loan
            loan.connection = None
            idle.close()
        try:
            loan.connection = self._open(address, deadline)
        finally:
            if loan.connection is None:
                self.take_back(loan)
        return loan

    def take_back(self, loan: Loan) -> None:
        """End *loan*: a clean connection goes back, any other is closed."""
        connection, loan.connection = loan.connection, None
        retired: list[Connection] = []
        now = monotonic()
        with self._changed:
            self._loans[loan.address].discard(loan)
            if connection:
                if connection.spoiled or self._closed:
                    retired.append(connection)
                else:
                    self._idle.setdefault(loan.address, []).append(_Idle(connection, now))
            retired += self._take_cold(now)
            self._changed.notify_all()
        _close_all(retired)

    def retire(self, address: Address) -> None:
        """Close what is idle to *address*: an error has proved it dead."""
        with self._changed:
            entries = self._idle.pop(address, [])
        _close_all([entry.connection for entry in entries])

    def close(self) -> None:
        """Close what is idle, refuse new loans, wake who waits; loans close as they end."""
        with self._changed:
            self._closed = True
            entries = [entry for stack in self._idle.values() for entry in stack]
            self._idle.clear()
            self._changed.notify_all()
        _close_all([entry.connection for entry in entries])

    def wait_for_loans(self, deadline: float) -> None:
        """Return when nothing is lent, at the latest at *deadline*."""
        with self._changed:
            while any(self._loans.values()) and (left := deadline - monotonic()) > 0:
                self._changed.wait(min(left, _LOOK_AGAIN))

    def drop(self) -> None:
        """In a forked child: close the descriptors alone, without a word to the parent's peers."""
        for stack in self._idle.values():
            for entry in stack:
                entry.connection.drop()
        for loans in self._loans.values():
            for loan in loans:
                if loan.connection:
                    loan.connection.drop()

    def _admit(self, loan: Loan, deadline: float) -> tuple[Connection | None, list[Connection]]:
        """Wait for a place: an idle connection, or None for leave to open one; and the cold."""
        with self._changed:
            loans = self._loans.setdefault(loan.address, WeakSet())
            while True:
                if self._closed:
                    raise ClientClosed("the client was closed")
                now = monotonic()
                retired = self._take_cold(now)
                if loan in loans or len(loans) < self._size:
                    loans.add(loan)
                    stack = self._idle.get(loan.address)
                    return (stack.pop().connection if stack else None), retired
                left = deadline - now
                if left <= 0:
                    raise PoolTimeout(
                        f"all {self._size} connections to {loan.address} are in use; "
                        "raise pool_size or publish from fewer threads"
                    )
                self._changed.wait(min(left, _LOOK_AGAIN))

    def _take_cold(self, now: float) -> list[Connection]:
        """Take out what has been idle too long; the coldest lie at the bottom of each stack."""
        cold: list[Connection] = []
        for stack in self._idle.values():
            while stack and now - stack[0].since > self._idle_timeout:
                cold.append(stack.pop(0).connection)
        return cold


def _close_all(connections: list[Connection]) -> None:
    for connection in connections:
        connection.close()
