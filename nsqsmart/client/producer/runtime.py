"""What a producer runs on in one process."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import asdict
from time import monotonic
from typing import Any

from nsqsmart.client.pipelining.async_publisher import AsyncPublisher
from nsqsmart.client.publishing.shared_state import PublishingState
from nsqsmart.client.shared.directory import Directory
from nsqsmart.client.shared.metrics import Health, make_meter
from nsqsmart.config import Endpoint, ProducerConfig
from nsqsmart.errors import ClientClosed, ConnectError, DiscoveryError, TransportError
from nsqsmart.metrics import Figure
from nsqsmart.names import Address
from nsqsmart.net.cancel_scope import CancelScope
from nsqsmart.net.connection import Connection, open_connection
from nsqsmart.net.handshake import Greeting
from nsqsmart.net.http.lookup import WRITE
from nsqsmart.net.pool import ConnectionPool
from nsqsmart.policy.routing import Key, Sharding, partition_for

_LAST_WORD = 1.0  # seconds


def producer_figures(publishing: PublishingState) -> list[Figure]:
    """Connections and missing leaders."""
    found = publishing.directory.missing_leaders()
    for node, stats in publishing.pool.stats().items():
        idle = stats.pool_available
        found.append(Figure("pool_connections", (node, "idle"), idle))
        found.append(Figure("pool_connections", (node, "used"), max(0, stats.pool_size - idle)))
    return found


class ProducerRuntime:
    """The shared parts of publish(), and those of publish_async() from its first use."""

    def __init__(self, endpoint: Endpoint, config: ProducerConfig, greeting: Greeting) -> None:
        self._greeting = greeting
        self._scope = CancelScope()
        self._lock = threading.Lock()  # guards that what is below begins once, and ends
        self._async: AsyncPublisher | None = None
        self._begun = self._watched = self._closed = self._ended = False
        idle = config.pool_idle_timeout or 1.5 * (config.heartbeat_interval or 30.0)
        self._meter = meter = make_meter(config)
        pool = ConnectionPool(self.open, config.pool_size, idle)
        pool.meter = meter
        directory = Directory(endpoint, config, WRITE, self._scope)
        directory.on_gone = self._retire
        self.publishing = PublishingState(config, directory, pool, greeting.offer.client_id, meter)

    def begin(self) -> None:
        """It is the one of this process: of those that are made at once only one is used."""
        if self._meter is None or self._begun:
            return
        with self._lock:
            begun, self._begun = self._begun, True
        if begun:
            return
        try:
            self._meter.watch(self)
        finally:
            with self._lock:
                self._watched = True
                ended = self._ended
        if ended:  # close() has left it to this thread
            self._meter.unwatch(self)

    def figures(self) -> list[Figure]:
        """What there is of connections and leaders."""
        return producer_figures(self.publishing)

    def asynchronous(self) -> AsyncPublisher:
        """Made on first use: it has threads. Raises ClientClosed."""
        if self._async is None and not self._closed:
            made = AsyncPublisher(self.publishing, self.open)
            try:
                with self._lock:
                    if self._async is None and not self._closed:
                        self._async = made
            finally:
                if self._async is not made:  # another thread's is used, or it was closed
                    made.close()
        if self._async is None:
            raise ClientClosed("the Producer was closed")
        return self._async

    @property
    def async_pending(self) -> int:
        """Messages of publish_async that are not settled."""
        return self._async.in_flight.messages if self._async else 0

    def flush(self, deadline: float) -> bool:
        """Whether everything of publish_async is settled, at the latest at *deadline*."""
        return self._async is None or self._async.in_flight.wait_empty(deadline)

    def close(self, deadline: float) -> None:
        """Let what is under way end until *deadline*, then end it."""
        with self._lock:
            self._closed = True
        if self._async:
            self._async.in_flight.close()
        self.flush(deadline)
        self.publishing.close(deadline)
        if self._async:
            self._async.refuse()
        self._scope.cut()
        self.publishing.directory.beside.join(_LAST_WORD)
        if self._async:
            self._async.close()
        with self._lock:
            last = self._watched and not self._ended
            self._ended = True
        if last and self._meter is not None:
            self._meter.unwatch(self)

    def refuse(self) -> None:
        """Lend no connection any more; takes no lock and does not wait."""
        self.publishing.pool.refuse()

    def drop(self) -> None:
        """In a forked child: close the descriptors alone."""
        self.publishing.pool.drop()
        if self._async:
            self._async.drop()
        self._scope.drop()  # of lookups under way

    def _retire(self, addresses: frozenset[Address]) -> None:
        """The lookups list these no more."""
        for address in addresses:
            self.publishing.pool.retire(address)
        if self._async:
            self._async.retire(addresses)

    def open(self, address: Address, deadline: float) -> Connection:
        """A new connection, which is the caller's alone."""
        return open_connection(address, self._greeting, deadline, self._scope)

    def warm(self, topics: Iterable[str], deadline: float) -> None:
        """Look *topics* up and open a connection to every nsqd they are on."""
        publishing = self.publishing
        addresses: dict[Address, None] = {}
        for topic in topics:
            topology = publishing.directory.get(topic, deadline)
            addresses.update((target.address, None) for target in topology.targets)
        for address in addresses:
            publishing.pool.give_back(publishing.pool.take(address, deadline))

    def partition_of(self, topic: str, key: Key, sharding: Sharding, deadline: float) -> int | None:
        """The partition that *key* goes to; None where the topic has none."""
        topology = self.publishing.directory.get(topic, deadline)
        if not topology.redesigned or topology.partition_num < 1:
            return None
        return partition_for(key, topology.partition_num, sharding)

    def ping(self, deadline: float) -> dict[str, float]:
        """Shake hands with every nsqd; the seconds it took, by "host:port"."""
        took: dict[str, float] = {}
        failures: list[str] = []
        addresses = self.publishing.directory.nodes(deadline)
        if not addresses:
            raise DiscoveryError("the lookups know no nsqd")
        for address in addresses:
            started = monotonic()
            try:
                self.open(address, deadline).close()
            except TransportError as error:
                failures.append(str(error))
            else:
                took[str(address)] = monotonic() - started
        if not took:
            raise ConnectError(f"no nsqd answers: {'; '.join(failures)}")
        return took

    def stats(self) -> dict[str, Any]:
        """Figures that JSON can take."""
        publishing, now = self.publishing, monotonic()
        return {
            "pools": {name: asdict(figures) for name, figures in publishing.pool.stats().items()},
            "topics": {
                topic: {
                    "state": str(topology.state),
                    "age": now - topology.taken_at if topology.taken_at else 0.0,
                    "partitions": topology.partition_num,
                    "redesigned": topology.redesigned,
                    "extended": topology.meta.extended,
                    "generation": topology.generation,
                    "nsqds": sorted({target.name for target in topology.targets}),
                }
                for topic, topology in publishing.directory.topologies().items()
            },
            "avoided": sorted(map(str, publishing.outages.avoided(now))),
            "turns_waiting": publishing.turns.waiting(),
            "async_pending": self.async_pending,
        }

    def health(self) -> Health:
        """What the last calls found."""
        publishing = self.publishing
        nsqds = {
            target.address
            for topology in publishing.directory.topologies().values()
            for target in topology.targets
        }
        avoided = publishing.outages.avoided(monotonic()) & nsqds
        lookups = publishing.directory.failing()
        reasons = [f"{address} does not answer" for address in sorted(avoided)]
        reasons += [f"topic {topic}: {failure}" for topic, failure in sorted(lookups.items())]
        failing_topics = publishing.failing_topics
        reasons += failing_topics.reasons()
        if not nsqds and not failing_topics.topics:
            # The first message of a new topic goes where no lookup knows it yet.
            used = any(
                each.pool_available or each.requests_num
                for each in publishing.pool.stats().values()
            )
            state = "failing" if lookups else "ready" if used else "idle"
            return Health(state, tuple(reasons))
        if avoided == nsqds or (failing_topics.everywhere and failing_topics.reasons()):
            return Health("failing", tuple(reasons))
        return Health("degraded" if reasons else "ready", tuple(reasons))
