"""What a publish was told is spooled is on the disk, not in memory that a power cut takes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import nsqsmart
from nsqsmart.client.spooling import spool
from nsqsmart.embedded import Cluster
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
    """A producer that reaches no server."""
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


# ----------------------------------------------------------------------- full, read-only, broken


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(auto_create=True, partitions=3) as cluster:
        yield cluster


class Disk:
    """A disk of a test: ``full`` takes no byte more, ``read_only`` nothing at all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = self.read_only = self.broken = False
        self._pwrite, self._open, self._mkdir = os.pwrite, os.open, os.mkdir
        self._access, self._statvfs = os.access, os.statvfs
        for name in ("pwrite", "open", "mkdir", "access", "statvfs"):
            monkeypatch.setattr(os, name, getattr(self, name))

    def pwrite(self, descriptor: int, data: bytes, position: int) -> int:
        if self.broken:
            raise OSError(errno.EIO, "disk on fire")
        if self.full and position + len(data) > os.fstat(descriptor).st_size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._pwrite(descriptor, data, position)

    def open(self, path, flags: int, *mode: int, **more: int) -> int:
        if self.read_only and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return self._open(path, flags, *mode, **more)

    def mkdir(self, path, *mode: int) -> None:
        if self.read_only or self.full:
            number = errno.EROFS if self.read_only else errno.ENOSPC
            raise OSError(number, os.strerror(number))
        self._mkdir(path, *mode)

    def access(self, path, mode: int) -> bool:
        return not (self.read_only and mode & os.W_OK) and self._access(path, mode)

    def statvfs(self, path) -> SimpleNamespace:
        return SimpleNamespace(f_flag=os.ST_RDONLY if self.read_only else 0)


@pytest.fixture
def disk(monkeypatch) -> Disk:
    return Disk(monkeypatch)


def keep(folder: Path, count: int) -> None:
    """Nothing is sent meanwhile: after a failure a producer waits for 5 s."""
    with down(folder) as producer:
        for number in range(count):
            producer.publish("t", b"kept %d" % number, partition=number % 3)


def stored(cluster: Cluster) -> list[bytes]:
    return [each.body for each in cluster.stored("t")]


def numbered(name: bytes, count: int) -> list[bytes]:
    return [b"%s %d" % (name, number) for number in range(count)]


def waiting(folder: Path) -> int:
    return sum(each.messages for each in nsqsmart.spool_status(str(folder)))


def publish_on(cluster: Cluster, folder: Path, count: int) -> None:
    with nsqsmart.Producer(cluster.url, spool=folder) as producer:
        for number in range(count):
            assert not producer.publish("t", b"new %d" % number, partition=0).spooled


@pytest.fixture(params=["reserved", "too little", "none"])
def room(request, folder) -> Callable[[], bool]:
    """Does to what is reserved as it is named; returns whether it is enough.

    As a program of before, or a hand, has left it.
    """

    def change() -> bool:
        for file in (folder / "topic.t").glob("progress*"):
            if request.param == "too little":
                os.truncate(file, 256)
            elif request.param == "none":
                file.unlink()
        return request.param == "reserved"

    return change


def test_on_a_full_disk_nothing_is_sent_twice_and_new_messages_are_stored(
    cluster, folder, disk, caplog, room, monkeypatch
):
    kept, new = numbered(b"kept", 120), numbered(b"new", 5)
    keep(folder, len(kept))
    monkeypatch.setattr(spool, "_PAUSE", 0.0)
    reserved, disk.full = room(), True
    publish_on(cluster, folder, len(new))
    if not reserved:
        assert stored(cluster) == new
        assert "No space left on device" in caplog.text
        assert waiting(folder) == len(kept)
        disk.full = False
        with nsqsmart.Producer(cluster.url, spool=folder) as producer:
            producer.flush_spool()
    assert sorted(stored(cluster)) == sorted(kept + new)
    assert waiting(folder) == 0


def test_without_room_for_what_was_sent_nothing_is_spooled(folder, disk):
    disk.full = True
    folder.parent.mkdir(exist_ok=True)
    with down(folder) as producer, pytest.raises(SpoolError, match="No space left"):
        producer.publish("t", b"x")


def test_what_was_sent_and_not_written_down_is_not_sent_again(cluster, folder, disk, monkeypatch):
    """Not by the process that knows of it; no disk is whole for ever."""
    keep(folder, 3)
    monkeypatch.setattr(spool, "_PAUSE", 0.0)
    with nsqsmart.Producer(cluster.url, spool=folder, publish_attempts=1) as producer:
        producer.warm("t")
        publisher = producer._running().publishing
        exchange = publisher.exchange

        def then_break(*arguments, **keywords):
            answer = exchange(*arguments, **keywords)
            disk.broken = True
            return answer

        publisher.exchange = then_break
        for number in range(5):
            assert not producer.publish("t", b"new %d" % number).spooled
        assert len(stored(cluster)) == 1 + 5
        del publisher.exchange
        disk.broken = False
        assert producer.flush_spool()[0].error is None
    assert len(stored(cluster)) == 3 + 5
    assert waiting(folder) == 0


@pytest.mark.parametrize("made", [True, False], ids=["there", "not there yet"])
def test_on_a_read_only_disk_a_producer_publishes_and_says_what_it_cannot(
    cluster, folder, disk, caplog, made
):
    if made:
        keep(folder, 2)
    disk.read_only = True
    publish_on(cluster, folder, 2)
    assert stored(cluster) == [b"new 0", b"new 1"]
    assert "Read-only file system" in caplog.text
    with down(folder) as producer, pytest.raises(SpoolError, match="Read-only file system"):
        producer.publish("t", b"x")
    if made:
        assert waiting(folder) == 2
    disk.read_only = False
    publish_on(cluster, folder, 1)
    assert len(stored(cluster)) == 2 + (2 if made else 0) + 1


def test_a_folder_that_we_may_not_write_is_refused_all_the_same(folder, disk, monkeypatch):
    keep(folder, 1)
    disk.read_only = True
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_flag=0))
    with pytest.raises(nsqsmart.errors.ConfigError, match="cannot be written"):
        down(folder)
    assert waiting(folder) == 1
