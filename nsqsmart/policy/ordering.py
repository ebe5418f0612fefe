"""Whether a partition's messages come in order, by offset and internal id."""

from __future__ import annotations

from bisect import bisect_right
from enum import StrEnum

# Beyond it the oldest gaps are forgotten: where several consumers share a partition each sees some.
_MOST_RANGES = 1000


class Order(StrEnum):
    """How a message stands to those before it.

    NEXT: after the last one. REPEAT: the last one again. REWIND: back to one that came before, or
    to before the first one, after an operator set the channel back or the server redelivers from
    its confirmed position. VIOLATION: a later offset without a larger internal id, or a message
    that has never come, though later ones have; no healthy server sends either.
    """

    NEXT = "next"
    REPEAT = "repeat"
    REWIND = "rewind"
    VIOLATION = "violation"


class OrderCheck:
    """One per partition, for all of its connections."""

    __slots__ = ("_ends", "_internal_id", "_offset", "_starts")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Nothing has come: whatever is next is in order."""
        self._offset = -1
        self._internal_id = -1
        # What has come, as ranges of the log: one, where no message was missing.
        self._starts: list[int] = []
        self._ends: list[int] = []

    @property
    def position(self) -> tuple[int, int]:
        """Offset and internal id of the newest message; -1 each before the first."""
        return self._offset, self._internal_id

    def judge(self, offset: int, internal_id: int, size: int = 1) -> Order:
        """Judge the next message, *size* bytes of the log; a violation is no new position."""
        if (offset, internal_id) == self.position:
            return Order.REPEAT
        if offset > self._offset and internal_id <= self._internal_id:
            return Order.VIOLATION
        missed = self._was_missed(offset)
        self._note(offset, offset + max(size, 1))
        if missed:
            return Order.VIOLATION
        order = Order.NEXT if offset > self._offset else Order.REWIND
        self._offset, self._internal_id = offset, internal_id
        return order

    def _was_missed(self, offset: int) -> bool:
        """Whether it lies between messages that have come, and has not."""
        place = bisect_right(self._starts, offset)
        return 0 < place < len(self._starts) and offset >= self._ends[place - 1]

    def _note(self, start: int, end: int) -> None:
        place = bisect_right(self._starts, start)
        if not place and self._starts:
            # The channel was set back to before our time: what lies between was not missed.
            end = max(end, self._starts[0])
        if place and start <= self._ends[place - 1]:
            self._ends[place - 1] = max(end, self._ends[place - 1])
            place -= 1
        else:
            self._starts.insert(place, start)
            self._ends.insert(place, end)
        behind = place + 1
        while behind < len(self._starts) and self._starts[behind] <= self._ends[place]:
            self._ends[place] = max(self._ends[place], self._ends[behind])
            del self._starts[behind], self._ends[behind]
        if len(self._starts) > _MOST_RANGES:
            del self._starts[1], self._ends[0]
