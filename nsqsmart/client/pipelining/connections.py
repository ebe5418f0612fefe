"""One pipelined connection to each nsqd."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

from nsqsmart.client.pipelining.pending import Pending
from nsqsmart.config import ProducerConfig
from nsqsmart.errors import ConnectionLost
from nsqsmart.names import Address
from nsqsmart.net.connection import Connection
from nsqsmart.net.pipeline import Pipeline, Sink
from nsqsmart.net.ticker import Ticker

Dial = Callable[[Address, float], Connection]


class Pipes:
    """Opened when there is something to send; one that is over is replaced."""

    def __init__(
        self, config: ProducerConfig, dial: Dial, sink: Sink[Pending], ticker: Ticker
    ) -> None:
        self._config = config
        self._dial = dial
        self._sink = sink
        self._ticker = ticker
        self._lock = threading.Lock()  # guards that one is opened at a time, and none at the end
        self._pipelines: dict[Address, Pipeline[Pending]] = {}
        self._closed = False

    def submit(self, pending: Pending, address: Address, command: bytes, now: float) -> None:
        """Send it to *address*; the sink hears what comes of it."""
        pipeline = self._pipelines.get(address)
        if pipeline is None or pipeline.over or now >= pipeline.expires_at:
            try:
                pipeline = self._open(address)
            except (ConnectionLost, RuntimeError) as error:  # the latter: no thread can start
                self._sink.on_error(pending, ConnectionLost(str(error)))
                return
        pipeline.submit(pending, command)

    def _open(self, address: Address) -> Pipeline[Pending]:
        now = monotonic()
        pipeline = Pipeline(address, self._sink, self._ticker)
        try:
            with self._lock:
                if self._closed:
                    raise ConnectionLost("the Producer was closed")  # noqa: TRY301 - to retire it does no harm
                old = self._pipelines.get(address)
                if old and not old.over and now < old.expires_at:
                    return old
                self._pipelines[address] = pipeline
            if old:
                old.retire()
            limit = now + self._config.dial_timeout + self._config.handshake_timeout
            pipeline.start(lambda: self._dial(address, limit), self._config)
        except BaseException:
            # An interrupt, once it is in the table: no thread will ever dial, and the next caller
            # opens another.
            pipeline.retire()
            raise
        return pipeline

    def retire(self, addresses: frozenset[Address]) -> None:
        """Retire the pipelines to these nsqds: no more messages are sent to them."""
        for address in addresses:
            pipeline = self._pipelines.get(address)
            if pipeline:
                pipeline.retire()

    def close(self) -> None:
        """End them all; what is unanswered will not be answered."""
        with self._lock:
            self._closed = True
            pipelines = list(self._pipelines.values())
        for pipeline in pipelines:
            pipeline.break_off(ConnectionLost("the Producer was closed", sent=True))
        for pipeline in pipelines:
            pipeline.join()

    def drop(self) -> None:
        """In a forked child: close the descriptors alone."""
        for pipeline in self._pipelines.values():
            pipeline.drop()
