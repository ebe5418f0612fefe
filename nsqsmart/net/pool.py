"""Connections kept by nsqd address and lent to one caller at a time.

A lent connection comes back clean or is closed. No slot is counted: what is free is ``size``
minus the connections alive, so a caller who is interrupted between two lines, or never gives
back, cannot leak one. To take and to give back an idle connection is one operation on a list
each, which no lock need guard; the lock is for callers that must wait or dial. Callers that wait
are served first come, first served, and no later call overtakes them: else a few busy threads
would keep the connections among them.
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
from nsqsmart.net.waiters import Waiter, new_waiter, wait_for, wake

_SWEEP_EVERY = 1.0
# Seconds that a look whether a connection lives is good for: it costs two system calls.
_TRUST = 0.005
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


class HostPool:
    """The connections to one nsqd: idle ones, coldest first, all live ones; and waiting callers.

    Any thread may use ``idle``, one list operation at a time, and see whether ``line`` is empty;
    the lock guards the rest. ``line`` holds weak references. A connection of another
    ``generation`` is not kept.
    """

    __slots__ = ("alive", "generation", "idle", "line", "stats")

    def __init__(self) -> None:
        self.idle: list[Connection] = []
        self.alive: dict[int, ref[Connection | Dial]] = {}
        self.line: deque[ref[Waiter]] = deque()
        self.generation = 0
        self.stats = PoolStats()

    def add(self, one: Connection | Dial) -> None:
        """Count it for as long as it lives; called with the lock."""
        self.alive[id(one)] = ref(one)

    def count(self) -> int:
        """The live connections, lent or idle; called with the lock."""
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

    def first(self) -> Waiter | None:
        """The first waiter in the line; called with the lock."""
        while self.line:
            waiter = self.line[0]()
            if waiter is not None:
                return waiter
            self.line.popleft()
        return None

    def leave(self, waiter: Waiter) -> None:
        """Take *waiter* out of the line, if it is there; called with the lock."""
        if ref(waiter) in self.line:
            self.line.remove(ref(waiter))

    def take_idle(self) -> Connection | None:
        """Take the most recently used idle connection, or None."""
        try:
            return self.idle.pop()
        except IndexError:
            return None

    def take_all_idle(self) -> Iterator[Connection]:
        """Take every idle connection; safe if several threads do so at once."""
        while (connection := self.take_idle()) is not None:
            yield connection

    def take_cold(self, since: float) -> Iterator[Connection]:
        """Take the connections that have been idle since before *since*."""
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

    *idle_timeout* in seconds: no thread answers heartbeats of an idle connection, so one that is
    idle for longer than 1.5 heartbeat intervals is closed when another is given back.
    """

    def __init__(
        self, opener: Callable[[Address, float], Connection], size: int, idle_timeout: float
    ) -> None:
        self._open = opener
        self._size = size
        self._idle_timeout = idle_timeout
        self.meter: Metrics | None = None
        self._lock = threading.Lock()  # guards the counts and the line of waiters
        self._hosts: dict[Address, HostPool] = {}
        self._watchers: tuple[Waiter, ...] = ()
        self._closed = False
        self._next_sweep = 0.0

    def take(
        self,
        address: Address,
        deadline: float,
        now: float | None = None,
        *,
        look: bool = False,
    ) -> Connection:
        """A usable connection to *address*, to be given back in any case.

        One that was seen alive less than 5 ms ago is lent without another look (decisions#84),
        but for *look*. *now* saves a look at the clock; ``lent_at`` of the connection is when it
        was got.

        Raises PoolTimeout when all are lent until *deadline*, ClientClosed after :meth:`close`,
        and what opening a connection raises.
        """
        host = self._hosts.get(address)
        if host is None:
            host = self._hosts.setdefault(address, HostPool())
        if now is None:
            now = monotonic()
        while not host.line:
            connection = host.take_idle()
            if connection is None:
                break
            recent = now < connection.seen_alive + _TRUST and now < connection.expires_at
            if (recent and not look) or connection.is_usable(now):
                connection.loans += 1
                connection.lent_at = now
                return connection
            self._lose(connection)
        connection = self._stand_in_line(host, address, deadline)
        connection.loans += 1
        connection.lent_at = monotonic()
        return connection

    def give_back(self, connection: Connection) -> None:
        """End the loan: a clean connection is idle from now on, any other is closed."""
        # That an exchange takes a while makes it a little colder than it is.
        now = connection.lent_at
        host = self._hosts[connection.address]
        if connection.spoiled or connection.generation != host.generation:
            self._discard(connection, "error" if connection.spoiled else "retired")
        else:
            connection.idle_since = now
            host.idle.append(connection)
            if host.line:
                self._wake_first(host)
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
        host = self._hosts.get(address)
        if host is None:
            return
        with self._lock:
            host.generation += 1
        for connection in host.take_all_idle():
            self._discard(connection, "retired")

    def stats(self) -> dict[str, PoolStats]:
        """Figures by nsqd, "host:port"."""
        with self._lock:
            hosts = list(self._hosts.items())
            return {str(address): host.figures(self._size) for address, host in hosts}

    def wait_for_loans(self, deadline: float, busy: Callable[[], bool] = bool) -> None:
        """Return when nothing is lent and *busy* says no, at the latest at *deadline*.

        *busy* is asked again after every loan and every :meth:`tell_watchers`.
        """
        waiter = new_waiter()
        with self._lock:
            self._watchers = (*self._watchers, waiter)
        while (self._is_lending() or busy()) and (left := deadline - monotonic()) > 0:
            wait_for(waiter, left)

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
        """Close idle connections, hang up lent ones, refuse new loans, wake waiting callers."""
        self._closed = True
        self._discard_idle()
        with self._lock:
            lent = self._connections()
            lines = [each() for host in self._hosts.values() for each in host.line]
        for connection in lent:
            connection.hang_up()
        for waiter in filter(None, lines):
            wake(waiter)

    def drop(self) -> None:
        """In a forked child: close the descriptors alone, without a word to the parent's peers."""
        for connection in self._connections():
            connection.drop()

    def _is_lending(self) -> bool:
        with self._lock:
            hosts = list(self._hosts.values())
            return any(host.count() > len(host.idle) or host.first() for host in hosts)

    def _connections(self) -> list[Connection]:
        """All that are alive, lent or idle."""
        found = [each() for host in list(self._hosts.values()) for each in host.alive.values()]
        return [one for one in found if one is not None and not isinstance(one, Dial)]

    def _stand_in_line(self, host: HostPool, address: Address, deadline: float) -> Connection:
        """Wait for the turn, and then for a connection or for room to open one."""
        waiter, began = new_waiter(), monotonic()
        waited = False
        try:
            with self._lock:
                host.line.append(ref(waiter))
            while True:
                found = self._look(host, waiter)
                if isinstance(found, Dial):
                    break
                if found is None:
                    waited = True
                    self._wait(waiter, host, address, deadline)
                elif found.is_usable():
                    return found
                else:
                    self._lose(found)
        finally:
            # Twice if an interrupt comes in between: a caller that keeps its traceback keeps the
            # waiter alive, and no other caller would get past it.
            try:
                self._leave(host, waiter)
            except BaseException:
                self._leave(host, waiter)
                raise
            if waited:
                self._note_wait(host, monotonic() - began)
        return self._dial(found, host, address, deadline)

    def _leave(self, host: HostPool, waiter: Waiter) -> None:
        with self._lock:
            host.leave(waiter)
        self._wake_first(host)

    def _look(self, host: HostPool, waiter: Waiter) -> Connection | Dial | None:
        """The connection, or free slot, that *waiter* in the line can take now."""
        with self._lock:
            if self._closed:
                raise ClientClosed(_CLOSED)
            if host.first() is not waiter:
                return None
            idle = host.take_idle()
            if idle is not None or host.count() >= self._size:
                return idle
            dial = Dial()
            host.add(dial)
            host.stats.connections_num += 1
            return dial

    def _note_wait(self, host: HostPool, seconds: float) -> None:
        with self._lock:
            host.stats.requests_queued += 1
            host.stats.requests_wait_ms += round(seconds * 1000)
        if self.meter is not None:
            self.meter.pool_waited(seconds)

    def _wait(self, waiter: Waiter, host: HostPool, address: Address, deadline: float) -> None:
        left = deadline - monotonic()
        if left <= 0:
            with self._lock:
                host.stats.requests_errors += 1
            raise PoolTimeout(
                f"all {self._size} connections to {address} are in use; "
                "raise pool_size or publish from fewer threads"
            )
        wait_for(waiter, left)

    def _dial(self, dial: Dial, host: HostPool, address: Address, deadline: float) -> Connection:
        """Open a connection in the room that *dial* stands for."""
        connection: Connection | None = None
        generation = host.generation
        try:
            connection = self._open(address, deadline)
            connection.generation = generation
        finally:
            with self._lock:
                host.alive.pop(id(dial), None)
                if connection is None:
                    host.stats.connections_errors += 1
                else:
                    host.add(connection)
            if connection is None:
                self._wake_first(host)
        if self._closed:
            self._discard(connection, "closed")
            raise ClientClosed(_CLOSED)
        return connection

    def _lose(self, connection: Connection) -> None:
        """An idle one was found dead."""
        self._discard(connection, "expired" if monotonic() >= connection.expires_at else "lost")

    def _discard(self, connection: Connection, reason: str) -> None:
        """Close it, for one of the reasons of :data:`nsqsmart.metrics.CLOSED`."""
        host = self._hosts[connection.address]
        with self._lock:
            if host.alive.pop(id(connection), None):
                host.stats.requests_num += connection.loans
            host.stats.returns_bad += reason == "error"
            host.stats.connections_lost += reason in {"expired", "lost"}
        connection.close()
        if self.meter is not None:
            self.meter.connection_closed(str(connection.address), reason)
        if host.line:
            self._wake_first(host)

    def _wake_first(self, host: HostPool) -> None:
        with self._lock:
            first = host.first()
        if first is not None:
            wake(first)

    def _discard_idle(self) -> None:
        for host in list(self._hosts.values()):
            for connection in host.take_all_idle():
                self._discard(connection, "closed")

    def _sweep(self, now: float) -> None:
        """Close what has been idle too long."""
        self._next_sweep = now + min(_SWEEP_EVERY, self._idle_timeout / 10)
        for host in list(self._hosts.values()):
            for connection in host.take_cold(now - self._idle_timeout):
                self._discard(connection, "idle")
