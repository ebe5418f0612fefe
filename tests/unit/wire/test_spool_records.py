"""Records of the spool: whatever a kill or a bad disk leaves, what is whole is found."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.wire import spool_records
from nsqsmart.wire.spool_records import (
    HEADER_SIZE,
    SpoolRecord,
    encode_header,
    encode_record,
    read_mark,
    scan,
)

MARK = b"\x00mark\xff\x01\x02"
FULL = SpoolRecord(
    b"body", 12, "key", None, (1 << 64) - 1, True, {"a": {"b": [1, None]}}, "tag", 1500
)
RECORDS = [
    SpoolRecord(b"x", 1 << 60),
    FULL,
    SpoolRecord(b"\x00\xff" * 9, 1, key=b"\x00\xff"),
    SpoolRecord(b"y", 1, key=-7),
    SpoolRecord(b"z", 1, key="\ud800", partition=3),
]


def segment(*records: SpoolRecord) -> bytes:
    return encode_header(MARK) + b"".join(encode_record(each, MARK) for each in records)


def found(data: bytes, *arguments: int) -> list[SpoolRecord]:
    return [placed.record for placed in scan(data, *arguments).records]


def test_what_was_written_is_read():
    data = segment(*RECORDS)
    result = scan(data)
    assert [placed.record for placed in result.records] == RECORDS
    assert (result.end, result.damaged) == (len(data), 0)
    assert read_mark(data) == MARK


def test_records_follow_each_other_without_a_gap():
    result = scan(segment(*RECORDS))
    ends = [HEADER_SIZE, *(placed.end for placed in result.records)]
    assert [placed.start for placed in result.records] == ends[:-1]


def test_from_a_place_and_no_more_than_asked_for():
    data = segment(*RECORDS)
    second = scan(data).records[1]
    assert found(data, second.start) == RECORDS[1:]
    assert found(data, second.start, 2) == RECORDS[1:3]
    assert scan(data, second.start, 2).end == scan(data).records[2].end


def test_cut_at_every_byte_what_is_whole_is_there_and_nothing_else():
    data = segment(*RECORDS)
    ends = [placed.end for placed in scan(data).records]
    for cut in range(len(data) + 1):
        result = scan(data[:cut])
        whole = sum(end <= cut for end in ends)
        assert [placed.record for placed in result.records] == RECORDS[:whole]
        expected = ends[whole - 1] if whole else HEADER_SIZE if cut >= HEADER_SIZE else 0
        assert (result.end, result.damaged) == (expected, 0)


def test_a_changed_byte_costs_one_record():
    data = segment(*RECORDS)
    placed = scan(data).records[1]
    for position in range(placed.start, placed.end):
        harmed = bytearray(data)
        harmed[position] ^= 0x41
        result = scan(bytes(harmed))
        assert [each.record for each in result.records] == [RECORDS[0], *RECORDS[2:]]
        assert result.damaged == placed.end - placed.start


@given(st.binary(max_size=300))
def test_garbage_is_no_record(garbage: bytes):
    assert found(segment(RECORDS[0]) + garbage) == [RECORDS[0]]
    assert found(garbage) == []


def test_a_body_cannot_pass_for_a_record():
    inner = encode_header(b"another!") + encode_record(SpoolRecord(b"forged", 1), b"another!")
    data = segment(SpoolRecord(inner, 1))
    assert found(data[:-1]) == []


def test_no_header():
    assert scan(b"") == ([], 0, 0)
    assert scan(b"x" * 100) == ([], 0, 0)
    assert read_mark(b"nsqspl1\nshort") is None


def test_a_length_beyond_the_limit_is_not_believed(monkeypatch):
    data = segment(RECORDS[0])
    monkeypatch.setattr(spool_records, "MAX_RECORD", 5)
    assert found(data) == []
    with pytest.raises(ValueError, match="exceeds 5"):
        encode_record(RECORDS[0], MARK)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x00\x00\x02{}body",
        b"\x00\x00\x00\x02[]body",
        b"\x00\x00\x00\x01{body",
        b'\x00\x00\x00\x19{"written":1,"colour":"a"}body',
        b'\x00\x00\x00\x16{"written":1,"key":[]}body',
    ],
)
def test_what_another_program_wrote_is_passed_over(content: bytes):
    head = struct.pack(">II", len(content), zlib.crc32(content, len(content)))
    result = scan(segment() + MARK + head + content + encode_record(FULL, MARK))
    assert [placed.record for placed in result.records] == [FULL]
    assert result.damaged == len(MARK + head + content)
