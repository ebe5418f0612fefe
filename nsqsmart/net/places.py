"""What a pool has of one nsqd: its connections, who waits for one, and figures."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from weakref import ref

from nsqsmart.metrics import Metrics
from nsqsmart.net.connection import Connection
from nsqsmart.net.tokens import Token


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
