"""Files that hold what they were given before it is reported.

A message is finished when :meth:`write` has returned: then it is on the disk, as far as fsync
can say. A process that is killed leaves a torn end after what was finished; a file that is
appended to has it cut off first.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import io
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import BinaryIO, NamedTuple

from nsqsmart import Message
from nsqsmart.cli.files.names import FileNames
from nsqsmart.errors import ConfigError

log = logging.getLogger("nsqsmart.cli")

_BLOCK = 1 << 16
_MOST_REVISIONS = 1_000_000


class FileRotation(NamedTuple):
    """When a new file is begun; 0 is never."""

    size: int = 0
    interval: float = 0.0


class AppendedFiles:
    """Messages as lines, one file after the other. Not for several threads at once.

    *encode* makes a line of a message. With a *gzip_level* each :meth:`write` is a gzip member of
    its own, so that whatever is finished can be read, however the process ends.
    """

    def __init__(
        self,
        names: FileNames,
        encode: Callable[[Message], bytes],
        rotation: FileRotation,
        gzip_level: int | None = None,
        *,
        skip_empty: bool = False,
    ) -> None:
        self._names = names
        self._encode = encode
        self._rotation = rotation
        self._gzip_level = gzip_level
        self._skip_empty = skip_empty
        self._file: BinaryIO | None = None
        self._path = Path()
        self._name = ""
        self._revision = 0
        self._opened = 0.0
        self._good = 0
        self._broken: OSError | None = None
        self.closed: list[Path] = []
        """The files that are whole, where they are now."""

    def write(self, messages: Sequence[Message]) -> None:
        """Put *messages* on disk; raises OSError, and then nothing of them counts."""
        if self._broken is not None:
            raise self._broken
        pending = bytearray()
        for message in messages:
            if self._is_due(len(pending)):
                self._flush(pending)
                self._open()
            pending += self._encode(message)
        self._flush(pending)

    def tick(self) -> None:
        """Begin a new file, or only end the old one, if it is time."""
        if self._broken is None and self._is_due(0) and (self._file or not self._skip_empty):
            if self._skip_empty:
                self.close()
            else:
                self._open()

    def close(self) -> None:
        """End the file, and move it where finished ones are."""
        if self._file is None:
            return
        self._file.close()
        self._file = None
        if self._names.work != self._names.output:
            self._path = _move(self._path, self._names, self._name, self._revision)
        self.closed.append(self._path)

    def _is_due(self, waiting: int) -> bool:
        if self._file is None or self._names.current() != self._name:
            return True
        size, interval = self._rotation
        old = interval and monotonic() - self._opened > interval
        # What waits is counted as it is: gzip does not say before what becomes of it.
        return bool(old or (size and self._good + waiting > size))

    def _flush(self, pending: bytearray) -> None:
        """One write and one fsync; an error leaves the file as it was."""
        if not pending:
            return
        assert self._file is not None  # noqa: S101 - no file is always due
        data = bytes(pending)
        pending.clear()
        if self._gzip_level is not None:
            data = gzip.compress(data, self._gzip_level)
        try:
            _put(self._file, data)
        except OSError as error:
            # What fsync failed on may be on disk or not: nothing may be written after it.
            self._broken = OSError(error.errno, f"{error.strerror}: {self._path}")
            # The file will be closed and moved as a whole one: it shall not end in half a line.
            with suppress(OSError):
                self._file.truncate(self._good)
            raise self._broken from error
        self._good += len(data)

    def _open(self) -> None:
        self.close()
        name = self._names.current()
        self._revision = self._revision + 1 if name == self._name else 0
        self._name = name
        while True:
            path = self._names.work / self._names.revised(name, self._revision)
            final = self._names.output / self._names.revised(name, self._revision)
            for folder in (path.parent, final.parent):
                folder.mkdir(parents=True, exist_ok=True)
            taken = self._names.revises and (final.exists() or path.exists())
            if not taken and self._begin(path):
                return
            self._revision += 1
            if not self._names.revises or self._revision > _MOST_REVISIONS:
                raise ConfigError(
                    f"{path} is being written by another process: put <PID> into --filename-format"
                )

    def _begin(self, path: Path) -> bool:
        """Open *path* unless another process has it."""
        flags = os.O_RDWR | os.O_CREAT | (os.O_EXCL if self._names.revises else 0)
        try:
            descriptor = os.open(path, flags, 0o666)
        except FileExistsError:
            return False
        file = io.FileIO(descriptor, "r+")
        if not _lock(file):
            file.close()
            return False
        _sync_folder(path.parent)
        self._good = _cut_torn_end(file)
        self._file, self._path, self._opened = file, path, monotonic()
        return True


def _put(file: BinaryIO, data: bytes) -> None:
    """Write all of it, and return when it is on the disk."""
    rest = memoryview(data)
    while rest:
        # A raw file may take a part: there is no buffer that could fail later.
        rest = rest[file.write(rest) :]
    os.fsync(file.fileno())


def _lock(file: io.FileIO) -> bool:
    """Whether no other process writes it; the lock ends with the process."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _cut_torn_end(file: io.FileIO) -> int:
    """The size up to the last line end: what follows was never finished."""
    end = file.seek(0, os.SEEK_END)
    begin = end
    while begin > 0:
        begin = max(0, begin - _BLOCK)
        file.seek(begin)
        found = file.read(min(_BLOCK, end - begin)).rfind(b"\n")
        if found >= 0:
            begin += found + 1
            break
    if begin < end:
        file.truncate(begin)
        log.warning("%d bytes of a message that was not finished are cut off", end - begin)
    return file.seek(begin)


def _move(path: Path, names: FileNames, name: str, revision: int) -> Path:
    """To the folder of finished files, over nothing that is there."""
    while True:
        final = names.output / names.revised(name, revision)
        try:
            link(path, final)
        except FileExistsError:
            revision += 1
            continue
        return final


def link(path: Path, final: Path) -> None:
    """Rename *path* to *final*; raises FileExistsError instead of writing over it."""
    os.link(path, final)
    path.unlink()
    _sync_folder(final.parent)


def _sync_folder(folder: Path) -> None:
    """Until then a new name may be gone after a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
