"""The bodies of publish commands, read as they come, with the servers' words for what is wrong."""

from __future__ import annotations

from dataclasses import dataclass

from nsqsmart.embedded.connection import Connection
from nsqsmart.embedded.refusals import BAD_BODY, BAD_MESSAGE, EndOfStream, Refused


@dataclass(frozen=True, slots=True)
class Wording:
    """How one dialect and verb words its refusals: a prefix, and the code of a bad size."""

    prefix: str = ""
    size_code: str = BAD_BODY


def read_single(connection: Connection, wording: Wording, limit: int) -> bytes:
    """``uint32 size, bytes`` of PUB and its kin (protocol 2.10)."""
    size = read_size(connection, wording, limit)
    return read_rest(connection, wording, size)


def read_size(connection: Connection, wording: Wording, limit: int) -> int:
    """The length of one message, judged."""
    prefix, code = wording.prefix, wording.size_code
    what = "message body" if prefix else "body"
    try:
        size = int.from_bytes(connection.read(4), signed=True)
    except EndOfStream as end:
        raise Refused(code, f"{prefix}failed to read {what} size") from end
    if size <= 0:
        raise Refused(code, f"{prefix}invalid {what} size {size}")
    if size > limit:
        raise Refused(BAD_MESSAGE, f"{prefix}message too big {size} > {limit}")
    return size


def read_rest(connection: Connection, wording: Wording, size: int) -> bytes:
    """The message itself."""
    try:
        return connection.read(size)
    except EndOfStream as end:
        raise Refused(BAD_MESSAGE, f"{wording.prefix}failed to read message body") from end


def read_batch_size(connection: Connection, prefix: str) -> int:
    """The outer length of MPUB: judged, and never used again (protocol 2.11)."""
    limit = connection.node.options.max_body_size
    try:
        size = int.from_bytes(connection.read(4), signed=True)
    except EndOfStream as end:
        raise Refused(BAD_BODY, f"{prefix}failed to read body size") from end
    if size <= 0:
        raise Refused(BAD_BODY, f"{prefix}invalid body size {size}")
    if size > limit:
        raise Refused(BAD_BODY, f"{prefix}body too big {size} > {limit}")
    return size


def read_count(connection: Connection) -> int:
    """How many messages an MPUB holds."""
    limit = (connection.node.options.max_body_size - 4) // 5
    try:
        count = int.from_bytes(connection.read(4), signed=True)
    except EndOfStream as end:
        raise Refused(BAD_BODY, "MPUB failed to read message count") from end
    if not 0 < count <= limit:
        raise Refused(BAD_BODY, f"MPUB invalid message count {count}")
    return count


def read_entry(connection: Connection, position: int) -> bytes:
    """One entry of an MPUB."""
    limit = connection.node.options.max_msg_size
    try:
        size = int.from_bytes(connection.read(4), signed=True)
    except EndOfStream as end:
        text = f"MPUB failed to read message({position}) body size"
        raise Refused(BAD_MESSAGE, text) from end
    if size <= 0:
        raise Refused(BAD_MESSAGE, f"MPUB invalid message({position}) body size {size}")
    if size > limit:
        raise Refused(BAD_MESSAGE, f"MPUB message too big {size} > {limit}")
    try:
        return connection.read(size)
    except EndOfStream as end:
        raise Refused(BAD_MESSAGE, "MPUB failed to read message body") from end


def read_entries(connection: Connection) -> list[bytes]:
    """Count and entries of an MPUB; the whole batch at once where it is there already."""
    return [read_entry(connection, position) for position in range(read_count(connection))]
