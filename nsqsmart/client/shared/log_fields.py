"""Fields of the library's log records, and a limit on how often a line is logged."""

from __future__ import annotations

import threading
from time import monotonic
from typing import Protocol

from nsqsmart.policy.topology import Target

LogFields = dict[str, str | int]

_PAUSE = 60.0


class Subscribed(Protocol):
    """A place where a topic is consumed."""

    topic: str
    channel: str
    target: Target


class Delivered(Protocol):
    """A message, as far as logs name it: never its body."""

    attempts: int

    @property
    def topic(self) -> str:
        """The topic's name."""

    @property
    def channel(self) -> str:
        """The channel's name."""

    @property
    def partition(self) -> int | None:
        """The partition's number; None on an original nsqd."""

    @property
    def nsqd(self) -> str:
        """The nsqd it came from."""


def log_fields(
    topic: str,
    *,
    channel: str | None = None,
    partition: int | None = None,
    nsqd: str | None = None,
    attempts: int | None = None,
) -> LogFields:
    """The fields of a topic, channel, partition and nsqd, without those that are unknown."""
    known = {"channel": channel, "partition": partition, "nsqd": nsqd, "attempts": attempts}
    found = {f"nsq_{name}": value for name, value in known.items() if value is not None}
    return {"nsq_topic": topic} | found


def message_fields(message: Delivered) -> LogFields:
    """The fields of a message."""
    return log_fields(
        message.topic,
        channel=message.channel,
        partition=message.partition,
        nsqd=message.nsqd,
        attempts=message.attempts,
    )


def subscription_fields(place: Subscribed) -> LogFields:
    """The fields of a subscription."""
    target = place.target
    return log_fields(
        place.topic, channel=place.channel, partition=target.partition, nsqd=target.name
    )


class LogThrottle:
    """Says when to tell of something: the first time, then at most once in *pause* seconds."""

    def __init__(self, pause: float = _PAUSE) -> None:
        self._pause = pause
        self._lock = threading.Lock()  # guards the two below
        self._next = 0.0
        self._untold = 0

    def tell(self, count: int = 1) -> int | None:
        """It happened *count* times: how often since it was told last, or None if too early."""
        now = monotonic()
        with self._lock:
            self._untold += count
            if now < self._next:
                return None
            self._next = now + self._pause
            untold, self._untold = self._untold, 0
            return untold
