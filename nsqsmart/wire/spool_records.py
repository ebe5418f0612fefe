"""Records of the disk spool: messages that wait in a file, each of which can be told whole.

A segment is a header, then records. The header is :data:`MAGIC` and 8 random bytes, the
*mark*. A record is the mark, length and CRC-32 of what follows, the length of its particulars,
these as JSON, and the body. The mark shows where the next record begins after damaged bytes; being
random, it stands in no body.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

MAGIC: Final = b"nsqspl1\n"
MARK_SIZE: Final = 8
HEADER_SIZE: Final = len(MAGIC) + MARK_SIZE
MAX_RECORD: Final = 64 << 20
"""Bytes of particulars and body: far more than any nsqd takes."""
_HEAD = struct.Struct(">II")
_LENGTH = struct.Struct(">I")
_FRONT = MARK_SIZE + _HEAD.size


class SpoolRecord(NamedTuple):
    """A message that waits; its topic is that of the segment.

    ``written`` is in nanoseconds since the epoch, ``delay`` in milliseconds from then on;
    ``must_trace`` tells that the caller asked for the trace, not the configuration.
    """

    body: bytes
    written: int
    key: str | int | bytes | None = None
    partition: int | None = None
    trace_id: int | None = None
    must_trace: bool = False
    headers: Mapping[str, Any] | None = None
    tag: str | None = None
    delay: int | None = None


class Placed(NamedTuple):
    """A record, and the bytes of its segment that it takes."""

    record: SpoolRecord
    start: int
    end: int


class Scan(NamedTuple):
    """What was found in a segment.

    ``end`` is where the last good record ends, or the header if there is none; 0 where there is
    no header. ``damaged`` counts bytes before it that belong to no record.
    """

    records: list[Placed]
    end: int
    damaged: int


def encode_header(mark: bytes) -> bytes:
    """The beginning of a segment; *mark* is 8 random bytes."""
    return MAGIC + mark


def read_mark(data: bytes) -> bytes | None:
    """The mark of the segment that *data* begins; None where it has no header."""
    whole = len(data) >= HEADER_SIZE and data.startswith(MAGIC)
    return bytes(data[len(MAGIC) : HEADER_SIZE]) if whole else None


def encode_record(record: SpoolRecord, mark: bytes) -> bytes:
    """*record* for the segment with that *mark*; raises ValueError where it is too large."""
    key: Any = record.key
    if isinstance(key, bytes):
        key = [base64.b64encode(key).decode()]
    values = {
        "written": record.written,
        "key": key,
        "partition": record.partition,
        "trace_id": record.trace_id,
        "must_trace": record.must_trace or None,
        "headers": None if record.headers is None else dict(record.headers),
        "tag": record.tag,
        "delay": record.delay,
    }
    known = {name: value for name, value in values.items() if value is not None}
    particulars = json.dumps(known, separators=(",", ":")).encode()
    content = _LENGTH.pack(len(particulars)) + particulars + record.body
    if len(content) > MAX_RECORD:
        raise ValueError(f"a record of {len(content)} bytes exceeds {MAX_RECORD}")
    return mark + _HEAD.pack(len(content), _crc(content)) + content


def scan(data: bytes, start: int = 0, most: int | None = None) -> Scan:
    """The records of a segment from *start* on, the beginning of one; *most* of them at most.

    Bytes that are no record are passed over if a good one follows; else they are what a writer
    left that was killed.
    """
    mark = read_mark(data)
    if mark is None:
        return Scan([], 0, 0)
    records: list[Placed] = []
    position = end = max(start, HEADER_SIZE)
    damaged = 0
    while most is None or len(records) < most:
        placed = _decode(data, position, mark)
        if placed is None:
            position = data.find(mark, position + 1)
            if position < 0:
                break
            continue
        damaged += placed.start - end
        records.append(placed)
        position = end = placed.end
    return Scan(records, end, damaged)


def _decode(data: bytes, start: int, mark: bytes) -> Placed | None:
    front = data[start : start + _FRONT]
    if len(front) < _FRONT or not front.startswith(mark):
        return None
    length, crc = _HEAD.unpack_from(front, MARK_SIZE)
    end = start + _FRONT + length
    if length > MAX_RECORD or end > len(data):
        return None
    content = data[start + _FRONT : end]
    if _crc(content) != crc:
        return None
    record = _read(content)
    return Placed(record, start, end) if record is not None else None


def _read(content: bytes) -> SpoolRecord | None:
    """The record; None where another program wrote what this one cannot read."""
    try:
        (size,) = _LENGTH.unpack_from(content)
        begin = _LENGTH.size
        values = json.loads(content[begin : begin + size])
        if isinstance(values.get("key"), list):
            values["key"] = base64.b64decode(values["key"][0])
        return SpoolRecord(body=content[begin + size :], **values)
    except (struct.error, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _crc(content: bytes) -> int:
    # Of its length too: a record of nothing but zeros would else be a good one.
    return zlib.crc32(content, len(content))
