"""The metrics interface: what clients report, and the table of all metrics.

::

    from nsqsmart.contrib.prometheus import PrometheusMetrics

    producer = nsqsmart.Producer(address, metrics=PrometheusMetrics())
    nsqsmart.metrics.use(PrometheusMetrics())      # or: for every client made from now on

:class:`Metrics` does nothing by itself; an adapter overrides the methods it needs. They are called
on the thread that does the work, so they must be quick. An exception in one is logged and goes no
further. Times are seconds, sizes bytes. No argument ever holds a message id, a trace id, a key, a
body or the text of an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple, Protocol

Kind = Literal["counter", "gauge", "histogram"]
Result = Literal["ok", "error"]


class Figure(NamedTuple):
    """One value of the metric *name* that a client counts by itself, with its labels."""

    name: str
    labels: tuple[str, ...]
    value: float


class Source(Protocol):
    """A running client whose figures can be read."""

    def figures(self) -> Iterable[Figure]:
        """Return its gauges now, and its counters since it began; sends nothing to a server."""


class Metrics:
    """Receives what clients report; every method does nothing until an adapter overrides it."""

    def published(
        self, topic: str, result: Result, messages: int, size: int, seconds: float
    ) -> None:
        """A publish has ended: *messages* with *size* bytes of bodies, after all retries.

        publish_many with ``split=True`` calls this for each batch, publish_async when
        the message is settled.
        """

    def retried(self, topic: str, reason: str) -> None:
        """A publish is tried again. *reason* is the server's code, or one of REASONS."""

    def leaders_changed(self, topic: str, count: int) -> None:
        """*count* partitions of *topic* have another leader than before."""

    def pool_waited(self, seconds: float) -> None:
        """A publish had to wait for a connection, because all of ``pool_size`` were lent."""

    def connection_closed(self, nsqd: str, reason: str) -> None:
        """A connection to *nsqd* ("host:port") has ended; *reason* is one of CLOSED."""

    def looked_up(self, lookupd: str, seconds: float, *, ok: bool) -> None:
        """*lookupd* ("host:port") was asked, and answered or not."""

    def delivered(self, topic: str, channel: str, age: float, attempts: int) -> None:
        """A message is about to be handled.

        *age* is the time from its publication to its delivery, by two machines' clocks.
        """

    def handled(self, topic: str, channel: str, seconds: float) -> None:
        """A handler has ended, for one message or one batch."""

    def watch(self, source: Source) -> None:
        """*source* has started: read its figures from time to time. Keep only a weak reference."""

    def unwatch(self, source: Source) -> None:
        """*source* is about to end: read its counters a last time, and forget its gauges."""


REASONS: Final = (
    "timeout",
    "connect",
    "closed",
    "pool",
    "lookup",
    "no_leader",
    "protocol",
    "other",
)
"""Why a publish is tried again, where the server gave no code."""

CLOSED: Final = ("error", "lost", "expired", "retired", "idle", "closed")
"""Why a connection ended: it failed in use, was found dead, came to the end of its TLS lifetime,
was no longer listed or was proved dead by another, was idle for too long; or the client closed."""

SETTLED: Final = ("finished", "requeued", "gave_up", "expired", "settle_failed")
"""How a delivery ended. If the server refused a FIN or REQ because it came too late, the delivery
counts as ``settle_failed`` as well."""


class Instrument(NamedTuple):
    """A row of the table: *labels* by name, *bounds* of a histogram's buckets."""

    kind: Kind
    labels: tuple[str, ...]
    help: str
    bounds: tuple[float, ...] = ()


# fmt: off
_PUBLISH = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0,
)
_WAIT = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
_HANDLER = (
    0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0,
)
_AGE = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0)
# fmt: on
_ATTEMPTS = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0)
_CHANNEL = ("topic", "channel")

INSTRUMENTS: Final[Mapping[str, Instrument]] = {
    "publish_total": Instrument(
        "counter", ("topic", "result"), "Publish calls by result, ok or error."
    ),
    "published_messages_total": Instrument(
        "counter", ("topic",), "Messages that an nsqd has said OK to."
    ),
    "published_bytes_total": Instrument("counter", ("topic",), "Bytes of their bodies."),
    "publish_duration_seconds": Instrument(
        "histogram", ("topic",), "A whole publish call, with its retries.", _PUBLISH
    ),
    "publish_retries_total": Instrument(
        "counter", ("topic", "reason"), "Attempts after the first, by what went wrong before."
    ),
    "leader_changes_total": Instrument(
        "counter", ("topic",), "Partitions seen with another leader than before."
    ),
    "pool_connections": Instrument(
        "gauge", ("node", "state"), "Publishing connections, idle or used."
    ),
    "pool_wait_seconds": Instrument(
        "histogram", (), "Waits for a connection: pool_size is too small.", _WAIT
    ),
    "connections_closed_total": Instrument(
        "counter", ("node", "reason"), "Connections that have ended, by reason."
    ),
    "lookup_duration_seconds": Instrument(
        "histogram", ("lookupd",), "Requests to an nsqlookupd.", _WAIT
    ),
    "lookup_errors_total": Instrument(
        "counter", ("lookupd",), "Requests to an nsqlookupd that failed."
    ),
    "lookup_last_success_timestamp_seconds": Instrument(
        "gauge", (), "When an nsqlookupd answered last, in seconds since 1970."
    ),
    "partitions_missing": Instrument("gauge", ("topic",), "Partitions without a known leader."),
    "messages_received_total": Instrument("counter", _CHANNEL, "Messages that have come."),
    "messages_settled_total": Instrument("counter", (*_CHANNEL, "outcome"), "What became of them."),
    "handler_duration_seconds": Instrument(
        "histogram", _CHANNEL, "One run of a handler, for a message or a batch.", _HANDLER
    ),
    "message_age_seconds": Instrument(
        "histogram", _CHANNEL, "From a message's publication to its delivery.", _AGE
    ),
    "message_attempts": Instrument(
        "histogram", _CHANNEL, "Deliveries of a message, this one included.", _ATTEMPTS
    ),
    "in_flight": Instrument("gauge", _CHANNEL, "Messages that have come and are not answered."),
    "backoff_seconds": Instrument("gauge", _CHANNEL, "What is left of the pause after failures."),
    "starved": Instrument(
        "gauge",
        _CHANNEL,
        "1 where a connection has nearly used up its share of max_in_flight, also by messages that "
        "wait for a worker.",
    ),
    "order_violations_total": Instrument(
        "counter", (*_CHANNEL, "partition"), "Messages out of order; it must stay 0."
    ),
    "blocked_partitions": Instrument(
        "gauge",
        _CHANNEL,
        "Partitions held by a message that has failed or timed out ten times or more.",
    ),
}
"""Every metric, by its name without the prefix ``nsqsmart_``."""

_chosen: Metrics | None = None


def use(metrics: Metrics | None) -> None:
    """Report every client that is made from now on to *metrics*, unless it is given its own.

    None ends that. Raises TypeError for anything other than a :class:`Metrics` or None.
    """
    global _chosen  # noqa: PLW0603 - one for the process, as its users want it
    if metrics is not None and not isinstance(metrics, Metrics):
        raise TypeError(f"metrics must be a nsqsmart.metrics.Metrics, not {metrics!r}")
    _chosen = metrics


def chosen() -> Metrics | None:
    """Return the default metrics: the last argument of :func:`use`, or None."""
    return _chosen
