"""A file that cannot be written on is left as it was when that was last said."""

from __future__ import annotations

import errno
import gzip
from types import SimpleNamespace

import pytest

from nsqsmart.cli.files import appended
from nsqsmart.cli.files.appended import AppendedFiles, FileRotation
from nsqsmart.cli.files.names import FileNames


@pytest.fixture
def full(monkeypatch):
    """Makes the disk take half of what is written next, and no more."""

    def fill():
        def put(file, data):
            file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(appended, "_put", put)

    return fill


@pytest.fixture(params=[None, 6], ids=["plain", "gzip"])
def level(request):
    return request.param


@pytest.fixture
def files(tmp_path, level):
    output, work = tmp_path / "out", tmp_path / "work"
    names = FileNames(output, work, "orders<REV>.log", "", revises=True)
    return AppendedFiles(names, lambda message: message.body + b"\n", FileRotation(), level)


def messages(*bodies: bytes) -> list:
    return [SimpleNamespace(body=body) for body in bodies]


def test_a_full_disk_leaves_no_torn_line_in_a_file_that_is_moved(files, level, full):
    files.write(messages(b"first", b"second"))
    full()
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            files.write(messages(b"third", b"fourth"))
    files.close()
    (file,) = files.closed
    assert file.parent.name == "out"
    found = file.read_bytes()
    assert (found if level is None else gzip.decompress(found)) == b"first\nsecond\n"


def test_a_disk_that_cannot_cut_it_either_says_what_failed_first(files, full, monkeypatch):
    files.write(messages(b"first"))
    full()

    class Stuck:
        def write(self, data):
            return len(data)

        def truncate(self, _):
            raise OSError(errno.EIO, "Input/output error")

    files._file.close()
    monkeypatch.setattr(files, "_file", Stuck())
    with pytest.raises(OSError, match="No space left"):
        files.write(messages(b"second"))
