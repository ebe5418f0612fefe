"""Connections kept by nsqd address and lent to one caller at a time.

What is lent comes back clean or is closed. No slot is counted: the room that is left is ``size``
minus the connections alive, so a caller who is interrupted between two lines, or never gives
back, cannot leak one. To take and to give back an idle connection is one operation on a list
each, which no lock need guard; the lock is for callers that must wait or dial. They are served in
the order of coming, and no call passes by: a few busy threads would keep the connections among
them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import monotonic
from weakref import ref

from nsqsmart.errors import ClientClosed, PoolTimeout
from nsqsmart.metrics import Metrics
from nsqsmart.names import Address
from nsqsmart.net.connection import Connection
from nsqsmart.net.waiters import Token, new_token, wait_for, wake

_SWEEP_EVERY = 1.0
_CLOSED = "the client was closed"


class Dial:
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


class Place:
    """What there is of one nsqd: idle connections, coldest first, all that are alive, who waits.

    ``idle`` is anybody's, one list operation at a time, and so is looking whether anybody is in
    ``line``; the rest is the lock's. Nobody in the line is kept alive by it. A connection of
    another ``generation`` is not kept.
    """

    __slots__ = ("alive", "generation", "idle", "line", "stats")

    def __init__(self) -> None:
        self.idle: list[Connection] = []
        self.alive: dict[int, ref[Connection | Dial]] = {}
        self.line: deque[ref[Token]] = deque()
        self.generation = 0
        self.stats = PoolStats()

    def add(self, one: Connection | Dial) -> None:
        """Count it for as long as it lives; called with the lock."""
        self.alive[id(one)] = ref(one)

    def count(self) -> int:
        """Those alive, lent or idle; called with the lock."""
        self.alive = {name: one for name, one in self.alive.items() if one() is not None}
        return len(self.alive)

    def figures(self, most: int) -> PoolStats:
        """The figures now, of which *most* is the bound; called with the lock."""
        size = self.count()
        alive = [each() for each in self.alive.values()]
        loans = sum(each.loans for each in alive if each and not isinstance(each, Dial))
        return replace(
            self.stats,
            pool_max=most,
            pool_size=size,
            pool_available=len(self.idle),
            requests_num=self.stats.requests_num + loans,
        )

    def note_wait(self, seconds: float, meter: Metrics | None) -> None:
        """Somebody has waited so long."""
        self.stats.requests_queued += 1
        self.stats.requests_wait_ms += round(seconds * 1000)
        if meter is not None:
            meter.pool_waited(seconds)

    def first(self) -> Token | None:
        """Whose turn it is; called with the lock."""
        while self.line:
            token = self.line[0]()
            if token is not None:
                return token
            self.line.popleft()
        return None

    def leave(self, token: Token) -> None:
        """Take *token* out of the line, if it is there; called with the lock."""
        if ref(token) in self.line:
            self.line.remove(ref(token))

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
