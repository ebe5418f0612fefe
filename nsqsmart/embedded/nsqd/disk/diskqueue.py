"""A queue of messages on disk, in the files and the format of the original nsqd.

``NAME.diskqueue.000000.dat`` holds one message after another: four bytes of length, then the
message as it is sent. ``NAME.diskqueue.meta.dat`` says how many are left, and where reading and
writing stand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nsqsmart.embedded.broker.records import Record

_SIZE = 4
_FRAME_HEAD = 8
_ATTEMPTS = slice(8, 10)
_SHORTEST = 26


class KeptMessage(NamedTuple):
    """A message of an earlier life: as it is sent, and how often it was delivered."""

    message: bytes
    attempts: int

    @property
    def id(self) -> bytes:
        """Its message id, which grows with time."""
        return self.message[10:26]


class DiskQueue:
    """The file of one topic or channel. Messages are written at once, the position at a sync."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._file: BinaryIO | None = None
        self._waiting: deque[tuple[int, int]] = deque()
        self._read = self._written = 0

    def _path(self, part: int | str) -> Path:
        shown = part if isinstance(part, str) else f"{part:06}"
        return self._folder / f"{self._name}.diskqueue.{shown}.dat"

    def load(self) -> list[KeptMessage]:
        """What was not finished when the position was last written; nothing of it is forgotten."""
        try:
            lines = self._path("meta").read_text().split()
            read, written = (tuple(map(int, line.split(","))) for line in lines[1:3])
        except (OSError, ValueError):
            read, written = (0, 0), (0, 0)
        found: list[KeptMessage] = []
        number = read[0]
        # A process that was killed had written more after the position it had noted.
        while number <= written[0] or self._path(number).exists():
            with suppress(OSError):
                data = self._path(number).read_bytes()
                found += _split(data, read[1] if number == read[0] else 0)
            number += 1
        return found

    def write(self, records: Iterable[Record], attempts: int = 0) -> None:
        """Append *records*."""
        self._append((record.index, record.frame[_FRAME_HEAD:], attempts) for record in records)

    def replace(self, unfinished: Iterable[tuple[Record, int]]) -> None:
        """Hold exactly these, each with its deliveries."""
        self.empty()
        self._append(
            (record.index, record.frame[_FRAME_HEAD:], tries) for record, tries in unfinished
        )
        self.sync(lambda _: False)

    def _append(self, messages: Iterable[tuple[int, bytes, int]]) -> None:
        pieces: list[bytes] = []
        for index, message, attempts in messages:
            data = b"".join((message[:8], attempts.to_bytes(2), message[10:]))
            pieces += (len(data).to_bytes(_SIZE), data)
            self._written += _SIZE + len(data)
            self._waiting.append((index, self._written))
        if not pieces:
            return
        if self._file is None:
            self._file = self._path(0).open("ab", buffering=0)
        self._file.write(b"".join(pieces))

    def sync(self, finished: Callable[[int], bool]) -> None:
        """Note how far everything is *finished*, by index; an empty queue has no file."""
        waiting = self._waiting
        while waiting and finished(waiting[0][0]):
            self._read = waiting.popleft()[1]
        if waiting:
            lines = (str(len(waiting)), f"0,{self._read}", f"0,{self._written}", "")
            self._path("meta").write_text("\n".join(lines))
        elif self._written:
            self.empty()

    def empty(self) -> None:
        """Forget everything."""
        self.close()
        for path in self._folder.glob(f"{self._name}.diskqueue.*.dat"):
            # "t.diskqueue." is no prefix of the files of other queues.
            path.unlink(missing_ok=True)
        self._waiting.clear()
        self._read = self._written = 0

    def close(self) -> None:
        """Write no more for now."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _split(data: bytes, position: int) -> Iterator[KeptMessage]:
    """The messages of one file from *position* on; half a message at the end is none."""
    while position + _SIZE <= len(data):
        start = position + _SIZE
        position = start + int.from_bytes(data[position:start])
        message = data[start:position]
        if position > len(data) or len(message) < _SHORTEST:
            return
        yield KeptMessage(message, int.from_bytes(message[_ATTEMPTS]))
