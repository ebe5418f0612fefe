"""What clients tell about themselves: metrics and health."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec

from nsqsmart.client.shared.errors import NoLeader
from nsqsmart.errors import (
    ConnectError,
    ConnectionLost,
    DiscoveryError,
    NsqError,
    PoolTimeout,
    ProtocolError,
    ResponseTimeout,
    ServerError,
)
from nsqsmart.metrics import Metrics, Result, Source, chosen

if TYPE_CHECKING:
    from nsqsmart.config import ClientConfig

log = logging.getLogger("nsqsmart")

P = ParamSpec("P")

# The order matters: NoLeader and the others are what they are before they are transport errors.
_REASONS: tuple[tuple[type[NsqError], str], ...] = (
    (NoLeader, "no_leader"),
    (ResponseTimeout, "timeout"),
    (ConnectError, "connect"),
    (ConnectionLost, "closed"),
    (PoolTimeout, "pool"),
    (DiscoveryError, "lookup"),
    (ProtocolError, "protocol"),
)
# What a peer says becomes a label: it must not be anything it likes.
_CODE = re.compile(r"E_[A-Z_]{1,40}")
_MOST_CODES = 50


@dataclass(frozen=True, slots=True)
class Health:
    """``state`` is "idle" before the first use, "ready", "degraded", "failing" or "closed".

    A Consumer that was started is "discovering" until it has reached a lookup and subscribed to an
    nsqd. ``ok`` is False for "failing" and "closed": what is tried now is expected to fail.
    ``reasons`` say why it is not "ready".
    """

    state: str
    reasons: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it works as far as it knows."""
        return self.state not in {"failing", "closed"}


class Meter(Metrics):
    """Passes every report on to *metrics*; what that raises is logged once and goes no further.

    Its methods are those of :class:`~nsqsmart.metrics.Metrics`.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._complained = False
        self._codes: set[str] = set()

    def published(
        self, topic: str, result: Result, messages: int, size: int, seconds: float
    ) -> None:
        """A publish came to its end."""
        self._tell(self._metrics.published, topic, result, messages, size, seconds)

    def failed(self, topic: str, error: NsqError) -> None:
        """A publish is tried again after *error*."""
        self.retried(topic, self._reason(error))

    def retried(self, topic: str, reason: str) -> None:
        """A publish is tried again."""
        self._tell(self._metrics.retried, topic, reason)

    def leaders_changed(self, topic: str, count: int) -> None:
        """Partitions have other leaders."""
        self._tell(self._metrics.leaders_changed, topic, count)

    def pool_waited(self, seconds: float) -> None:
        """A publish waited for a connection."""
        self._tell(self._metrics.pool_waited, seconds)

    def connection_closed(self, nsqd: str, reason: str) -> None:
        """A connection has ended."""
        self._tell(self._metrics.connection_closed, nsqd, reason)

    def looked_up(self, lookupd: str, seconds: float, *, ok: bool) -> None:
        """A lookupd was asked."""
        self._tell(self._metrics.looked_up, lookupd, seconds, ok=ok)

    def delivered(self, topic: str, channel: str, age: float, attempts: int) -> None:
        """A message is about to be handled."""
        self._tell(self._metrics.delivered, topic, channel, age, attempts)

    def handled(self, topic: str, channel: str, seconds: float) -> None:
        """A handler has ended."""
        self._tell(self._metrics.handled, topic, channel, seconds)

    def watch(self, source: Source) -> None:
        """A client has begun."""
        self._tell(self._metrics.watch, source)

    def unwatch(self, source: Source) -> None:
        """It is about to end."""
        self._tell(self._metrics.unwatch, source)

    def _reason(self, error: NsqError) -> str:
        if isinstance(error, ServerError):
            known = error.code in self._codes
            if not known and len(self._codes) < _MOST_CODES and _CODE.fullmatch(error.code):
                self._codes.add(error.code)
                known = True
            return error.code if known else "other"
        return next((reason for kind, reason in _REASONS if isinstance(error, kind)), "other")

    def _tell(self, method: Callable[P, None], *log_fields: P.args, **more: P.kwargs) -> None:
        try:
            method(*log_fields, **more)
        except Exception:
            if not self._complained:
                self._complained = True
                log.exception("metrics %r failed; this is not said again", self._metrics)


def make_meter(config: ClientConfig) -> Meter | None:
    """The metrics that a client with these options reports to, or None."""
    metrics = config.metrics or chosen()
    return None if metrics is None else Meter(metrics)


def note_retry(meter: Meter | None, topic: str, error: NsqError) -> None:
    """A publish is tried again after *error*."""
    if meter is not None:
        meter.failed(topic, error)
