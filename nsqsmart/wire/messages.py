"""Messages: what the data of a message frame holds (protocol#plain-frame).

The layout depends on the subscription, never on the bytes: *extended* when the topic is extended
and the client said so in IDENTIFY, *detailed* after SUB_ADVANCED and SUB_ORDERED.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from nsqsmart.errors import ProtocolError

_HEAD = struct.Struct(">QH16s")
_DETAIL = struct.Struct(">QI")
HEAD_SIZE = _HEAD.size
ID_SIZE = 16

EXT_NONE = 0
EXT_TAG = 2
EXT_JSON = 4
_PARTITION_SHIFT = 50
_PARTITION_MASK = 1023


class MessageLayout(NamedTuple):
    """Which optional blocks stand between the id and the body."""

    extended: bool = False
    detailed: bool = False


PLAIN = MessageLayout()


class RawMessage(NamedTuple):
    """A message as it stands on the wire.

    ``timestamp`` is in nanoseconds since the epoch; ``id`` is 16 raw bytes that may hold any
    value; ``offset`` (bytes in the partition's log) and ``size`` (of the record) are None unless
    the layout is detailed; ``ext`` is None unless the message carries an extension header.
    """

    timestamp: int
    attempts: int
    id: bytes
    body: bytes
    ext_version: int = EXT_NONE
    ext: bytes | None = None
    offset: int | None = None
    size: int | None = None


def internal_id(message_id: bytes) -> int:
    """The first half of a redesigned id: strictly increasing within a partition."""
    return int.from_bytes(message_id[:8])


def trace_id(message_id: bytes) -> int:
    """The second half of a redesigned id: what the publisher gave, or 0."""
    return int.from_bytes(message_id[8:])


def partition_of(message_id: bytes) -> int:
    """The partition that a coordinated redesigned nsqd wrote into the id (protocol#message-ids)."""
    return (internal_id(message_id) >> _PARTITION_SHIFT) & _PARTITION_MASK


def decode_message(data: bytes, layout: MessageLayout = PLAIN) -> RawMessage:
    """Read the data of a message frame; raises :class:`ProtocolError` if it is too short."""
    if len(data) < HEAD_SIZE:
        raise ProtocolError(f"message of {len(data)} bytes is shorter than its head")
    timestamp, attempts, message_id = _HEAD.unpack_from(data)
    position = HEAD_SIZE
    ext_version, ext = EXT_NONE, None
    offset = size = None
    if layout.extended:
        ext_version, ext, position = _decode_ext(data, position)
    if layout.detailed:
        if len(data) < position + _DETAIL.size:
            raise ProtocolError("message ends within its offset and size")
        offset, size = _DETAIL.unpack_from(data, position)
        position += _DETAIL.size
    return RawMessage(
        timestamp, attempts, message_id, data[position:], ext_version, ext, offset, size
    )


def _decode_ext(data: bytes, position: int) -> tuple[int, bytes | None, int]:
    if len(data) <= position:
        raise ProtocolError("message ends before its extension version")
    version = data[position]
    if version == EXT_NONE:
        return version, None, position + 1
    start = position + 3
    length = int.from_bytes(data[position + 1 : start])
    if len(data) < start + length:
        raise ProtocolError("message ends within its extension header")
    return version, data[start : start + length], start + length
