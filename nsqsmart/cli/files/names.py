"""The names of files that messages are written to, as nsq_to_file makes them."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nsqsmart.cli.common.parsing import UsageError

DEFAULT = "<TOPIC>.<HOST><REV>.<DATETIME>.log"
_REV = "<REV>"


@dataclass(frozen=True)
class FileNames:
    """Folders and the format of names, for one topic.

    Attributes:
        output: folder of finished files.
        work: folder of files that are being written; the same one by default.
        name: the format, with only ``<DATETIME>`` and ``<REV>`` left in it.
        datetime_format: as strftime has it, in local time.
        revises: whether every file is a new one; without, an old one is appended to.
    """

    output: Path
    work: Path
    name: str
    datetime_format: str
    revises: bool

    def current(self) -> str:
        """The name of this moment, with ``<REV>`` still in it."""
        now = datetime.now().astimezone()
        return self.name.replace("<DATETIME>", now.strftime(self.datetime_format))

    @staticmethod
    def revised(name: str, number: int) -> str:
        """*name*, the file being its so many-th."""
        return name.replace(_REV, f"-{number:06}")


def make_names(
    topic: str,
    *,
    output: Path,
    work: Path | None,
    name: str,
    datetime_format: str,
    host: str,
    revises: bool,
    suffix: str,
) -> FileNames:
    """The names of the files of *topic*; raises :class:`UsageError`.

    *revises* says that files are gzipped or rotated: then, or with a work folder, ``<REV>`` must
    be in the name. *suffix* is put after the name unless it is there.
    """
    work = work or output
    revises = revises or work != output
    if revises and _REV not in name:
        raise UsageError(
            f"--filename-format {name!r} lacks <REV>, which files need that are gzipped or "
            "rotated, in Parquet, or come from a --work-dir"
        )
    if not revises:
        name = name.replace(_REV, "")
    machine = socket.gethostname()
    short = machine.split(".")[0]
    known = host.replace("<SHORT_HOST>", short).replace("<HOSTNAME>", machine) or short
    for token, value in (("<TOPIC>", topic), ("<HOST>", known), ("<PID>", str(os.getpid()))):
        name = name.replace(token, value)
    if suffix and not name.endswith(suffix):
        name = (name.removesuffix(".log") if suffix == ".parquet" else name) + suffix
    if work != output:
        _make_both(work, output)
    return FileNames(output, work, name, datetime_format, revises)


def _make_both(work: Path, output: Path) -> None:
    """A file is linked to where it ends, which would fail only when the first one is whole."""
    for folder in (work, output):
        folder.mkdir(parents=True, exist_ok=True)
    if work.stat().st_dev != output.stat().st_dev:
        raise UsageError(
            f"--work-dir {work} and --output-dir {output} are on different filesystems: files "
            "cannot be moved from one to the other, so choose a --work-dir on that of --output-dir"
        )
