"""What waits of one topic: segments of records, and how far they have been sent.

Segments are written by whoever holds the lock of the spool. They are read by whoever holds the
lock of the topic, which is held while messages are sent; the lock of the spool never is.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from nsqsmart.client.facts import facts
from nsqsmart.client.spool_files import make_folder, read, replace, size_of, sync_folder, write_at
from nsqsmart.policy.spool_plan import WINDOW_MESSAGES, Progress, read_progress, window
from nsqsmart.wire.spool_records import (
    HEADER_SIZE,
    MARK_SIZE,
    Placed,
    SpoolRecord,
    encode_header,
    encode_record,
    read_mark,
    scan,
)

log = logging.getLogger("nsqsmart")

_SEGMENT = ".segment"
_REFUSED = "refused"
_FOLDER = "topic."
"""Before the name of a topic, which may be one or two dots."""


class SpoolQueue:
    """The messages of *topic* that wait in *spool*, a folder."""

    def __init__(self, spool: Path, topic: str, segment_bytes: int) -> None:
        self.topic = topic
        self.folder = spool / f"{_FOLDER}{topic}"
        self.sending = self.folder / "sending.lock"
        self._progress_file = self.folder / "progress"
        self._segment_bytes = segment_bytes
        self._tail: tuple[int, int, bytes] | None = None

    def progress(self) -> Progress:
        """How far it has been sent."""
        data = read(self._progress_file)
        found = read_progress(data)
        if data and found is None:
            log.error(
                "spool: %s cannot be read: what waits is sent from its beginning",
                self._progress_file,
                extra=facts(self.topic),
            )
        return found or Progress()

    def waiting(self) -> bool:
        """Whether something waits, as far as sizes tell; takes no lock."""
        numbers = self._numbers()
        if not numbers:
            return False
        progress = self.progress()
        last = numbers[-1]
        if last != progress.segment:
            return last > progress.segment
        return size_of(self._file(last)) > max(progress.offset, HEADER_SIZE)

    # --------------------------------------------------------------------- with the spool's lock

    def append(self, records: Iterable[SpoolRecord], room: int) -> None:
        """Have *records* on the disk, all of them, in at most *room* bytes.

        Raises OSError, and ValueError for a message that is too large; none is there then.
        """
        make_folder(self.folder)
        number, end, mark = self._find_end()
        if end >= self._segment_bytes:
            number, end = number + 1, 0
        if not end:
            mark = secrets.token_bytes(MARK_SIZE)
        self._tail = None
        data = b"".join(encode_record(record, mark) for record in records)
        if not end:
            data = encode_header(mark) + data
        if len(data) > room:
            raise OSError(
                f"{str(self.folder.parent)!r} has no room for {len(data)} bytes more below "
                "spool_max_bytes: have it sent by nsqsmart spool flush, or raise the limit"
            )
        write_at(self._file(number), data, end)
        if not end:
            sync_folder(self.folder)
        self._tail = number, end + len(data), mark

    def _find_end(self) -> tuple[int, int, bytes]:
        """The segment to write, where it ends, and its mark; what a dead writer left is cut off."""
        numbers, progress = self._numbers(), self.progress()
        if not numbers or numbers[-1] < progress.segment:
            return max(progress.segment, 1), 0, b""
        last = numbers[-1]
        file = self._file(last)
        size = size_of(file)
        if self._tail and self._tail[0] == last and self._tail[1] == size:
            _, end, mark = self._tail
        else:
            data = read(file)
            end, mark = scan(data).end, read_mark(data) or b""
        lost = last == progress.segment and progress.offset > end
        if lost or (not end and size >= HEADER_SIZE):
            # The disk has lost what was sent already: nothing may be written before that place.
            # Or it is no segment: whoever sends sets it aside.
            return last + 1, 0, b""
        if size > end:
            self._tell_torn(file, size - end)
        return last, end, mark

    def size(self) -> int:
        """Bytes of everything there is."""
        with suppress(FileNotFoundError):
            return sum(size_of(Path(entry)) for entry in os.scandir(self.folder))
        return 0

    def last_segment(self) -> tuple[int, int]:
        """Number and size; zeros where there is none."""
        numbers = self._numbers()
        return (numbers[-1], size_of(self._file(numbers[-1]))) if numbers else (0, 0)

    def finish_segment(self, progress: Progress, size: int) -> Progress | None:
        """All of a segment of *size* bytes is sent: go on with the next; None if it has grown."""
        numbers = self._numbers()
        file = self._file(progress.segment)
        if progress.segment in numbers and size_of(file) != size:
            return None
        later = [number for number in numbers if number > progress.segment]
        following = Progress(later[0] if later else progress.segment + 1)
        # In this order: a number that was used is not used again.
        replace(self._progress_file, following.encode())
        self._remove(progress.segment)
        return following

    def _remove(self, number: int) -> None:
        file = self._file(number)
        data = read(file)
        found = scan(data)
        if data and (found.damaged or not found.end):
            kept = file.with_suffix(".damaged")
            log.error(
                "spool: %d bytes of a segment could not be read: see %s",
                found.damaged or len(data),
                kept,
                extra=facts(self.topic),
            )
            file.replace(kept)
        else:
            if data[found.end :]:
                self._tell_torn(file, len(data) - found.end)
            with suppress(FileNotFoundError):
                file.unlink()
        sync_folder(self.folder)

    # --------------------------------------------------------------------- with the topic's lock

    def next_window(self, progress: Progress, size: int) -> Sequence[Placed]:
        """What is next of a segment that has *size* bytes; nothing at its end."""
        data = read(self._file(progress.segment))[:size]
        return window(scan(data, progress.offset, WINDOW_MESSAGES).records)

    def begin(self) -> Progress:
        """Where to go on."""
        progress, numbers = self.progress(), self._numbers()
        return Progress(numbers[0]) if numbers and numbers[0] > progress.segment else progress

    def segment_size(self, number: int) -> int:
        """Bytes; 0 where there is no such segment."""
        return size_of(self._file(number))

    def save(self, progress: Progress) -> None:
        """Remember *progress*; raises OSError."""
        replace(self._progress_file, progress.encode())

    def set_aside(self, record: SpoolRecord) -> Path:
        """Keep what no server will take, out of the way; returns the file."""
        file = self.folder / _REFUSED
        data = read(file)
        mark = read_mark(data) or secrets.token_bytes(MARK_SIZE)
        found = scan(data)
        front = b"" if found.end else encode_header(mark)
        write_at(file, front + encode_record(record, mark), found.end)
        sync_folder(self.folder)
        return file

    # -------------------------------------------------------------------------------- to look at

    def left(self) -> list[SpoolRecord]:
        """Everything that waits, as far as it can be read now."""
        progress = self.progress()
        found: list[SpoolRecord] = []
        for number in self._numbers():
            if number < progress.segment:
                continue
            here = progress if number == progress.segment else Progress(number)
            records = scan(read(self._file(number)), here.offset).records
            found += [each.record for each in records if each.start not in here.done]
        return found

    def refused(self) -> list[SpoolRecord]:
        """What was set aside."""
        return [each.record for each in scan(read(self.folder / _REFUSED)).records]

    def damaged(self) -> list[Path]:
        """Segments that were set aside."""
        return sorted(self.folder.glob("*.damaged"))

    def _tell_torn(self, file: Path, size: int) -> None:
        log.warning(
            "spool: cut %d bytes off %s, of a record that was never completed",
            size,
            file,
            extra=facts(self.topic),
        )

    def _numbers(self) -> list[int]:
        """The segments, by name; anything else in the folder is not ours."""
        try:
            names = os.listdir(self.folder)  # noqa: PTH208 - several times faster
        except FileNotFoundError:
            return []
        stems = [name.removesuffix(_SEGMENT) for name in names if name.endswith(_SEGMENT)]
        return sorted(int(stem) for stem in stems if len(stem) == 12 and stem.isdecimal())

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:012}{_SEGMENT}"


def topics_in(spool: Path) -> list[str]:
    """The topics that have a folder in *spool*, sorted."""
    return sorted(
        entry.name.removeprefix(_FOLDER)
        for entry in os.scandir(spool)
        if entry.name.startswith(_FOLDER) and entry.is_dir(follow_symlinks=False)
    )
