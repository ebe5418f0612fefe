"""What a channel has still to send: its place in the log, and what goes out again."""

from __future__ import annotations

from collections import deque

from nsqsmart.embedded.broker.log import PartitionLog
from nsqsmart.embedded.broker.records import Record


class ChannelBacklog:
    """Messages in the order in which they go out.

    ``cursor`` is the index of the next record to read; ``again`` holds what was sent before, each
    with the index that must have been read first; ``left_out`` are indexes that are read past.
    """

    def __init__(self, log: PartitionLog, start: int) -> None:
        self.cursor = start
        self.again: deque[tuple[int, Record]] = deque()
        self.left_out: set[int] = set()
        self._log = log

    def available(self) -> int:
        """An upper bound of what may be sent."""
        return len(self.again) + self._log.visible - self.cursor

    def unread(self) -> int:
        """Records from the cursor on that are not left out."""
        start, end = max(self.cursor, self._log.base), self._log.visible
        return end - start - sum(1 for index in self.left_out if start <= index < end)

    def take(self, count: int) -> list[Record]:
        """Up to *count* messages, those that go out again where their turn has come."""
        if not self.again and not self.left_out:
            batch = self._log.read(self.cursor, self.cursor + count)
            self.cursor = batch[-1].index + 1 if batch else max(self.cursor, self._log.base)
            return batch
        taken: list[Record] = []
        while len(taken) < count:
            if self.again and self.again[0][0] <= self.cursor:
                taken.append(self.again.popleft()[1])
                continue
            found = self._log.read(self.cursor, self.cursor + 1)
            if not found:
                break
            self.cursor = found[0].index + 1
            if found[0].index in self.left_out:
                self.left_out.discard(found[0].index)
            else:
                taken += found
        return taken

    def put_back(self, record: Record) -> None:
        """Deliver *record* again: after others that wait for this, before unread records."""
        self.again.append((0, record))

    def put_first(self, record: Record) -> None:
        """*record* goes out before everything else."""
        self.again.appendleft((0, record))

    def put_last(self, record: Record) -> None:
        """Deliver *record* again, after everything that can be read now."""
        self.again.append((self._log.visible, record))

    def move_to(self, index: int) -> None:
        """Begin again at *index*."""
        self.cursor = index
        self.again.clear()
        self.left_out.clear()
