"""The spool on the disk: its files, and for each topic the segments and how far they were sent.

The caller that holds the lock of the spool writes segments. The caller that holds the lock of the
topic reads them, and holds it while it sends; the lock of the spool is never held while sending.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from nsqsmart.client.shared.log_fields import log_fields
from nsqsmart.errors import ConfigError
from nsqsmart.policy.spool_plan import (
    WINDOW_MESSAGES,
    Progress,
    encode_slot,
    further,
    read_slot,
    slot_size,
    window,
)
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

_PRIVATE_FOLDER = 0o700
_PRIVATE_FILE = 0o600
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_LOCK_PAUSE = 0.01
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

_SEGMENT = ".segment"
_REFUSED = "refused"
# Written in turns, in place and with a checksum: one of them is always whole, and on a full disk
# there is room for the next.
_PROGRESS = ("progress", "progress.2")
_FOLDER = "topic."
"""Before the name of a topic, which may be one or two dots."""


def prepare_folder(name: str) -> Path:
    """Make the folder *name* if it is not there; ``~`` is the user's home.

    Raises :class:`ConfigError` where it cannot be, or where another user could write in it. A disk
    that is full or read-only is told in the log: that may pass, and until then nothing is spooled.
    """
    folder = Path(os.path.abspath(Path(name).expanduser()))  # noqa: PTH100 - follows no link
    try:
        make_folder(folder)
        check_writable(folder)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise ConfigError(
                f"spool={name!r} cannot be used: {error.strerror or error}"
            ) from error
        log.warning("spool: nothing can be kept in %s: %s", folder, error.strerror)
    return folder


def check_writable(folder: Path) -> None:
    """Make and check *folder*; OSError on a read-only disk, ConfigError if it is not writable."""
    check_folder(folder)
    if not os.access(folder, os.W_OK):
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        raise ConfigError(f"spool: {str(folder)!r} cannot be written")


def check_folder(folder: Path) -> None:
    """Raise :class:`ConfigError` unless it is ours alone; OSError where it is not there."""
    found = folder.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"spool: {str(folder)!r} is no folder")
    if found.st_uid != os.geteuid():
        raise ConfigError(
            f"spool: {str(folder)!r} belongs to user {found.st_uid}, and this is {os.geteuid()}: "
            "give every user a folder of its own"
        )
    if found.st_mode & _OTHERS_WRITE:
        raise ConfigError(
            f"spool: others can write in {str(folder)!r} (mode {found.st_mode & 0o777:o}): "
            "chmod 700 it, or take another folder"
        )
    if not os.access(folder, os.R_OK | os.X_OK):
        raise ConfigError(f"spool: {str(folder)!r} cannot be read")


def make_folder(folder: Path) -> None:
    """Make it, and have it on the disk; fine if it is there. Raises OSError."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Have the names in *folder* on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(file: Path, patience: float) -> Iterator[bool]:
    """Hold the lock on *file*, against threads and processes; yields whether it was had.

    Waits *patience* seconds for it. It ends with the process, however that ends.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | _OPEN, _PRIVATE_FILE)
    try:
        yield _lock(descriptor, monotonic() + patience)
    finally:
        # A child that was forked just now has it open too, and would keep it.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _lock(descriptor: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() >= deadline:
                return False
            sleep(_LOCK_PAUSE)
        else:
            return True


def read(file: Path) -> bytes:
    """The bytes of *file*; b"" if it does not exist."""
    try:
        descriptor = os.open(file, os.O_RDONLY | _OPEN)
    except FileNotFoundError:
        return b""
    with os.fdopen(descriptor, "rb") as opened:
        return opened.read()


def write_at(file: Path, data: bytes, position: int) -> None:
    """Let *file* end with *data* from *position* on, on the disk; or leave what is before it.

    Raises OSError.
    """
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | _OPEN, _PRIVATE_FILE)
    try:
        try:
            if os.fstat(descriptor).st_size > position:
                os.ftruncate(descriptor, position)
            _write(descriptor, data, position)
        except BaseException:
            # If even that fails the next writer does it: what is there is no whole record.
            with suppress(OSError):
                os.ftruncate(descriptor, position)
            raise
    finally:
        os.close(descriptor)


def reserve(file: Path, size: int) -> None:
    """Fill *file* up with blanks to *size* bytes on the disk; raises OSError."""
    have = size_of(file)
    if have < size:
        write_at(file, b" " * (size - have), have)
        if not have:
            sync_folder(file.parent)


def write_over(file: Path, data: bytes) -> None:
    """Write *data* over what *file* holds, in place: it takes no room. Raises OSError."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | _OPEN, _PRIVATE_FILE)
    try:
        _write(descriptor, data, 0)
    finally:
        os.close(descriptor)


def _write(descriptor: int, data: bytes, position: int) -> None:
    """All of *data*, on the disk."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.pwrite(descriptor, rest, position + len(data) - len(rest)) :]
    os.fsync(descriptor)


def size_of(file: Path) -> int:
    """Bytes; 0 where there is no such file."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


