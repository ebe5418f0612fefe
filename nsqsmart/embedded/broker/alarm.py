"""When a partition wants to be looked at next."""

from __future__ import annotations

from math import inf


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
