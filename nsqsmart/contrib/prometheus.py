"""Prometheus: what the clients tell, as metrics of a registry.

::

    from nsqsmart.contrib.prometheus import PrometheusMetrics

    nsqsmart.metrics.use(PrometheusMetrics())          # every client made from now on
    nsqsmart.Producer(address, metrics=PrometheusMetrics(registry=mine))    # or this one

Names, labels and help are those of :data:`nsqsmart.metrics.INSTRUMENTS`, with ``nsqsmart_`` before
them. Needs the extra: ``pip install 'nsqsmart[prometheus]'``.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from nsqsmart.metrics import INSTRUMENTS, Figure, Instrument, Metrics, Result, Source

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.metrics import MetricWrapperBase
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError(
        "nsqsmart.contrib.prometheus needs prometheus-client: pip install 'nsqsmart[prometheus]'"
    ) from error

PREFIX: Final = "nsqsmart_"

# Where several processes write: the sum of those that live, or what all of them have of it.
_MOST: Final = ("lookup_last_success_timestamp_seconds", "backoff_seconds")
# One process of several is not scraped: then events are the occasion to write what is only read.
_EVERY = 1.0

_Key = tuple[str, tuple[str, ...]]


class _Book:
    """What one process has read of its clients; a forked child begins another."""

    def __init__(self, gauges: set[_Key]) -> None:
        self.lock = threading.Lock()  # guards the two below
        self.read: WeakKeyDictionary[Source, dict[_Key, float]] = WeakKeyDictionary()
        self.gauges = gauges


class PrometheusMetrics(Metrics):
    """Counts in *registry*; make one for a process, before the clients.

    Gauges, and what consumers count by themselves, are read when the registry is scraped.

    Args:
        registry: default: the one that ``prometheus_client`` exposes.
        buckets: upper bounds by the name of a histogram, as
            ``{"publish_duration_seconds": (0.001, 0.01, 0.1)}``, instead of the usual ones.

    Raises:
        ValueError: a name in *buckets* is no histogram, or *registry* has these metrics already.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        buckets: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        registry = REGISTRY if registry is None else registry
        own = dict(buckets or {})
        histograms = [name for name, row in INSTRUMENTS.items() if row.kind == "histogram"]
        if wrong := [name for name in own if name not in histograms]:
            raise ValueError(f"{wrong[0]!r} is no histogram; there are {', '.join(histograms)}")
        self._books: dict[int, _Book] = {}
        self._children: dict[_Key, Any] = {}
        self._read_at = 0.0
        # The first to be collected, so that the others are up to date.
        registry.register(_ScrapeReader(self))
        self._metrics = {
            name: _make(name, row, registry, own.get(name, row.bounds))
            for name, row in INSTRUMENTS.items()
        }

    def published(
        self, topic: str, result: Result, messages: int, size: int, seconds: float
    ) -> None:
        """A publish came to its end."""
        self._at("publish_total", topic, result).inc()
        if result == "ok":
            self._at("published_messages_total", topic).inc(messages)
            self._at("published_bytes_total", topic).inc(size)
        self._at("publish_duration_seconds", topic).observe(seconds)
        self._read_sometimes()

    def retried(self, topic: str, reason: str) -> None:
        """A publish is tried again."""
        self._at("publish_retries_total", topic, reason).inc()

    def leaders_changed(self, topic: str, count: int) -> None:
        """Partitions have other leaders."""
        self._at("leader_changes_total", topic).inc(count)

    def pool_waited(self, seconds: float) -> None:
        """A publish waited for a connection."""
        self._at("pool_wait_seconds").observe(seconds)

    def connection_closed(self, nsqd: str, reason: str) -> None:
        """A connection has ended."""
        self._at("connections_closed_total", nsqd, reason).inc()

    def looked_up(self, lookupd: str, seconds: float, *, ok: bool) -> None:
        """A lookupd was asked."""
        self._at("lookup_duration_seconds", lookupd).observe(seconds)
        # There with its first sight: a rate is not seen of what appears at 1.
        self._at("lookup_errors_total", lookupd).inc(0 if ok else 1)
        if ok:
            self._at("lookup_last_success_timestamp_seconds").set(time.time_ns() / 1e9)

    def delivered(self, topic: str, channel: str, age: float, attempts: int) -> None:
        """A message is about to be handled."""
        self._at("message_age_seconds", topic, channel).observe(age)
        self._at("message_attempts", topic, channel).observe(attempts)

    def handled(self, topic: str, channel: str, seconds: float) -> None:
        """A handler has ended."""
        self._at("handler_duration_seconds", topic, channel).observe(seconds)
        self._read_sometimes()

    def watch(self, source: Source) -> None:
        """A client has begun."""
        book = self._book()
        with book.lock:
            book.read[source] = {}

    def unwatch(self, source: Source) -> None:
        """It is about to end."""
        self.read()
        book = self._book()
        with book.lock:
            book.read.pop(source, None)
        self.read()

    def read(self) -> None:
        """Bring gauges, and the counters of consumers, up to date; a scrape does so by itself."""
        self._read_at = time.monotonic()
        book = self._book()
        with book.lock:
            sources = list(book.read)
        # Not under the lock: they have locks of their own.
        found = {source: list(source.figures()) for source in sources}
        with book.lock:
            self._count(book, found)
            self._gauge(book, (each for figures in found.values() for each in figures))

    def _read_sometimes(self) -> None:
        if time.monotonic() >= self._read_at + _EVERY:
            self.read()

    def _count(self, book: _Book, found: Mapping[Source, Iterable[Figure]]) -> None:
        for source, figures in found.items():
            before = book.read.get(source)
            if before is None:  # it has ended meanwhile
                continue
            for name, labels, value in figures:
                if INSTRUMENTS[name].kind != "counter":
                    continue
                # A reading that a later one has overtaken adds nothing.
                more = max(0.0, value - before.get((name, labels), 0.0))
                before[name, labels] = max(value, before.get((name, labels), 0.0))
                self._at(name, *labels).inc(more)

    def _gauge(self, book: _Book, figures: Iterable[Figure]) -> None:
        sums: dict[_Key, float] = dict.fromkeys(book.gauges, 0.0)
        for name, labels, value in figures:
            if INSTRUMENTS[name].kind == "gauge":
                sums[name, labels] = sums.get((name, labels), 0.0) + value
        book.gauges = set(sums)
        for (name, labels), value in sums.items():
            self._at(name, *labels).set(value)

    def _book(self) -> _Book:
        book = self._books.get(os.getpid())
        if book is None:
            # What the parent's gauges showed is not ours: the next reading says 0.
            gauges = {each for book in list(self._books.values()) for each in book.gauges}
            book = self._books.setdefault(os.getpid(), _Book(gauges))
        return book

    def _at(self, name: str, *labels: str) -> Any:
        """The metric with these labels, found once: ``labels()`` is slow."""
        child = self._children.get((name, labels))
        if child is None:
            metric = self._metrics[name]
            child = metric.labels(*labels) if labels else metric
            self._children[name, labels] = child
        return child


class _ScrapeReader(Collector):
    """Has no metric of its own."""

    def __init__(self, metrics: PrometheusMetrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Any]:
        """Nothing."""
        return ()

    def collect(self) -> Iterable[Any]:
        """Nothing; the registry is being scraped."""
        self._metrics.read()
        return ()


def _make(
    name: str, row: Instrument, registry: CollectorRegistry, bounds: Sequence[float]
) -> MetricWrapperBase:
    full = PREFIX + name
    if row.kind == "counter":
        return Counter(full, row.help, row.labels, registry=registry)
    if row.kind == "gauge":
        return Gauge(
            full,
            row.help,
            row.labels,
            registry=registry,
            multiprocess_mode="livemax" if name in _MOST else "livesum",
        )
    return Histogram(full, row.help, row.labels, registry=registry, buckets=bounds)
