"""One stored message, its frame encoded once, when it was published."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from nsqsmart.wire.frames import MESSAGE
from nsqsmart.wire.messages import PLAIN, MessageLayout

_PREFIX = struct.Struct(">II")
_DETAIL = struct.Struct(">QI")
_EXT = struct.Struct(">BH")
_ID_START = 18
_BODY_START = 34
RECORD_OVERHEAD = 30
"""Bytes a record of a plain topic takes besides its body (protocol#pub_trace)."""
_TYPE_SIZE = 4


class Extension(NamedTuple):
    """An extension header: its bytes as published, and what the server reads in them."""

    version: int
    data: bytes
    values: Any = None
    tag: str = ""


class Record:
    """A message in the log of a partition.

    ``key`` is what identifies it in FIN, REQ and TOUCH: the whole id on an original nsqd, its
    first half on a redesigned one (protocol#fin). ``offset`` and ``size`` are bytes in the
    partition's virtual queue (protocol#offsets), ``index`` its ordinal.
    """

    __slots__ = ("ext", "frame", "index", "key", "offset", "size")

    def __init__(
        self,
        frame: bytes,
        key: bytes,
        index: int,
        offset: int,
        size: int,
        ext: Extension | None = None,
    ) -> None:
        self.frame = frame
        self.key = key
        self.index = index
        self.offset = offset
        self.size = size
        self.ext = ext

    @property
    def id(self) -> bytes:
        """The 16 bytes of the message id."""
        return self.frame[_ID_START:_BODY_START]

    @property
    def body(self) -> bytes:
        """What was published."""
        return self.frame[_BODY_START:]

    @property
    def timestamp(self) -> int:
        """When it was accepted, in nanoseconds since the epoch."""
        return int.from_bytes(self.frame[8:16])


def extension_size(ext: Extension | None) -> int:
    """What the header adds to a record of an extended topic (protocol#pub_trace)."""
    return 1 if ext is None else 3 + len(ext.data)


def encode(record: Record, layout: MessageLayout, attempts: int) -> bytes:
    """The frame of *record* for a consumer with *layout*."""
    frame = record.frame
    if attempts != 1:
        frame = frame[:16] + attempts.to_bytes(2) + frame[18:]
    if layout == PLAIN:
        return frame
    middle = b""
    if layout.extended:
        ext = record.ext
        middle = b"\x00" if ext is None else _EXT.pack(ext.version, len(ext.data)) + ext.data
    if layout.detailed:
        middle += _DETAIL.pack(record.offset, record.size)
    head = _PREFIX.pack(len(frame) - _TYPE_SIZE + len(middle), MESSAGE)
    return b"".join((head, frame[8:_BODY_START], middle, frame[_BODY_START:]))
