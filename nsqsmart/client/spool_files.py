"""Files of the spool: nobody else's, whole or not there, and on the disk when it is said so."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from nsqsmart.errors import ConfigError

log = logging.getLogger("nsqsmart")

_PRIVATE_FOLDER = 0o700
_PRIVATE_FILE = 0o600
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_LOCK_PAUSE = 0.01
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


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
    """As :func:`check_folder`; OSError on a read-only disk, ConfigError where we may not write."""
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
    """What is in *file*; nothing where there is none."""
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
    """Let *file* have *size* bytes on the disk, blanks behind what it holds; raises OSError."""
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
