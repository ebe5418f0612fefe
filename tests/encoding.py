"""What servers write: the counterparts of decoders of nsqsmart.wire, for tests."""

from __future__ import annotations

import struct

from nsqsmart.wire.frames import CLOSE_WAIT, RESPONSE, encode_frame
from nsqsmart.wire.messages import EXT_NONE, PLAIN, MessageLayout, RawMessage

CLOSE_WAIT_FRAME = encode_frame(RESPONSE, CLOSE_WAIT)


def redesigned_id(internal: int, trace: int = 0) -> bytes:
    """The 16 bytes of a redesigned message id."""
    return internal.to_bytes(8) + trace.to_bytes(8)


def encode_message(message: RawMessage, layout: MessageLayout = PLAIN) -> bytes:
    """The data of a message frame; a detailed layout needs offset and size."""
    parts = [struct.pack(">QH16s", message.timestamp, message.attempts, message.id)]
    if layout.extended:
        parts.append(_encode_ext(message))
    if layout.detailed:
        parts.append(struct.pack(">QI", message.offset or 0, message.size or 0))
    parts.append(message.body)
    return b"".join(parts)


def _encode_ext(message: RawMessage) -> bytes:
    if message.ext_version == EXT_NONE:
        return b"\x00"
    ext = message.ext or b""
    return struct.pack(">BH", message.ext_version, len(ext)) + ext


def encode_error(code: str, detail: str = "", *, bare: bool = False) -> bytes:
    """The data of an error frame; the space stays when *detail* is empty, unless *bare*."""
    return (code if bare else f"{code} {detail}").encode()
