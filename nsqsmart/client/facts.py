"""What a log record is about, as fields of the record: ``extra=`` for the library's own records.

The names begin with ``nsq_``: plain ``name``, ``thread`` or ``message`` are logging's own.
"""

from __future__ import annotations

from typing import Protocol

from nsqsmart.policy.topology import Target

Facts = dict[str, str | int]


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
        """Its topic."""

    @property
    def channel(self) -> str:
        """Its channel."""

    @property
    def partition(self) -> int | None:
        """Its partition."""

    @property
    def nsqd(self) -> str:
        """Where it came from."""


def facts(
    topic: str,
    *,
    channel: str | None = None,
    partition: int | None = None,
    nsqd: str | None = None,
    attempts: int | None = None,
) -> Facts:
    """Those that are known."""
    known = {"channel": channel, "partition": partition, "nsqd": nsqd, "attempts": attempts}
    found = {f"nsq_{name}": value for name, value in known.items() if value is not None}
    return {"nsq_topic": topic} | found


def facts_of(message: Delivered) -> Facts:
    """Those of a message."""
    return facts(
        message.topic,
        channel=message.channel,
        partition=message.partition,
        nsqd=message.nsqd,
        attempts=message.attempts,
    )


def facts_at(place: Subscribed) -> Facts:
    """Those of a subscription."""
    target = place.target
    return facts(place.topic, channel=place.channel, partition=target.partition, nsqd=target.name)
