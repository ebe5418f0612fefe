"""What a run under load came to: a row of a table, and whether it is as promised."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import NamedTuple

import nsqsmart
from nsqsmart.errors import Outcome
from nsqsmart.testing.history import inversions
from tests.integration.load import ASYNC_KEYED, KEYED, RETRY, Failure, Load

ORDERED = (KEYED, RETRY, ASYNC_KEYED)


class Copy(NamedTuple):
    """A delivery."""

    partition: int
    internal_id: int
    offset: int
    body: bytes


class Collector:
    """A handler that keeps what came, but not what an earlier run left behind."""

    def __init__(self, mark: str) -> None:
        self.copies: list[Copy] = []
        self.bodies: set[bytes] = set()
        self._mark = f"{mark} ".encode()
        self._lock = threading.Lock()

    def __call__(self, message: nsqsmart.Message) -> None:
        if not message.body.startswith(self._mark):
            return
        copy = Copy(message.partition, message.internal_id, message.offset, message.body)
        with self._lock:
            self.copies.append(copy)
            self.bodies.add(message.body)


class Gaps(NamedTuple):
    """The longest times without a success: of all our streams, of keyed calls, of the probe."""

    ours: float
    keyed: float
    probe: float

    def __str__(self) -> str:
        return f"{self.ours:.2f} (keyed {self.keyed:.2f}) / {self.probe:.2f}"


@dataclass
class Verdict:
    """One row."""

    row: str
    calls: int
    failures: list[Failure]
    slowest: tuple[float, str]
    most_attempts: int
    gaps: dict[tuple[str, int], Gaps]
    """Behind which event, and in which partition."""
    twice: int
    disorder: list[str]
    lost: set[bytes]

    def __str__(self) -> str:
        gaps = ", ".join(f"{what} {number}: {found}" for (what, number), found in self.gaps.items())
        took, stream = self.slowest
        return (
            f"{self.row:19} | calls {self.calls} | errors {self.errors()} | "
            f"slowest {took:.2f} s ({stream}), {self.most_attempts} attempts | gaps {gaps} | "
            f"twice {self.twice} | out of order {len(self.disorder)} | lost {len(self.lost)}"
        )

    def errors(self) -> str:
        """How many errors of which kind; a batch has one for all of its messages."""
        kinds = Counter(
            f"{type(error).__name__} {error.code} {error.outcome}, {stream} {place}"
            for stream, place, error in self.distinct()
        )
        return "; ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"

    def distinct(self) -> list[tuple[str, int | None, Exception]]:
        """Stream, partition and error of every command that failed."""
        found = {
            id(each.error): (each.stream, each.partition, each.error) for each in self.failures
        }
        return list(found.values())

    def check(self, patience: float | None, hung: float = 0.0) -> None:
        """Fail unless all is as promised.

        Ours may wait for *patience* seconds longer than the probe, None leaves that out; and for
        *hung* more behind a loss.
        """
        unanswered: Counter[int | None] = Counter()
        for stream, place, error in self.distinct():
            assert stream in (KEYED, ASYNC_KEYED), (stream, error, error.attempts)
            assert error.outcome is Outcome.UNCERTAIN, (error, error.attempts)
            assert not error.answered, (error, error.attempts)
            unanswered[place] += 1
        assert max(unanswered.values(), default=0) <= 1, unanswered
        assert not self.lost, f"never consumed: {sorted(self.lost)[:5]}"
        assert not self.disorder, f"out of order: {self.disorder[:5]}"
        for (what, number), found in self.gaps.items():
            if patience is None:
                continue
            longest = found.probe + patience + (hung if what == "loss" else 0.0)
            assert max(found.ours, found.keyed) <= longest, f"{what}, partition {number}: {found}"


def judge(row: str, load: Load, collector: Collector) -> Verdict:
    notes = load.notes
    records = in_log_order(collector.copies)
    return Verdict(
        row,
        len(notes.took),
        notes.failures,
        max(notes.took),
        max(notes.attempts),
        gaps_of(load),
        sum(count - 1 for count in Counter(each.body for each in records).values()),
        disorder(records),
        load.stored() - collector.bodies,
    )


def gaps_of(load: Load) -> dict[tuple[str, int], Gaps]:
    """Those between each event and the next."""
    ends = [at for at, _ in load.events[1:]] + [inf]
    found = {}
    for (since, what), until in zip(load.events, ends, strict=True):
        for number, probe in zip(load.partitions, load.probes, strict=True):
            every = load.notes.times.items()
            ours = [at for (_, place), times in every if place == number for at in times]
            streams = (ours, load.notes.times[KEYED, number], probe.times)
            found[what, number] = Gaps(*(gap(times, since, until) for times in streams))
    return found


def gap(times: list[float], since: float = 0.0, until: float = inf) -> float:
    """The longest time without a success, of those that ended between *since* and *until*."""
    gaps = [b - a for a, b in pairwise(sorted(times)) if since <= b < until]
    return max(gaps, default=0.0)


def in_log_order(copies: list[Copy]) -> list[Copy]:
    """What the log has, without what was only delivered again."""
    records = {(each.partition, each.internal_id): each for each in copies}
    return sorted(records.values(), key=lambda each: (each.partition, each.offset))


def disorder(records: list[Copy]) -> list[str]:
    """Messages of a key whose first copy stands behind the first copy of a later one."""
    told = (record.body.split() for record in records)
    ordered = [(key, int(n)) for _, stream, key, n in told if stream.decode() in ORDERED]
    return [str(each) for each in inversions(ordered)]
