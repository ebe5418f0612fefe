"""Connections kept by nsqd address and lent to one caller at a time.

What is lent comes back clean or is closed. No slot is counted: the room that is left is ``size``
minus the connections alive, so a caller who is interrupted between two lines, or never gives
back, cannot leak one. To take and to give back an idle connection is one operation on a list
each, which no lock need guard; the lock is for who must wait or dial. Who waits is served in the
order of coming, and nobody passes by: a few busy threads would keep the connections among them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from weakref import ref

from nsqsmart.errors import ClientClosed, PoolTimeout
from nsqsmart.metrics import Metrics
from nsqsmart.names import Address
from nsqsmart.net.connection import Connection
from nsqsmart.net.places import Dial, Place, PoolStats
from nsqsmart.net.tokens import Token, new_token, wait_for, wake

_SWEEP_EVERY = 1.0
_CLOSED = "the client was closed"


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
        self.meter: Metrics | None = None
        self._lock = threading.Lock()  # guards who is counted, and who waits
        self._places: dict[Address, Place] = {}
        self._watchers: tuple[Token, ...] = ()
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
            place = self._places.setdefault(address, Place())
        if now is None:
            now = monotonic()
        while not place.line:
            connection = place.take_idle()
            if connection is None:
                break
            if connection.is_usable(now):
                connection.loans += 1
                connection.lent_at = now
                return connection
            self._lose(place, connection)
        connection = self._stand_in_line(place, address, deadline)
        connection.loans += 1
        connection.lent_at = monotonic()
        return connection

    def give_back(self, connection: Connection) -> None:
        """End the loan: a clean connection is idle from now on, any other is closed."""
        # That an exchange takes a while makes it a little colder than it is.
        now = connection.lent_at
        place = self._places[connection.address]
        if connection.spoiled or connection.generation != place.generation:
            place.stats.returns_bad += connection.spoiled
            self._discard(connection, "error" if connection.spoiled else "retired")
        else:
            connection.idle_since = now
            place.idle.append(connection)
            if place.line:
                self._wake_first(place)
        if self._closed:
            # It was closed in the middle of this loan.
            self._discard_idle()
        if now >= self._next_sweep:
            self._sweep(now)
        if self._watchers:
            self.tell_watchers()

    def retire(self, address: Address) -> None:
        """Keep no connection to *address* that there is now: close idle ones, and lent ones later.

        An error has proved it dead, or the lookups list it no more.
        """
        place = self._places.get(address)
        if place is None:
            return
        place.generation += 1
        for connection in place.take_all_idle():
            self._discard(connection, "retired")

    def stats(self) -> dict[str, PoolStats]:
        """Figures by nsqd, "host:port"."""
        with self._lock:
            places = list(self._places.items())
            return {str(address): place.figures(self._size) for address, place in places}

    def wait_for_loans(self, deadline: float, busy: Callable[[], bool] = bool) -> None:
        """Return when nothing is lent and *busy* says no, at the latest at *deadline*.

        *busy* is asked again after every loan and every :meth:`tell_watchers`.
        """
        token = new_token()
        self._watchers = (*self._watchers, token)
        while (self._is_lending() or busy()) and (left := deadline - monotonic()) > 0:
            wait_for(token, left)

    def tell_watchers(self) -> None:
        """Have :meth:`wait_for_loans` look again."""
        for watcher in self._watchers:
            wake(watcher)

    @property
    def closed(self) -> bool:
        """Whether nothing is lent any more."""
        return self._closed

    def refuse(self) -> None:
        """Lend no more, and keep nothing that comes back; takes no lock."""
        self._closed = True

    def close(self) -> None:
        """Close what is idle, hang up what is lent, refuse new loans, wake who waits."""
        self._closed = True
        self._discard_idle()
        with self._lock:
            lent = self._connections()
            lines = [each() for place in self._places.values() for each in place.line]
        for connection in lent:
            connection.hang_up()
        for token in filter(None, lines):
            wake(token)

    def drop(self) -> None:
        """In a forked child: close the descriptors alone, without a word to the parent's peers."""
        for connection in self._connections():
            connection.drop()

    def _is_lending(self) -> bool:
        with self._lock:
            places = list(self._places.values())
            return any(place.count() > len(place.idle) or place.first() for place in places)

    def _connections(self) -> list[Connection]:
        """All that are alive, lent or idle."""
        found = [each() for place in list(self._places.values()) for each in place.alive.values()]
        return [one for one in found if one is not None and not isinstance(one, Dial)]

    def _stand_in_line(self, place: Place, address: Address, deadline: float) -> Connection:
        """Wait for the turn, and then for a connection or for room to open one."""
        token, began = new_token(), monotonic()
        waited = False
        try:
            with self._lock:
                place.line.append(ref(token))
            while True:
                found = self._look(place, token)
                if isinstance(found, Dial):
                    break
                if found is None:
                    waited = True
                    self._wait(token, place, address, deadline)
                elif found.is_usable():
                    return found
                else:
                    self._lose(place, found)
        finally:
            if waited:
                place.note_wait(monotonic() - began, self.meter)
            # Twice if an interrupt comes in between: whoever keeps its traceback keeps the token,
            # and nobody would get past that.
            try:
                self._leave(place, token)
            except BaseException:
                self._leave(place, token)
                raise
        return self._dial(found, place, address, deadline)

    def _leave(self, place: Place, token: Token) -> None:
        with self._lock:
            place.leave(token)
        self._wake_first(place)

    def _look(self, place: Place, token: Token) -> Connection | Dial | None:
        """What there is for *token*, which is in the line."""
        with self._lock:
            if self._closed:
                raise ClientClosed(_CLOSED)
            if place.first() is not token:
                return None
            idle = place.take_idle()
            if idle is not None or place.count() >= self._size:
                return idle
            dial = Dial()
            place.add(dial)
            return dial

    def _wait(self, token: Token, place: Place, address: Address, deadline: float) -> None:
        left = deadline - monotonic()
        if left <= 0:
            place.stats.requests_errors += 1
            raise PoolTimeout(
                f"all {self._size} connections to {address} are in use; "
                "raise pool_size or publish from fewer threads"
            )
        wait_for(token, left)

    def _dial(self, dial: Dial, place: Place, address: Address, deadline: float) -> Connection:
        """Open a connection in the room that *dial* stands for."""
        connection: Connection | None = None
        generation = place.generation
        place.stats.connections_num += 1
        try:
            connection = self._open(address, deadline)
            connection.generation = generation
        finally:
            with self._lock:
                place.alive.pop(id(dial), None)
                if connection is None:
                    place.stats.connections_errors += 1
                else:
                    place.add(connection)
            if connection is None:
                self._wake_first(place)
        if self._closed:
            self._discard(connection, "closed")
            raise ClientClosed(_CLOSED)
        return connection

    def _lose(self, place: Place, connection: Connection) -> None:
        """An idle one was found dead."""
        place.stats.connections_lost += 1
        self._discard(connection, "expired" if monotonic() >= connection.expires_at else "lost")

    def _discard(self, connection: Connection, reason: str) -> None:
        """Close it, for one of the reasons of :data:`nsqsmart.metrics.CLOSED`."""
        place = self._places[connection.address]
        with self._lock:
            if place.alive.pop(id(connection), None):
                place.stats.requests_num += connection.loans
        connection.close()
        if self.meter is not None:
            self.meter.connection_closed(str(connection.address), reason)
        if place.line:
            self._wake_first(place)

    def _wake_first(self, place: Place) -> None:
        with self._lock:
            first = place.first()
        if first is not None:
            wake(first)

    def _discard_idle(self) -> None:
        for place in list(self._places.values()):
            for connection in place.take_all_idle():
                self._discard(connection, "closed")

    def _sweep(self, now: float) -> None:
        """Close what has been idle too long."""
        self._next_sweep = now + min(_SWEEP_EVERY, self._idle_timeout / 10)
        for place in list(self._places.values()):
            for connection in place.take_cold(now - self._idle_timeout):
                self._discard(connection, "idle")
