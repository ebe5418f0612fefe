"""Where the spool lies: a few durable operations.

A local or shared POSIX file system for now. What another store needs is to create exclusively: a
link here, a rename that does not overwrite on HDFS, a conditional PUT in an object store.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from pathlib import Path

_GONE = ".gone-"
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)


class FileStore:
    """Files in the folder *root*, which driver and executors must see alike.

    Paths are relative, with slashes; every write is durable when the call returns.
    """

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def __repr__(self) -> str:
        return f"<FileStore {self.root}>"

    def put_new(self, path: str, data: bytes | memoryview) -> bool:
        """Write a new file; False if there is one, which stays as it is.

        The folder must be there: raises FileNotFoundError.
        """
        target = self.root / path
        written = self._write_beside(target, data)
        try:
            if not _link(written, target):
                return False
            _sync_folder(target.parent)
            return True
        finally:
            written.unlink(missing_ok=True)

    def put(self, path: str, data: bytes) -> None:
        """Write a file, or all of it anew: a reader sees the old or the new one."""
        target = self.root / path
        self._write_beside(target, data).replace(target)
        _sync_folder(target.parent)

    def get(self, path: str) -> bytes:
        """A file's bytes; raises FileNotFoundError."""
        return (self.root / path).read_bytes()

    def has(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return (self.root / path).exists()

    def names(self, folder: str) -> list[str]:
        """What is in *folder* and finished, sorted; nothing if it is not there."""
        try:
            found = [each.name for each in (self.root / folder).iterdir()]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if not name.startswith("."))

    def make_folder(self, path: str) -> None:
        """Make it, and those above it; fine if it is there."""
        folder = self.root / path
        if folder.is_dir():
            return
        folder.mkdir(parents=True, exist_ok=True)
        for made in (folder, *folder.parents):
            _sync_folder(made)
            if made == self.root:
                break

    def discard(self, path: str) -> None:
        """Take a file or folder away; a process that writes into it fails from then on.

        What an earlier call had renamed when it was killed goes too.
        """
        old = self.root / path
        try:
            old.rename(old.with_name(f"{_GONE}{uuid.uuid4().hex}"))
        except FileNotFoundError:
            return
        for away in old.parent.glob(f"{_GONE}*"):
            if away.is_dir():
                shutil.rmtree(away, ignore_errors=True)
            else:
                away.unlink(missing_ok=True)

    def _write_beside(self, target: Path, data: bytes | memoryview) -> Path:
        """A file of another name in the same folder, on disk; nothing is left if that fails."""
        path = target.with_name(f".new-{uuid.uuid4().hex}")
        try:
            with path.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            raise
        return path


def _link(written: Path, target: Path) -> bool:
    """Give *written* the name *target*; False if something has it."""
    try:
        os.link(written, target)
    except FileExistsError:
        # NFS may lose the answer to a link that was made, and try it again.
        return written.stat().st_nlink > 1
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, _DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