class _Tail(NamedTuple):
    """Where the next record goes; ``records`` are before it in the segment."""

    segment: int
    end: int
    mark: bytes
    records: int


class SpoolQueue:
    """The messages of *topic* that wait in *spool*, a folder."""

    def __init__(self, spool: Path, topic: str, segment_bytes: int) -> None:
        self.topic = topic
        self.folder = spool / f"{_FOLDER}{topic}"
        self.sending = self.folder / "sending.lock"
        self._progress_files = [self.folder / name for name in _PROGRESS]
        self._segment_bytes = segment_bytes
        self._tail: _Tail | None = None
        self._unsaved: Progress | None = None

    def progress(self) -> Progress:
        """How far it has been sent."""
        return self._read_progress()[1]

    def _read_progress(self) -> tuple[int, Progress]:
        """Its serial, and the progress."""
        written = [data for file in self._progress_files if (data := read(file)).strip()]
        found = [slot for data in written if (slot := read_slot(data))]
        if written and not found:
            log.error(
                "spool: %s cannot be read: what waits is sent from its beginning",
                self._progress_files[0],
                extra=log_fields(self.topic),
            )
        return max(found, key=lambda slot: slot[0], default=(0, Progress()))

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

        Room to write down that they are sent is there first: else they would be sent again and
        again. Raises OSError, and ValueError for a message that is too large; none is there then.
        """
        make_folder(self.folder)
        number, end, mark, count = self._find_end()
        if end >= self._segment_bytes:
            number, end, count = number + 1, 0, 0
        if not end:
            mark = secrets.token_bytes(MARK_SIZE)
        self._tail = None
        encoded = [encode_record(record, mark) for record in records]
        data = b"".join(encoded)
        count += len(encoded)
        if not end:
            data = encode_header(mark) + data
        if len(data) + self.lacking(count) > room:
            raise OSError(
                f"{str(self.folder.parent)!r} has no room for {len(data)} bytes more below "
                "spool_max_bytes: have it sent by nsqsmart spool flush, or raise the limit"
            )
        self.reserve(count)
        write_at(self._file(number), data, end)
        if not end:
            sync_folder(self.folder)
        self._tail = _Tail(number, end + len(data), mark, count)

    def reserve(self, records: int) -> None:
        """Have room on the disk for any progress within so many *records*; raises OSError."""
        for file in self._progress_files:
            reserve(file, slot_size(records))

    def lacking(self, records: int) -> int:
        """Bytes that :meth:`reserve` will take."""
        size = slot_size(records)
        return sum(max(0, size - size_of(file)) for file in self._progress_files)

    def _find_end(self) -> _Tail:
        """The segment to write, and where it ends; what a dead writer left is cut off."""
        numbers, progress = self._numbers(), self.progress()
        if not numbers or numbers[-1] < progress.segment:
            return _Tail(max(progress.segment, 1), 0, b"", 0)
        last = numbers[-1]
        file = self._file(last)
        size = size_of(file)
        if self._tail and self._tail.segment == last and self._tail.end == size:
            _, end, mark, count = self._tail
        else:
            data = read(file)
            found = scan(data)
            end, mark, count = found.end, read_mark(data) or b"", len(found.records)
        lost = last == progress.segment and progress.offset > end
        if lost or (not end and size >= HEADER_SIZE):
            # The disk has lost what was sent already: nothing may be written before that place.
            # Or it is not a segment: the sender sets it aside.
            return _Tail(last + 1, 0, b"", 0)
        if size > end:
            self._tell_torn(file, size - end)
        return _Tail(last, end, mark, count)

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
        self.save(following)
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
                extra=log_fields(self.topic),
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
        """Where to go on; raises OSError if that cannot be written down, as what is sent will be.

        Room alone does not tell: some file systems need new room to write over old bytes.
        """
        progress, numbers = self.progress(), self._numbers()
        if self._unsaved is not None:
            progress = further(progress, self._unsaved)
        if numbers and numbers[0] > progress.segment:
            progress = Progress(numbers[0])
        self.save(progress)
        return progress

    def segment_size(self, number: int) -> int:
        """Bytes; 0 where there is no such segment."""
        return size_of(self._file(number))

    def save(self, progress: Progress) -> None:
        """Remember *progress*; raises OSError, and then keeps it for the next :meth:`begin`."""
        self._unsaved = progress
        serial = self._read_progress()[0] + 1
        file = self._progress_files[serial % 2]
        write_over(file, encode_slot(progress, serial, size_of(file)))
        self._unsaved = None

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
            extra=log_fields(self.topic),
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
    """The topics that have a folder in *spool*, sorted; none where it could not be made."""
    try:
        entries = list(os.scandir(spool))
    except FileNotFoundError:
        return []
    return sorted(
        entry.name.removeprefix(_FOLDER)
        for entry in entries
        if entry.name.startswith(_FOLDER) and entry.is_dir(follow_symlinks=False)
    )
