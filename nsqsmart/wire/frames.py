"""Frames from server to client: ``uint32 size, uint32 type, data`` (protocol#frames)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from nsqsmart.errors import ProtocolError

RESPONSE = 0
ERROR = 1
MESSAGE = 2

HEARTBEAT = b"_heartbeat_"
OK = b"OK"
CLOSE_WAIT = b"CLOSE_WAIT"

_PREFIX = struct.Struct(">II")
PREFIX_SIZE = _PREFIX.size
_TYPE_SIZE = 4
DEFAULT_MAX_FRAME_SIZE = 5 * 1024 * 1024 + 64
"""Bytes: the servers' default body limit, and room for the largest head (protocol#frames)."""

MAX_ANSWER = 1024 * 1024
"""Bytes of a frame where no message can come: the longest answer is an error that quotes a line."""


class Frame(NamedTuple):
    """One frame: its type (RESPONSE, ERROR or MESSAGE) and its data."""

    type: int
    data: bytes


def encode_frame(frame_type: int, data: bytes) -> bytes:
    """The bytes of one frame."""
    return _PREFIX.pack(len(data) + _TYPE_SIZE, frame_type) + data


OK_FRAME = encode_frame(RESPONSE, OK)
HEARTBEAT_FRAME = encode_frame(RESPONSE, HEARTBEAT)


class Tail:
    """What came after the last complete frame, until the rest of its frame has come.

    Pieces are joined once, when the frame is complete: appending to one bytes object would
    copy a large frame once per read.
    """

    __slots__ = ("_need", "_pieces", "max_frame_size", "size")

    def __init__(self, max_frame_size: int) -> None:
        self.max_frame_size = max_frame_size
        self.size = 0
        """Bytes held."""
        self._pieces: list[bytes] = []
        self._need = 0

    @property
    def missing(self) -> int:
        """Bytes still to come of a frame whose head has come; 0 if there is none."""
        return self._need - self.size if self.size >= PREFIX_SIZE else 0

    def join(self, data: bytes) -> bytes | None:
        """The held bytes followed by *data*, or None while the frame is still incomplete."""
        if not self.size:
            return data
        self._pieces.append(data)
        self.size += len(data)
        if self.size < self._need:
            return None
        return self.clear()

    def keep(self, rest: bytes) -> None:
        """Hold *rest*, the beginning of an incomplete frame; refuses an illegal size."""
        if not rest:
            return
        self._pieces.append(rest)
        self.size = len(rest)
        # Size and type are judged as soon as they have come, whatever the cut.
        self._need = _TYPE_SIZE
        if len(rest) >= _TYPE_SIZE:
            size = int.from_bytes(rest[:_TYPE_SIZE])
            check_size(size, self.max_frame_size)
            self._need = size + _TYPE_SIZE if len(rest) >= PREFIX_SIZE else PREFIX_SIZE

    def clear(self) -> bytes:
        """Forget, and return, what is held."""
        held = b"".join(self._pieces)
        self._pieces.clear()
        self.size = self._need = 0
        return held


def check_size(size: int, max_frame_size: int) -> None:
    """Refuse a size word that no server may send."""
    if size < _TYPE_SIZE:
        raise ProtocolError(f"frame size {size} is less than {_TYPE_SIZE}: the peer is no nsqd")
    if size > max_frame_size:
        said = _looks_like_http(size)
        error = ProtocolError(
            f"frame of {size} bytes exceeds max_frame_size={max_frame_size}{said}"
        )
        error.permanent = bool(said)
        raise error


def check_type(frame_type: int) -> None:
    """Refuse a frame type that does not exist."""
    if frame_type > MESSAGE:
        raise ProtocolError(f"unknown frame type {frame_type}: the peer is no nsqd")


def _looks_like_http(size: int) -> str:
    """The usual mistake deserves its name: the HTTP port was given for the TCP port."""
    is_http = size.to_bytes(4) == b"HTTP"
    return " (the peer speaks HTTP: use the TCP port, usually 4150)" if is_http else ""


def cut_frame(
    stream: bytes, position: int, max_frame_size: int, least: int = _TYPE_SIZE
) -> tuple[Frame | None, int]:
    """One frame of any type, and the position after it; None if it is incomplete.

    *least* is the smallest size of a message. Raises :class:`ProtocolError` for what no server may
    send; nothing is allocated for the frame before.
    """
    if len(stream) - position < PREFIX_SIZE:
        return None, position
    size, frame_type = _PREFIX.unpack_from(stream, position)
    check_size(size, max_frame_size)
    check_type(frame_type)
    if frame_type == MESSAGE and size < least:
        raise ProtocolError(f"message of {size - _TYPE_SIZE} bytes is shorter than its head")
    end = position + _TYPE_SIZE + size
    if end > len(stream):
        return None, position
    return Frame(frame_type, stream[position + PREFIX_SIZE : end]), end


class FrameDecoder:
    """Cuts a server's stream into frames.

    ``feed`` raises :class:`ProtocolError` for a size below 4 or above *max_frame_size*, and for
    an unknown type; nothing is allocated for the frame before.
    """

    __slots__ = ("_tail",)

    def __init__(self, max_frame_size: int = DEFAULT_MAX_FRAME_SIZE) -> None:
        self._tail = Tail(max_frame_size)

    @property
    def buffered(self) -> int:
        """Bytes held that belong to no complete frame."""
        return self._tail.size

    def take_rest(self) -> bytes:
        """Hand over what is held: after an upgrade it belongs to the next layer."""
        return self._tail.clear()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that *data* completes, in order."""
        frames: list[Frame] = []
        stream = self._tail.join(data)
        if stream is None:
            return frames
        position, length = 0, len(stream)
        # As cut_frame does, without a call for each: answers of publish_async come by the thousand.
        while length - position >= PREFIX_SIZE:
            size, frame_type = _PREFIX.unpack_from(stream, position)
            check_size(size, self._tail.max_frame_size)
            check_type(frame_type)
            end = position + _TYPE_SIZE + size
            if end > length:
                break
            frames.append(Frame(frame_type, stream[position + PREFIX_SIZE : end]))
            position = end
        self._tail.keep(stream[position:])
        return frames

    def next(self, data: bytes) -> tuple[Frame, bytes] | None:
        """The first frame that *data* completes, and the bytes after it.

        For the handshake, where the bytes after a frame may belong to another layer.
        """
        stream = self._tail.join(data)
        if stream is None:
            return None
        frame, end = cut_frame(stream, 0, self._tail.max_frame_size)
        if frame is None:
            self._tail.keep(stream)
            return None
        return frame, stream[end:]
