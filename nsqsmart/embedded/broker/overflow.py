"""Which waiting messages of an original queue are on disk: those that came when memory was full."""

from __future__ import annotations

from collections import deque
from collections.abc import Set as AbstractSet


class Overflow:
    """The indexes of a topic's or a channel's messages that are on disk and not read yet.

    *memory* is how many may wait in memory; with 0 everything goes through the disk, also what a
    consumer takes at once.
    """

    def __init__(self, memory: int, start: int) -> None:
        self._memory = memory
        self._runs: deque[tuple[int, int]] = deque()
        self._seen = start

    def count(self, cursor: int, left_out: AbstractSet[int] = frozenset()) -> int:
        """How many there are from *cursor* on."""
        runs = self._runs
        while runs and runs[0][1] <= cursor:
            runs.popleft()
        if not runs:
            return 0
        total = sum(stop - max(start, cursor) for start, stop in runs)
        return total - sum(1 for index in left_out if index >= cursor and index in self)

    def spill(self, waiting: int, on_disk: int, end: int) -> range:
        """What goes to disk now that *waiting* messages wait, *on_disk* of them there already.

        *end* is the index behind the last one.
        """
        excess = end - self._seen if self._memory == 0 else waiting - on_disk - self._memory
        new = range(max(end - max(excess, 0), self._seen), end)
        self._seen = end
        if new:
            self.add(new.start, new.stop)
        return new

    def add(self, start: int, stop: int) -> None:
        """These are on disk."""
        self._seen = max(self._seen, stop)
        if self._runs and self._runs[-1][1] == start:
            start = self._runs.pop()[0]
        if start < stop:
            self._runs.append((start, stop))

    def clear(self, start: int) -> None:
        """There is nothing before *start*."""
        self._runs.clear()
        self._seen = start

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and any(start <= index < stop for start, stop in self._runs)
