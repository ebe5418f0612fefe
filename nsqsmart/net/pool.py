"""Connections kept by nsqd address and lent to one caller at a time.

What is lent comes back clean or is closed. No slot is counted: the room that is left is ``size``
minus the connections alive, so a caller who is interrupted between two lines, or never gives
back, cannot leak one. To take and to give back an idle connection is one operation on a list
each, which no lock need guard; the lock is for who must wait or dial.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import monotonic
from weakref import ref

from nsqsmart.errors import ClientClosed, PoolTimeout
from nsqsmart.names import Address
from nsqsmart.net.connection import Connection

# A connection that dies without being given back wakes nobody, so whoever waits looks again.
_LOOK_AGAIN = 1.0


class _Dial:
    """Stands for a connection that is being opened."""

    __slots__ = ("__weakref__",)


@dataclass(slots=True)
class PoolStats:
    """Figures of one nsqd since the beginning, named as those of psycopg_pool.

    ``pool_size`` are the connections alive or being opened, ``pool_available`` those of them that
    are idle; ``requests_num`` loans, ``requests_queued`` those that had to wait, together for
    ``requests_wait_ms``, ``requests_errors`` those that waited in vain; ``returns_bad`` loans that
    ended their connection; ``connections_num`` attempts to open one, ``connections_errors`` failed
    ones; ``connections_lost`` idle ones found dead.
    """

    pool_max: int = 0
    pool_size: int = 0
    pool_available: int = 0
    requests_num: int = 0
    requests_queued: int = 0
    requests_wait_ms: int = 0
    requests_errors: int = 0
    returns_bad: int = 0
    connections_num: int = 0
    connections_errors: int = 0
    connections_lost: int = 0


class _Place:
    """What there is of one nsqd: idle connections, coldest first, and all that are alive.

    ``idle`` is anybody's, one list operation at a time; ``alive`` and ``stats`` are the lock's.
    A connection of another ``generation`` is not kept.
    """

    __slots__ = ("alive", "generation", "idle", "stats")

    def __init__(self) -> None:
        self.idle: list[Connection] = []
        self.alive: dict[int, ref[Connection | _Dial]] = {}
        self.generation = 0
        self.stats = PoolStats()

    def add(self, one: Connection | _Dial) -> None:
        """Count it for as long as it lives; called with the lock."""
        self.alive[id(one)] = ref(one)

    def count(self) -> int:
        """Those alive, lent or idle; called with the lock."""
        self.alive = {name: one for name, one in self.alive.items() if one() is not None}
        return len(self.alive)

    def take_idle(self) -> Connection | None:
        """The warmest."""
        try:
            return self.idle.pop()
        except IndexError:
            return None

    def take_all_idle(self) -> Iterator[Connection]:
        """Every one, however many threads do the same."""
        while (connection := self.take_idle()) is not None:
            yield connection

    def take_cold(self, since: float) -> Iterator[Connection]:
        """Those that are idle since before *since*."""
        for connection in self.idle[:]:
            if connection.idle_since >= since:
                return
            try:
                self.idle.remove(connection)
            except ValueError:  # lent in the meantime
                continue
            yield connection


class ConnectionPool:
    """At most *size* connections to each nsqd, the most recently used one first.

    *idle_timeout* in seconds: nobody answers heartbeats of an idle connection, so one that is
    idle for longer than 1.5 heartbeat intervals is closed when another is given back.
    """

    def __init__(
        self, opener: Callable[[Address, float], Connection], size: int, idle_timeout: float
    ) -> None:
        self._open = opener
        self._size = size
        self._idle_timeout = idle_timeout
        self._lock = threading.Lock()  # guards who is counted, and who waits
        self._changed = threading.Condition(self._lock)
        self._places: dict[Address, _Place] = {}
        self._waiting = 0
        self._closed = False
        self._next_sweep = 0.0

    def take(self, address: Address, deadline: float, now: float | None = None) -> Connection:
        """A usable connection to *address*, to be given back in any case.

        *now* saves a look at the clock; ``lent_at`` of the connection is when it was got.

        Raises PoolTimeout when all are lent until *deadline*, ClientClosed after :meth:`close`,
        and what opening a connection raises.
        """
        place = self._places.get(address)
        if place is None:
            place = self._places.setdefault(address, _Place())
        if now is None:
            now = monotonic()
        while True:
            connection = place.take_idle()
            if connection is None:
                connection = self._wait_or_dial(place, address, deadline)
                now = monotonic()
                if connection is None:
                    continue
                connection.lent_at = now
                return connection
            if connection.is_usable(now):
                connection.loans += 1
                connection.lent_at = now
                return connection
            place.stats.connections_lost += 1
            self._discard(connection)

    def give_back(self, connection: Connection) -> None:
        """End the loan: a clean connection is idle from now on, any other is closed."""
        # That an exchange takes a while makes it a little colder than it is.
        now = connection.lent_at
        place = self._places[connection.address]
        if connection.spoiled or self._closed or connection.generation != place.generation:
            place.stats.returns_bad += connection.spoiled
            self._discard(connection)
        else:
            connection.idle_since = now
            place.idle.append(connection)
            if self._closed:
                # close() may have been here just before.
                self._discard_idle()
        if now >= self._next_sweep:
            self._sweep(now)
        if self._waiting:
            self._wake()

    def retire(self, address: Address) -> None:
        """Keep no connection to *address* that there is now: close idle ones, and lent ones later.

        An error has proved it dead, or the lookups list it no more.
        """
        place = self._places.get(address)
        if place is None:
            return
        place.generation += 1
        for connection in place.take_all_idle():
            self._discard(connection)

    def stats(self) -> dict[str, PoolStats]:
        """Figures by nsqd, "host:port"."""
        with self._lock:
            places = list(self._places.items())
            return {str(address): self._count(place) for address, place in places}

    def _count(self, place: _Place) -> PoolStats:
        """Called with the lock."""
        size = place.count()
        lent = [each() for each in place.alive.values()]
        loans = sum(each.loans for each in lent if each and not isinstance(each, _Dial))
        return replace(
            place.stats,
            pool_max=self._size,
            pool_size=size,
            pool_available=len(place.idle),
            requests_num=place.stats.requests_num + loans,
        )

    def wait_for_loans(self, deadline: float) -> None:
        """Return when nothing is lent, at the latest at *deadline*."""
        with self._lock:
            while any(place.count() > len(place.idle) for place in list(self._places.values())):
                left = deadline - monotonic()
                if left <= 0:
                    return
                self._wait(left)

    def close(self) -> None:
        """Close what is idle, end what is lent, refuse new loans, wake who waits."""
        self._closed = True
        self._discard_idle()
        for connection in self._connections():
            connection.hang_up()
        self._wake()

    def drop(self) -> None:
        """In a forked child: close the descriptors alone, without a word to the parent's peers."""
        for connection in self._connections():
            connection.drop()

    def _connections(self) -> Iterator[Connection]:
        """Every one that is alive, lent or idle."""
        for place in list(self._places.values()):
            for one in [each() for each in list(place.alive.values())]:
                if one is not None and not isinstance(one, _Dial):
                    yield one

    def _wait_or_dial(self, place: _Place, address: Address, deadline: float) -> Connection | None:
        """Open a connection when there is room; None as soon as one may be idle."""
        with self._lock:
            dial = self._await_room(place, address, deadline)
            if dial is None:
                return None
            place.add(dial)
            place.stats.connections_num += 1
            generation = place.generation
        connection: Connection | None = None
        try:
            connection = self._open(address, deadline)
        finally:
            with self._lock:
                place.alive.pop(id(dial), None)
                if connection is None:
                    place.stats.connections_errors += 1
                else:
                    connection.generation, connection.loans = generation, 1
                    place.add(connection)
                self._changed.notify_all()
        return connection

    def _await_room(self, place: _Place, address: Address, deadline: float) -> _Dial | None:
        """Under the lock: wait until one may be opened, or None as soon as one may be idle."""
        began = now = monotonic()
        try:
            while place.count() >= self._size and not place.idle and not self._closed:
                if now >= deadline:
                    place.stats.requests_errors += 1
                    raise PoolTimeout(
                        f"all {self._size} connections to {address} are in use; "
                        "raise pool_size or publish from fewer threads"
                    )
                self._wait(deadline - now)
                now = monotonic()
        finally:
            if now > began:
                place.stats.requests_queued += 1
                place.stats.requests_wait_ms += round((now - began) * 1000)
        if self._closed:
            raise ClientClosed("the client was closed")
        return None if place.idle else _Dial()

    def _discard(self, connection: Connection) -> None:
        with self._lock:
            place = self._places[connection.address]
            if place.alive.pop(id(connection), None):
                place.stats.requests_num += connection.loans
        connection.close()

    def _discard_idle(self) -> None:
        for place in list(self._places.values()):
            for connection in place.take_all_idle():
                self._discard(connection)

    def _sweep(self, now: float) -> None:
        """Close what has been idle too long."""
        self._next_sweep = now + min(_LOOK_AGAIN, self._idle_timeout / 10)
        for place in list(self._places.values()):
            for connection in place.take_cold(now - self._idle_timeout):
                self._discard(connection)

    def _wait(self, left: float) -> None:
        """Under the lock: until something came back, at most for a while."""
        self._waiting += 1
        try:
            self._changed.wait(min(left, _LOOK_AGAIN))
        finally:
            self._waiting -= 1

    def _wake(self) -> None:
        with self._lock:
            self._changed.notify_all()
