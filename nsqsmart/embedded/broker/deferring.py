"""Messages that wait for their time, and when a partition wants to be looked at next."""

from __future__ import annotations

import heapq
from math import inf

from nsqsmart.embedded.broker.records import Record


class Alarm:
    """A lower bound of the next time something is due, in seconds of the caller's clock.

    Everything that takes a deadline lowers it; only a full look at the partition raises it. So a
    delivery costs one comparison, whatever the number of messages in flight.
    """

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = inf

    def by(self, due: float) -> None:
        """Something is due at *due*."""
        if due < self.at:
            self.at = due


class Deferrals:
    """What REQ and DPUB put off; times are seconds of the caller's clock."""

    def __init__(self, alarm: Alarm) -> None:
        self._alarm = alarm
        self._schedule: list[tuple[float, int, Record]] = []
        self._keys: set[bytes] = set()
        self._serial = 0

    def __len__(self) -> int:
        return len(self._schedule)

    def __contains__(self, key: bytes) -> bool:
        """Whether the message *key* is held."""
        return key in self._keys

    def hold(self, record: Record, due: float) -> None:
        """Hold *record*, which is not held yet, until *due*."""
        self._keys.add(record.key)
        # Of two that are due at once the first to come goes first; records do not compare.
        self._serial += 1
        heapq.heappush(self._schedule, (due, self._serial, record))
        self._alarm.by(due)

    def take_due(self, now: float) -> list[Record]:
        """What need not be held any longer, in order."""
        due: list[Record] = []
        while self._schedule and self._schedule[0][0] <= now:
            record = heapq.heappop(self._schedule)[2]
            self._keys.discard(record.key)
            due.append(record)
        return due

    def next_due(self) -> float | None:
        """When the first of them is due, None if there is none."""
        return self._schedule[0][0] if self._schedule else None

    def clear(self) -> None:
        """Forget them all."""
        self._schedule.clear()
        self._keys.clear()
