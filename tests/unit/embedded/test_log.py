"""Records in order, each with its place."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.embedded.broker import log as log_module
from nsqsmart.embedded.broker.ids import OriginalIds, RedesignedIds
from nsqsmart.embedded.broker.log import OriginalLog, RecordTooLong, RedesignedLog
from nsqsmart.embedded.broker.records import Extension
from tests.unit.embedded.broker import NOW


def redesigned(*, extended: bool = False, longest: int = 1000) -> RedesignedLog:
    return RedesignedLog(RedesignedIds(0, coordinated=False), longest, extended=extended)


def bodies(log, start: int, stop: int) -> list[bytes]:
    return [record.body for record in log.read(start, stop)]


def test_a_record_follows_the_one_before_it() -> None:
    log = redesigned()
    first, second = log.append_all([(b"hello", 7, None), (b"hi", 0, None)], NOW)
    assert (first.index, first.offset, first.size) == (0, 0, 35)
    assert (second.index, second.offset, second.size) == (1, 35, 32)
    assert (first.id, second.id) == (
        bytes(7) + b"\1" + bytes(7) + b"\7",
        bytes(7) + b"\2" + bytes(8),
    )
    assert (first.body, first.timestamp, first.key) == (b"hello", NOW, bytes(7) + b"\1")
    assert (log.end, log.next_offset) == (2, 67)


def test_an_extended_record_is_larger_by_its_header() -> None:
    log = redesigned(extended=True)
    header = Extension(4, b"{}")
    records = log.append_all([(b"x", 0, None), (b"x", 0, header)], NOW)
    assert [record.size for record in records] == [32, 36]


def test_what_does_not_fit_with_its_header_is_not_stored_nor_what_came_with_it() -> None:
    log = redesigned(extended=True, longest=10)
    log.append_all([(b"x" * 9, 0, None)], NOW)
    with pytest.raises(RecordTooLong, match=r"size \(37\) maxMsgSize=36"):
        log.append_all([(b"x", 0, None), (b"x" * 10, 0, None)], NOW)
    assert log.end == 1
    plain = redesigned(longest=10)
    assert plain.append_all([(b"x" * 10, 0, None)], NOW)


def test_reading_ends_at_what_is_visible() -> None:
    log = redesigned()
    log.append_all([(b"a", 0, None), (b"b", 0, None)], NOW)
    log.freeze(frozen=True)
    log.append(b"c", NOW)
    assert bodies(log, 0, 9) == [b"a", b"b"]
    log.freeze(frozen=False)
    assert bodies(log, 1, 9) == [b"b", b"c"]
    assert bodies(log, 3, 9) == []


def test_the_invisible_can_be_forgotten() -> None:
    log = redesigned()
    log.append(b"a", NOW)
    log.freeze(frozen=True)
    log.append(b"b", NOW)
    log.clear_invisible()
    assert (log.end, bodies(log, 0, 9)) == (1, [b"a"])


def test_forgetting_everything_keeps_the_places() -> None:
    log = redesigned()
    log.append(b"a", NOW)
    log.clear()
    record = log.append(b"b", NOW)
    assert (record.index, record.offset, record.key[-1]) == (1, 31, 2)
    assert bodies(log, 0, 9) == [b"b"]
    assert log.start_offset == 31


def test_old_records_go_in_large_steps() -> None:
    log = redesigned()
    log.append_all([(b"x", 0, None)] * 5000, NOW)
    log.drop_before(4000)
    assert log.base == 0
    log.drop_before(4500)
    assert (log.base, log.end, log.start_offset) == (4500, 5000, 4500 * 31)
    assert log.read(4500, 4501)[0].index == 4500


@pytest.mark.parametrize(("offset", "index"), [(0, 0), (1, 1), (31, 1), (32, 2), (62, 2), (63, 2)])
def test_an_offset_means_the_next_record_that_begins(offset: int, index: int) -> None:
    log = redesigned()
    log.append_all([(b"a", 0, None), (b"b", 0, None)], NOW)
    assert log.index_at_offset(offset) == index


@pytest.mark.parametrize(("time", "index"), [(-1, 0), (0, 0), (1, 1), (2, 1), (3, 2)])
def test_a_time_means_the_first_record_since(time: int, index: int) -> None:
    log = redesigned()
    log.append(b"a", NOW)
    log.append(b"b", NOW + 2)
    assert log.index_at_time(NOW + time) == index


def test_a_restored_record_keeps_its_id_and_later_ones_follow() -> None:
    before, after = redesigned(), redesigned()
    before.append(b"first", NOW)
    record = before.append(b"kept", NOW, 9)
    after.restore(record.frame, record.offset, record.size, None)
    (restored,) = after.read(0, 9)
    assert (restored.id, restored.body, restored.offset) == (record.id, b"kept", record.offset)
    following = after.append(b"next", NOW)
    assert (following.key[-1], following.offset) == (3, record.offset + record.size)


def test_an_original_record_is_known_by_its_whole_id() -> None:
    log = OriginalLog(OriginalIds(1))
    record = log.append(b"x", NOW)
    assert record.key == record.id
    assert len(bytes.fromhex(record.id.decode())) == 8
    copy = OriginalLog(OriginalIds(1))
    copy.restore(record.frame, record.offset, record.size, None)
    assert copy.records[0].key == record.id


def visible(log) -> list[tuple[object, ...]]:
    return [
        (record.index, record.offset, record.size, record.id, record.body, record.timestamp)
        for record in log.read(log.base, log.end)
    ]


STEPS = {
    "batch": lambda log: log.append_all([(b"x" * size, 0, None) for size in (1, 5, 2)], NOW),
    "one": lambda log: log.append_all([(b"one", 0, None)], NOW),
    "deferred": lambda log: log.append(b"deferred", NOW),
    "freeze": lambda log: log.freeze(frozen=True),
    "thaw": lambda log: log.freeze(frozen=False),
    "shrink": OriginalLog.clear_invisible,
    "clear": OriginalLog.clear,
    "drop": lambda log: log.drop_before(log.visible),
}


def place(log) -> tuple[int, ...]:
    return log.base, log.end, log.start_offset, log.next_offset, len(log)


@given(steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=12))
@mock.patch.object(log_module, "_DROP_AT_ONCE", 1)
def test_a_batch_that_nobody_read_is_as_one_that_was(steps) -> None:
    """Whether its records were made at once or later cannot be told."""
    put_off, at_once = OriginalLog(OriginalIds(1)), OriginalLog(OriginalIds(1))
    for step in steps:
        for log in (put_off, at_once):
            STEPS[step](log)
        assert len(at_once.records) == len(at_once)
        assert place(put_off) == place(at_once)
    assert visible(put_off) == visible(at_once)
    assert [record.index for record in put_off.records] == list(range(put_off.base, put_off.end))
