"""What the servers of a cluster were asked, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import count, islice
from typing import NamedTuple

_KEPT = 200_000


class LoggedCommand(NamedTuple):
    """One command, or one HTTP request (``GET /lookup``); ``nsqd`` is the node's host:port.

    ``connection`` numbers the connections of a node from 1. ``topic`` is empty and ``partition``
    None where the command names none.
    """

    serial: int
    nsqd: str
    connection: int
    command: str
    topic: str = ""
    partition: int | None = None


class CommandLog:
    """The newest entries; older ones are forgotten."""

    def __init__(self) -> None:
        self._entries: deque[LoggedCommand] = deque(maxlen=_KEPT)
        self._serial = count(1)

    def add(
        self,
        nsqd: str,
        connection: int,
        command: str,
        topic: str = "",
        partition: int | None = None,
    ) -> None:
        """Note a command that was received."""
        self._entries.append(
            LoggedCommand(next(self._serial), nsqd, connection, command, topic, partition)
        )

    def of(self, command: str, topic: str | None = None) -> list[LoggedCommand]:
        """The entries of one command, of one topic if it is given."""
        return [
            entry for entry in self if entry.command == command and topic in (None, entry.topic)
        ]

    def clear(self) -> None:
        """Forget everything; serials go on."""
        self._entries.clear()

    def __iter__(self) -> Iterator[LoggedCommand]:
        # A copy: commands arrive while the caller looks.
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int) -> LoggedCommand:
        if index < 0:
            return list(self._entries)[index]
        return next(islice(iter(self), index, None))
