"""Durable files: exclusive creation, atomic replacement, folders that go away at once."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pa = pytest.importorskip(
    "pyarrow", reason="pyarrow is not installed: pip install 'nsqsmart[spark]'"
)

from nsqsmart.spark.schema import arrow_schema, signed, unsigned
from nsqsmart.spark.spool.plan import Task
from nsqsmart.spark.spool.slots import DoubtLedger, SlotLog, sealed_rows
from nsqsmart.spark.spool.store import FileStore

SCHEMA = arrow_schema(headers=False)


def rows(*bodies: bytes) -> pa.RecordBatch:
    columns = [pa.array(bodies, pa.binary())]
    columns += [pa.nulls(len(bodies), field.type) for field in list(SCHEMA)[1:]]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    made = FileStore(str(tmp_path / "spool"))
    made.make_folder("a/b")
    return made


def test_of_many_writers_one_creates(store: FileStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        wins = list(pool.map(lambda number: store.put_new("a/b/x", b"%d" % number), range(8)))
    assert sum(wins) == 1
    assert store.get("a/b/x") == b"%d" % wins.index(True)
    assert store.names("a/b") == ["x"]


def test_a_link_that_was_made_counts_though_its_answer_was_lost(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", twice)
    assert store.put_new("a/b/x", b"1")


def test_a_full_disk_leaves_nothing(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.put_new("a/b/x", b"1")
    assert list((store.root / "a/b").iterdir()) == []


def test_what_is_discarded_takes_nothing_more(store: FileStore) -> None:
    store.put("a/b/x", b"1")
    store.discard("a")
    assert not store.has("a")
    with pytest.raises(FileNotFoundError):
        store.put_new("a/b/y", b"2")
    store.discard("a")
    assert store.names("a") == []


def test_replaced_files(store: FileStore) -> None:
    store.put("a/x", b"1")
    store.put("a/x", b"22")
    assert store.get("a/x") == b"22"
    assert store.names("a") == ["b", "x"]
    store.discard("a/x")
    assert not store.has("a/x")


def test_a_log_ends_once(store: FileStore) -> None:
    first, second = (SlotLog(store, "a/b", SCHEMA, "lz4") for _ in range(2))
    assert first.append(rows(b"1", b"2"))
    assert not second.append(rows(b"9"))
    assert [len(each) for each in second.replay()] == [2]
    assert second.append(rows(b"3"))
    assert not first.seal(2)
    assert sum(map(len, first.replay())) == 3
    assert sealed_rows(store, "a/b") is None
    assert first.seal(3)
    assert not second.append(rows(b"4"))
    found = list(second.replay())
    assert second.sealed
    assert [each.column(0).to_pylist() for each in found] == [[b"1", b"2"], [b"3"]]
    assert found[0].schema == SCHEMA
    assert sealed_rows(store, "a/b") == 3


def test_doubts_are_of_a_place_and_forgotten(store: FileStore) -> None:
    ledger = DoubtLedger(store, "a")
    here, there = Task("t", 0, "h:1", 0, 1), Task("t", 1, "h:1", 0, 1)
    ledger.add(here, {"x", "y"}, 100)
    ledger.add(here, {"z"}, 200)
    ledger.add(there, {"q"}, 200)
    (store.root / "a" / "b").rmdir()
    assert ledger.ids(here) == {"x", "y", "z"}
    ledger.forget_before(150)
    assert ledger.ids(here) == {"z"}
    assert ledger.ids(there) == {"q"}


def test_unsigned_ids_wrap() -> None:
    assert signed(2**64 - 1) == -1
    assert unsigned(-1) == 2**64 - 1
    assert signed(5) == unsigned(5) == 5
    assert signed(None) is unsigned(None) is None
