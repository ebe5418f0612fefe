"""Connections kept by nsqd address and lent to one caller at a time.

A loan ends clean or its connection is retired. No slot is counted: the capacity that is left is
``size`` minus the loans alive, so a caller who is interrupted between two lines, or never leaves
its block, cannot leak one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import NamedTuple
from weakref import ref

from nsqsmart.errors import ClientClosed, PoolTimeout
from nsqsmart.names import Address
from nsqsmart.net.connection import Connection

# A loan that dies without its block's end wakes nobody, so whoever waits looks again.
_LOOK_AGAIN = 1.0


class _Idle(NamedTuple):
    connection: Connection
    since: float


class _Place:
    """What there is of one nsqd: idle connections, coldest first, and the loans alive."""

    __slots__ = ("idle", "loans")

    def __init__(self) -> None:
        self.idle: list[_Idle] = []
        self.loans: dict[int, ref[Loan]] = {}

    def is_full(self, size: int) -> bool:
        """Whether *size* loans are alive; those that died without their block's end are not."""
        self.loans = {name: loan for name, loan in self.loans.items() if loan() is not None}
        return len(self.loans) >= size


class Loan:
    """A connection that is lent, and its place in the pool; used as a context manager."""

    __slots__ = ("__weakref__", "_place", "_pool", "connection")

    def __init__(self, pool: ConnectionPool, place: _Place) -> None:
        self._pool = pool
        self._place = place
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
        self._pool.take_back(self, self._place)


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
        self._lock = threading.Lock()  # guards all below
        self._changed = threading.Condition(self._lock)
        self._places: dict[Address, _Place] = {}
        self._waiting = 0
        self._closed = False
        self._next_sweep = 0.0

    def lend(self, address: Address, deadline: float) -> Loan:
        """A loan of a usable connection to *address*, to be used in a ``with`` block.

        Raises PoolTimeout when all are lent until *deadline*, ClientClosed after :meth:`close`,
        and what opening a connection raises.
        """
        place = self._places.get(address)
        if place is None:
            place = self._places.setdefault(address, _Place())
        loan = Loan(self, place)
        while (idle := self._admit(loan, place, address, deadline)) is not None:
            loan.connection = idle
            if idle.is_usable():
                return loan
            loan.connection = None
            idle.close()
        try:
            loan.connection = self._open(address, deadline)
        finally:
            if loan.connection is None:
                self.take_back(loan, place)
        return loan

    def take_back(self, loan: Loan, place: _Place) -> None:
        """End *loan*: a clean connection goes back, any other is closed."""
        connection, loan.connection = loan.connection, None
        retired: list[Connection] | None = None
        now = monotonic()
        with self._lock:
            place.loans.pop(id(loan), None)
            if connection is not None:
                if connection.spoiled or self._closed:
                    retired = [connection]
                else:
                    place.idle.append(_Idle(connection, now))
            if now >= self._next_sweep:
                retired = (retired or []) + self._take_cold(now)
            if self._waiting:
                self._changed.notify_all()
        if retired:
            _close_all(retired)

    def retire(self, address: Address) -> None:
        """Close what is idle to *address*: an error has proved it dead."""
        with self._lock:
            place = self._places.get(address)
            entries = place.idle if place else []
            if place:
                place.idle = []
        _close_all([entry.connection for entry in entries])

    def wait_for_loans(self, deadline: float) -> None:
        """Return when nothing is lent, at the latest at *deadline*."""
        with self._lock:
            while any(place.is_full(1) for place in self._places.values()):
                left = deadline - monotonic()
                if left <= 0:
                    return
                self._wait(left)

    def close(self) -> None:
        """Close what is idle, refuse new loans, wake who waits; loans close as they end."""
        with self._lock:
            self._closed = True
            entries = [entry for place in self._places.values() for entry in place.idle]
            for place in self._places.values():
                place.idle = []
            self._changed.notify_all()
        _close_all([entry.connection for entry in entries])

    def drop(self) -> None:
        """In a forked child: close the descriptors alone, without a word to the parent's peers."""
        for place in self._places.values():
            loans = [loan() for loan in place.loans.values()]
            lent = [loan.connection for loan in loans if loan is not None]
            for connection in [entry.connection for entry in place.idle] + lent:
                if connection is not None:
                    connection.drop()

    def _admit(
        self, loan: Loan, place: _Place, address: Address, deadline: float
    ) -> Connection | None:
        """Wait for a place: an idle connection, or None for leave to open one."""
        name = id(loan)
        with self._lock:
            while True:
                if self._closed:
                    raise ClientClosed("the client was closed")
                free = len(place.loans) < self._size or name in place.loans
                if free or not place.is_full(self._size):
                    place.loans[name] = ref(loan)
                    return place.idle.pop().connection if place.idle else None
                left = deadline - monotonic()
                if left <= 0:
                    raise PoolTimeout(
                        f"all {self._size} connections to {address} are in use; "
                        "raise pool_size or publish from fewer threads"
                    )
                self._wait(left)

    def _wait(self, left: float) -> None:
        """Under the lock: until something came back, at most for a while."""
        self._waiting += 1
        try:
            self._changed.wait(min(left, _LOOK_AGAIN))
        finally:
            self._waiting -= 1

    def _take_cold(self, now: float) -> list[Connection]:
        """Under the lock: take out what has been idle too long."""
        self._next_sweep = now + min(_LOOK_AGAIN, self._idle_timeout / 10)
        cold: list[Connection] = []
        for place in self._places.values():
            while place.idle and now - place.idle[0].since > self._idle_timeout:
                cold.append(place.idle.pop(0).connection)
        return cold


def _close_all(connections: list[Connection]) -> None:
    for connection in connections:
        connection.close()
