"""Commands from client to server: one builder per verb, each returning the whole command.

Ids are raw bytes and never pass through text. A partition token is sent only to redesigned nsqds,
with exactly one space before it: they count the tokens (protocol#partition-token).
Names are not checked here but at every public entry (``names.check_topic``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache

MAGIC_V2 = b"  V2"
MAGIC_V1 = b"  V1"
"""What an nsqd says to nsqlookupd."""

NOP = b"NOP\n"
CLS = b"CLS\n"

_LENGTH = struct.Struct(">I")
_TRACE = struct.Struct(">Q")
_EXT_LENGTH = struct.Struct(">H")
_pack = _LENGTH.pack


@lru_cache(maxsize=4096)
def prefix(verb: str, topic: str, partition: int | None = None) -> bytes:
    """The line of a publish command; cached, because it is the same for every message."""
    return (f"{verb} {topic}\n" if partition is None else f"{verb} {topic} {partition}\n").encode()


def with_body(line: bytes, body: bytes) -> bytes:
    """A command line and its one body."""
    return b"".join((line, _pack(len(body)), body))


def identify(offer: bytes) -> bytes:
    """IDENTIFY with a JSON document (:class:`nsqsmart.wire.identify.Offer`)."""
    return with_body(b"IDENTIFY\n", offer)


def auth(secret: bytes) -> bytes:
    """AUTH."""
    return with_body(b"AUTH\n", secret)


def pub(topic: str, body: bytes, partition: int | None = None) -> bytes:
    """PUB: answered by OK."""
    return with_body(prefix("PUB", topic, partition), body)


def dpub(topic: str, body: bytes, delay_ms: int) -> bytes:
    """DPUB (original only): delivered no earlier than *delay_ms* from now."""
    return with_body(f"DPUB {topic} {delay_ms}\n".encode(), body)


def pub_trace(topic: str, body: bytes, trace_id: int, partition: int | None = None) -> bytes:
    """PUB_TRACE (redesigned): answered by a traced receipt."""
    return traced_body(prefix("PUB_TRACE", topic, partition), body, trace_id)


def traced_body(line: bytes, body: bytes, trace_id: int) -> bytes:
    """A PUB_TRACE whose line was made before."""
    return b"".join((line, _pack(len(body) + 8), _TRACE.pack(trace_id), body))


def pub_ext(topic: str, body: bytes, ext: bytes, partition: int | None = None) -> bytes:
    """PUB_EXT (redesigned, extended topics): *ext* is a JSON object.

    Answered by a traced receipt if *ext* has the key ``##trace_id``, else by OK.
    """
    line = prefix("PUB_EXT", topic, partition)
    return b"".join((line, _pack(len(body) + len(ext) + 2), _ext(ext), body))


def mpub(topic: str, bodies: Sequence[bytes], partition: int | None = None) -> bytes:
    """MPUB: all bodies, one answer."""
    return batch(prefix("MPUB", topic, partition), bodies)


def mpub_trace(
    topic: str, entries: Iterable[tuple[int, bytes]], partition: int | None = None
) -> bytes:
    """MPUB_TRACE (redesigned): entries of trace id and body; one receipt, of the first."""
    bodies = [_TRACE.pack(trace_id) + body for trace_id, body in entries]
    return batch(prefix("MPUB_TRACE", topic, partition), bodies)


def mpub_ext(
    topic: str, entries: Iterable[tuple[bytes, bytes]], partition: int | None = None
) -> bytes:
    """MPUB_EXT (redesigned): entries of JSON header (may be empty) and body.

    Any error to it leaves the server in the middle of the batch: close the connection
    (protocol#mpub_ext).
    """
    bodies = [_ext(ext) + body for ext, body in entries]
    return batch(prefix("MPUB_EXT", topic, partition), bodies)


def _ext(ext: bytes) -> bytes:
    return _EXT_LENGTH.pack(len(ext)) + ext


def batch(line: bytes, bodies: Sequence[bytes]) -> bytes:
    """An MPUB whose line was made before."""
    count, sizes = len(bodies), set(map(len, bodies))
    if len(sizes) == 1:
        # One join, with the size as the separator: messages of a kind are often of a size.
        (size,) = sizes
        head = line + _pack(4 + count * (4 + size)) + _pack(count)
        return _pack(size).join((head, *bodies))
    # Sizes and bodies interleaved by slices, one join: the cheapest way in Python.
    lengths = list(map(len, bodies))
    words = {size: _pack(size) for size in sizes}
    parts: list[bytes] = [b""] * (2 * count)
    parts[0::2] = map(words.__getitem__, lengths)
    parts[1::2] = bodies
    return b"".join((line, _pack(4 + 4 * count + sum(lengths)), _pack(count), *parts))


def sub(topic: str, channel: str, partition: int | None = None) -> bytes:
    """SUB: plain messages."""
    return _subscribe("SUB", topic, channel, partition)


def sub_ordered(topic: str, channel: str, partition: int | None = None) -> bytes:
    """SUB_ORDERED (redesigned): one message at a time per partition, with offset and size.

    Articles call it SUB_ORDER; that verb does not exist (protocol#sub).
    """
    return _subscribe("SUB_ORDERED", topic, channel, partition)


def sub_advanced(
    topic: str, channel: str, partition: int | None = None, start: str | None = None
) -> bytes:
    """SUB_ADVANCED (redesigned): messages with offset and size.

    With *start* the server ignores the partition and takes its default one (protocol#sub).
    """
    if start is None:
        return _subscribe("SUB_ADVANCED", topic, channel, partition)
    return f"SUB_ADVANCED {topic} {channel} {partition or 0} {start}\n".encode()


def _subscribe(verb: str, topic: str, channel: str, partition: int | None) -> bytes:
    token = "" if partition is None else f" {partition}"
    return f"{verb} {topic} {channel}{token}\n".encode()


def rdy(count: int) -> bytes:
    """RDY: an absolute ceiling of messages in flight on this connection, not a credit."""
    return b"RDY %d\n" % count


def fin(message_id: bytes) -> bytes:
    """FIN of one message."""
    return b"FIN " + message_id + b"\n"


def fins(message_ids: Sequence[bytes]) -> bytes:
    """FIN of several messages, at least one, in one piece."""
    return b"FIN " + b"\nFIN ".join(message_ids) + b"\n"


def req(message_id: bytes, delay_ms: int = 0) -> bytes:
    """REQ: back to the queue after *delay_ms*."""
    return b"REQ " + message_id + b" %d\n" % delay_ms


def touch(message_id: bytes) -> bytes:
    """TOUCH: a fresh msg_timeout."""
    return b"TOUCH " + message_id + b"\n"


def internal_create_topic(topic: str, partition: int, *, extended: bool = False) -> bytes:
    """INTERNAL_CREATE_TOPIC (redesigned, only without a coordinator)."""
    ext = " true" if extended else ""
    return f"INTERNAL_CREATE_TOPIC {topic} {partition}{ext}\n".encode()
