"""Whether a partition's messages come in order, by offset and internal id (DESIGN section 7)."""

from __future__ import annotations

from enum import StrEnum


class Order(StrEnum):
    """How a message stands to the one before it on the same connection.

    NEXT: behind it. REPEAT: the same one again. REWIND: an earlier offset, after an operator set
    the channel back or the server redelivers from its confirmed position. VIOLATION: a later
    offset without a larger internal id, which no healthy server sends.
    """

    NEXT = "next"
    REPEAT = "repeat"
    REWIND = "rewind"
    VIOLATION = "violation"


class OrderCheck:
    """One per partition and connection."""

    __slots__ = ("_internal_id", "_offset")

    def __init__(self) -> None:
        self._offset = -1
        self._internal_id = -1

    @property
    def position(self) -> tuple[int, int]:
        """Offset and internal id of the newest message; -1 each before the first."""
        return self._offset, self._internal_id

    def judge(self, offset: int, internal_id: int) -> Order:
        """Judge the next message, and remember it unless it is a violation."""
        before = (self._offset, self._internal_id)
        if (offset, internal_id) == before:
            return Order.REPEAT
        if offset > self._offset and internal_id <= self._internal_id:
            return Order.VIOLATION
        order = Order.NEXT if offset > self._offset else Order.REWIND
        self._offset, self._internal_id = offset, internal_id
        return order
