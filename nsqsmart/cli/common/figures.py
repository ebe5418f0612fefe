"""Statistics of many servers as one row for each topic and channel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from nsqsmart.terminal import Cell


@dataclass(frozen=True)
class Row:
    """A channel, or a topic without one, over all servers or of one partition.

    ``ingress`` and ``egress`` are messages a second, None where there is nothing to compare with.
    ``in_sync`` of ``replicas`` nodes have all of it, or of the partition that lacks most; None
    where that is not known, or was not asked.
    """

    topic: str
    partition: int | None
    leader: str | None
    channel: str | None
    depth: int = 0
    backend_depth: int = 0
    in_flight: int = 0
    deferred: int = 0
    requeue_count: int = 0
    timeout_count: int = 0
    message_count: int = 0
    clients: int = 0
    ingress: float | None = None
    egress: float | None = None
    paused: bool = False
    in_sync: int | None = None
    replicas: int | None = None

    @property
    def place(self) -> tuple[object, ...]:
        """What it is compared by."""
        return self.topic, self.partition, self.leader, self.channel

    def record(self) -> dict[str, Any]:
        """As JSON, without what is not known."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def cells(self, *, partitions: bool, moving: bool, replicas: bool = False) -> list[Cell]:
        """As a line of a table."""
        place: list[Cell] = [self.topic]
        if partitions:
            place += [self.partition, self.leader]
        name = None if self.channel is None else self.channel + (" (paused)" if self.paused else "")
        figures: list[Cell] = [self.depth, self.backend_depth, self.in_flight, self.deferred]
        figures += [self.requeue_count, self.timeout_count, self.message_count, self.clients]
        rates: list[Cell] = [self.ingress, self.egress] if moving else []
        copies = f"{'?' if self.in_sync is None else self.in_sync}/{self.replicas}"
        known: list[Cell] = [None if self.replicas is None else copies]
        return [*place, name, *figures, *(known if replicas else []), *rates]


_SUMMED = (
    *("depth", "backend_depth", "in_flight", "deferred"),
    *("requeue_count", "timeout_count", "message_count", "clients"),
)


def rows_of(stats: Any, *, by_partition: bool) -> list[Row]:
    """The rows of what :meth:`nsqsmart.Admin.stats` gave, sorted."""
    found: dict[tuple[object, ...], Row] = {}
    for row in _single(stats.topics, by_partition=by_partition):
        known = found.get(row.place)
        if known is not None:
            sums = {name: getattr(known, name) + getattr(row, name) for name in _SUMMED}
            row = replace(row, **sums, paused=known.paused or row.paused)  # noqa: PLW2901 - the sum
        found[row.place] = row
    return sorted(found.values(), key=_order)


def _single(topics: Iterable[Any], *, by_partition: bool) -> Iterator[Row]:
    for entry in topics:
        leader = (entry.nsqd if entry.leader else "none") if by_partition else None
        place = (entry.topic, entry.partition if by_partition else None, leader)
        if not entry.channels:
            yield Row(
                *place,
                None,
                entry.depth,
                entry.backend_depth,
                message_count=entry.message_count,
                paused=entry.paused,
            )
        for each in entry.channels:
            figures = {name: getattr(each, name) for name in _SUMMED}
            yield Row(*place, each.channel, **figures, paused=each.paused)


def with_replicas(rows: list[Row], found: Mapping[str, Iterable[Any]]) -> list[Row]:
    """The rows with what :meth:`nsqsmart.Admin.replicas` gave for their topics."""
    return [_replicated(row, list(found.get(row.topic, ()))) for row in rows]


def _replicated(row: Row, found: list[Any]) -> Row:
    own = [each for each in found if row.partition in (None, each.partition)]
    if not own:
        return row
    # What is not known comes first: it may be the one that lacks most.
    worst = min(own, key=lambda each: -1 if each.in_sync is None else each.in_sync)
    return replace(row, in_sync=worst.in_sync, replicas=worst.wanted)


def rates(rows: list[Row], before: Mapping[Any, Row], seconds: float) -> list[Row]:
    """The rows with the rates since *before*, *seconds* ago, as far as it has them."""
    return [_rated(row, before.get(row.place), seconds) for row in rows]


def _rated(row: Row, old: Row | None, seconds: float) -> Row:
    if old is None or seconds <= 0:
        return row
    came = row.message_count - old.message_count
    went = came - (row.depth - old.depth)
    return replace(row, ingress=max(0.0, came / seconds), egress=max(0.0, went / seconds))


def _order(row: Row) -> tuple[Any, ...]:
    partition = -1 if row.partition is None else row.partition
    return row.topic, partition, row.leader or "", row.channel or ""
