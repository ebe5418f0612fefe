"""What the report shows, as plain values; times in microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

PERCENTS = (50, 90, 95, 99, 100)
LATENCIES = ("to_receive", "to_finish", "whole")


@dataclass(frozen=True)
class ChannelFigures:
    """One channel of one topic.

    ``states`` counts messages by state; of each latency there are the PERCENTS percentiles.
    """

    topic: str
    channel: str | None
    messages: int
    states: dict[str, int]
    again: int
    gave_up: int
    latencies: dict[str, list[float | None]]

    @property
    def name(self) -> str:
        """Topic and channel."""
        return f"{self.topic} / {self.channel or '(no channel in the logs)'}"


@dataclass(frozen=True)
class Bar:
    """Messages whose whole latency is in a range, finished at once or only later."""

    least: float
    most: float
    first: int
    again: int


@dataclass(frozen=True)
class Minute:
    """Messages published in a stretch of time, and how old they were when finished."""

    begins: int
    messages: int
    finished: int
    percentiles: list[float | None]


class Term(NamedTuple):
    """One nsqd took all messages of a partition, from one time to another."""

    topic: str
    partition: int
    nsqd: str
    begins: int
    ends: int
    messages: int


class Event(NamedTuple):
    """One event of one message; the fields are columns of the table of events."""

    at: int
    source: str
    event: str
    channel: str | None
    attempts: int | None
    duration_us: int | None
    delay_ms: int | None
    client_id: str | None
    nsqd: str | None
    error: str | None


class Life(NamedTuple):
    """One message in one channel, with its events in the order of time.

    The other fields are columns of the table of lives.
    """

    topic: str
    partition: int
    internal_id: str
    trace_id: str | None
    channel: str | None
    state: str
    attempts: int | None
    born: int | None
    whole: int | None
    events: Sequence[Event] = ()


@dataclass(frozen=True)
class Figures:
    """Everything on the page."""

    made_at: str
    version: str
    sources: Sequence[str]
    late: float | None
    lines: int
    events: dict[str, int]
    dropped: dict[str, int]
    published: int
    failed: int
    begins: int | None
    ends: int | None
    channels: Sequence[ChannelFigures]
    histogram: Sequence[Bar]
    width: int
    minutes: Sequence[Minute]
    attempts: Sequence[tuple[int, int]]
    terms: Sequence[Term]
    parties: Sequence[dict[str, Any]]
    slowest: Sequence[Life]
    given_up: Sequence[Life]
    given_up_count: int
    seconds: float = field(default=0.0)
