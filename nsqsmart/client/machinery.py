"""What a producer runs on in one process."""

from __future__ import annotations

import threading

from nsqsmart.client.async_publisher import AsyncPublisher
from nsqsmart.client.directory import Directory
from nsqsmart.client.figures import producer_figures
from nsqsmart.client.measuring import make_meter
from nsqsmart.client.publisher import Publisher
from nsqsmart.config import Endpoint, ProducerConfig
from nsqsmart.errors import ClientClosed
from nsqsmart.metrics import Figure
from nsqsmart.names import Address
from nsqsmart.net.connection import Connection, open_connection
from nsqsmart.net.handshake import Greeting
from nsqsmart.net.lookup import WRITE
from nsqsmart.net.pool import ConnectionPool
from nsqsmart.net.wires import Wires

_LAST_WORD = 1.0  # seconds


class Machinery:
    """The shared parts of publish(), and those of publish_async() from its first use."""

    def __init__(self, endpoint: Endpoint, config: ProducerConfig, greeting: Greeting) -> None:
        self._greeting = greeting
        self._wires = Wires()
        self._lock = threading.Lock()  # guards that the one below is made once, and not at the end
        self._async: AsyncPublisher | None = None
        self._begun = self._closed = False
        idle = config.pool_idle_timeout or 1.5 * (config.heartbeat_interval or 30.0)
        self._meter = meter = make_meter(config)
        pool = ConnectionPool(self.open, config.pool_size, idle)
        pool.meter = meter
        directory = Directory(endpoint, config, WRITE, self._wires)
        directory.on_gone = self._retire
        self.publisher = Publisher(config, directory, pool, greeting.offer.client_id, meter)

    def begin(self) -> None:
        """It is the one of this process: of those that are made at once only one is used."""
        with self._lock:
            if self._meter is not None and not self._begun:
                self._meter.watch(self)
            self._begun = True

    def figures(self) -> list[Figure]:
        """What there is of connections and leaders."""
        return producer_figures(self.publisher)

    def asynchronous(self) -> AsyncPublisher:
        """Made on first use: it has threads. Raises ClientClosed."""
        if self._async is None:
            with self._lock:
                if self._closed:
                    raise ClientClosed("the Producer was closed")
                if self._async is None:
                    self._async = AsyncPublisher(self.publisher, self.open)
        return self._async

    @property
    def async_pending(self) -> int:
        """Messages of publish_async that are not settled."""
        return self._async.room.messages if self._async else 0

    def flush(self, deadline: float) -> bool:
        """Whether everything of publish_async is settled, at the latest at *deadline*."""
        return self._async is None or self._async.room.wait_empty(deadline)

    def close(self, deadline: float) -> None:
        """Let what is under way end until *deadline*, then end it."""
        with self._lock:
            self._closed = True
        if self._async:
            self._async.room.close()
        self.flush(deadline)
        self.publisher.close(deadline)
        if self._async:
            self._async.refuse()
        self._wires.cut()
        self.publisher.directory.beside.join(_LAST_WORD)
        if self._async:
            self._async.close()
        if self._meter is not None:
            self._meter.unwatch(self)

    def refuse(self) -> None:
        """Lend no connection any more; takes no lock, and waits for nobody."""
        self.publisher.pool.refuse()

    def drop(self) -> None:
        """In a forked child: close the descriptors alone."""
        self.publisher.pool.drop()
        if self._async:
            self._async.drop()
        self._wires.drop()  # of lookups under way

    def _retire(self, addresses: frozenset[Address]) -> None:
        """The lookups list these no more."""
        for address in addresses:
            self.publisher.pool.retire(address)
        if self._async:
            self._async.retire(addresses)

    def open(self, address: Address, deadline: float) -> Connection:
        """A new connection, which is the caller's alone."""
        return open_connection(address, self._greeting, deadline, self._wires)
