"""A row for each message: Spark's schema, Arrow's, and how one becomes the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from nsqsmart import Message

_HEADERS = ", headers MAP<STRING, STRING>"
_NANOSECONDS = 1000
_SIGNED = (1 << 63) - 1
_WRAP = 1 << 64

_KINDS = {
    "value": ("BINARY", pa.binary()),
    "topic": ("STRING", pa.string()),
    "channel": ("STRING", pa.string()),
    "partition": ("INT", pa.int32()),
    "message_id": ("STRING", pa.string()),
    "internal_id": ("BIGINT", pa.int64()),
    "trace_id": ("BIGINT", pa.int64()),
    "offset": ("BIGINT", pa.int64()),
    "size": ("INT", pa.int32()),
    "timestamp": ("TIMESTAMP", pa.timestamp("us", tz="UTC")),
    "timestamp_ns": ("BIGINT", pa.int64()),
    "attempts": ("INT", pa.int32()),
    "nsqd": ("STRING", pa.string()),
}
COLUMNS = ", ".join(f"{name} {kind}" for name, (kind, _) in _KINDS.items())
_FIELDS = [pa.field(name, kind) for name, (_, kind) in _KINDS.items()]
_HEADERS_FIELD = pa.field("headers", pa.map_(pa.string(), pa.string()))


def spark_schema(*, headers: bool) -> str:
    """The columns as DDL."""
    return COLUMNS + _HEADERS if headers else COLUMNS


def arrow_schema(*, headers: bool) -> pa.Schema:
    """The same as Spark wants to see it in Arrow: equal, not just compatible."""
    return pa.schema([*_FIELDS, _HEADERS_FIELD] if headers else _FIELDS)


def signed(number: int | None) -> int | None:
    """An unsigned 64-bit id as Spark's BIGINT holds it: from 2**63 on it is negative."""
    return number if number is None or number <= _SIGNED else number - _WRAP


def unsigned(number: int | None) -> int | None:
    """The id that a BIGINT holds."""
    return number if number is None or number >= 0 else number + _WRAP


def texts_of(messages: Sequence[Message]) -> list[str]:
    """Their ids as text: of an original nsqd 16 characters, of a redesigned one two numbers."""
    ids = [each.id for each in messages]
    if messages and messages[0].partition is None:
        return [each.decode() if each.isascii() else each.hex() for each in ids]
    return [each.hex() for each in ids]


def to_batch(messages: Sequence[Message], ids: list[str], *, headers: bool) -> pa.RecordBatch:
    """The rows of *messages*, all from one subscription; at least one. *ids* are their texts."""
    first, count = messages[0], len(messages)
    partition = first.partition
    nanoseconds = pa.array([each.timestamp for each in messages], pa.int64())
    columns = [
        pa.array([each.body for each in messages], pa.binary()),
        _constant(first.topic, pa.string(), count),
        _constant(first.channel, pa.string(), count),
        _constant(partition, pa.int32(), count),
        pa.array(ids, pa.string()),
        *_numbers(messages, partition),
        pc.divide(nanoseconds, _NANOSECONDS).cast(pa.timestamp("us", tz="UTC")),
        nanoseconds,
        pa.array([each.attempts for each in messages], pa.int32()),
        _constant(first.nsqd, pa.string(), count),
    ]
    if headers:
        columns.append(pa.array([_headers(each) for each in messages], _HEADERS_FIELD.type))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(headers=headers))


def _constant(value: object, kind: pa.DataType, count: int) -> pa.Array:
    if value is None:
        return pa.nulls(count, kind)
    return pa.repeat(pa.scalar(value, kind), count)


def _numbers(messages: Sequence[Message], partition: int | None) -> list[pa.Array]:
    """internal_id, trace_id, offset, size: a redesigned nsqd's alone."""
    count = len(messages)
    if partition is None:
        return [pa.nulls(count, kind.type) for kind in _FIELDS[5:9]]
    return [
        pa.array([signed(each.internal_id) for each in messages], pa.int64()),
        pa.array([signed(each.trace_id) for each in messages], pa.int64()),
        pa.array([each.offset for each in messages], pa.int64()),
        pa.array([each.size for each in messages], pa.int32()),
    ]


def _headers(message: Message) -> list[tuple[str, str]] | None:
    found = message.headers
    return list(zip(found, map(str, found.values()), strict=True)) if found else None


def ids_of(batches: Sequence[pa.RecordBatch]) -> set[str]:
    """Their message ids, as text."""
    return {each for batch in batches for each in batch.column("message_id").to_pylist()}


def rows_of(batches: Sequence[pa.RecordBatch]) -> int:
    """How many rows they have."""
    return sum(map(len, batches))
