"""The answers to publish commands (protocol#pub_trace)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from nsqsmart.errors import ProtocolError
from nsqsmart.wire.frames import OK

_TRACED = struct.Struct(">2sQQQI")


class TracedReceipt(NamedTuple):
    """What a redesigned nsqd says of a traced publish.

    For MPUB_TRACE id and offset are those of the first message, the trace id is 0 and the size
    is the sum of all records.
    """

    internal_id: int
    trace_id: int
    offset: int
    size: int


def encode_receipt(receipt: TracedReceipt | None) -> bytes:
    """``OK``, or the 30 bytes of a traced answer."""
    return OK if receipt is None else _TRACED.pack(OK, *receipt)


def decode_receipt(data: bytes) -> TracedReceipt | None:
    """None for a plain ``OK``; raises :class:`ProtocolError` for anything that is no success."""
    if data == OK:
        return None
    if len(data) == _TRACED.size and data.startswith(OK):
        return TracedReceipt(*_TRACED.unpack(data)[1:])
    raise ProtocolError(f"answer of {len(data)} bytes to a publish is no OK")
