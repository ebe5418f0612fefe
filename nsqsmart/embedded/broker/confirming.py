"""Which messages of a channel are finished (protocol#confirm-window)."""

from __future__ import annotations


class Confirmed:
    """The index below which everything is finished, and what is finished above it.

    ``intervals`` counts the separate runs above: a redesigned nsqd stops reading when there are
    too many of them.
    """

    __slots__ = ("above", "intervals", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.above: set[int] = set()
        self.intervals = 0

    def add(self, index: int) -> None:
        """The message *index* is finished."""
        if index == self.position:
            self.position = index + 1
            if self.above:
                self._advance()
        elif index > self.position and index not in self.above:
            above = self.above
            above.add(index)
            self.intervals += 1 - (index - 1 in above) - (index + 1 in above)

    def _advance(self) -> None:
        """Swallow the run that now stands at the position."""
        above, position = self.above, self.position
        if position not in above:
            return
        self.intervals -= 1
        while position in above:
            above.discard(position)
            position += 1
        self.position = position

    def __contains__(self, index: int) -> bool:
        return index < self.position or index in self.above
