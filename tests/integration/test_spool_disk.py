"""What a publish was told is spooled is on the disk, not in memory that a power cut takes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import nsqsmart
from nsqsmart.errors import SpoolError

NOWHERE = "nsq+lookupd://127.0.0.1:1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def watch(monkeypatch) -> Callable[[Callable[[], None]], None]:
    """From now on what the kernel is told to put on the disk is noted, and *then* is done."""
    real = os.fsync

    def begin(then: Callable[[], None] = lambda: None) -> list[tuple[int, int]]:
        synced: list[tuple[int, int]] = []

        def fsync(descriptor: int) -> None:
            status = os.fstat(descriptor)
            synced.append((status.st_ino, status.st_size))
            then()
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        return synced

    return begin


def down(folder: Path) -> nsqsmart.Producer:
    """A producer that reaches nobody."""
    return nsqsmart.Producer(NOWHERE, spool=folder, publish_timeout=0.02)


def segment(folder: Path) -> Path:
    (found,) = (folder / "topic.t").glob("*.segment")
    return found


def test_every_message_is_on_the_disk_when_publish_returns(folder, watch):
    with down(folder) as producer:
        for body in (b"one", b"two"):
            synced = watch()
            assert producer.publish("t", body).spooled
            status = segment(folder).stat()
            assert (status.st_ino, status.st_size) in synced


def test_so_is_the_name_of_its_file(folder, watch):
    """Behind the file: a name without its content would be a damaged segment."""
    synced = watch()
    with down(folder) as producer:
        producer.publish("t", b"one")
    nodes = [node for node, _ in synced]
    file, names = segment(folder).stat().st_ino, (folder / "topic.t").stat().st_ino
    assert file in nodes
    assert names in nodes[nodes.index(file) :]


def test_what_could_not_be_put_there_is_not_half_there(folder, watch):
    def fail() -> None:
        raise OSError(errno.EIO, "disk on fire")

    with down(folder) as producer:
        producer.publish("t", b"one")
        before = segment(folder).read_bytes()
        watch(fail)
        with pytest.raises(SpoolError, match="disk on fire"):
            producer.publish("t", b"two")
        assert segment(folder).read_bytes() == before
