"""The bodies of commands, read as they come, with the servers' words for what is wrong."""

from __future__ import annotations

from collections.abc import Iterator

from nsqsmart.embedded.nsqd.refusals import BAD_BODY, BAD_MESSAGE, CommandRefused, EndOfStream
from nsqsmart.embedded.nsqd.tcp.connection import ClientConnection


def read_body_size(connection: ClientConnection, prefix: str) -> int:
    """The length of a body of any kind but one message.

    Of an MPUB it is judged, and never used again (protocol#identify-body, protocol#mpub).
    """
    limit = connection.node.options.max_body_size
    size = _read_word(connection, BAD_BODY, f"{prefix}failed to read body size")
    if size <= 0:
        raise CommandRefused(BAD_BODY, f"{prefix}invalid body size {size}")
    if size > limit:
        raise CommandRefused(BAD_BODY, f"{prefix}body too big {size} > {limit}")
    return size


def read_whole(connection: ClientConnection, verb: str) -> bytes:
    """The body of IDENTIFY or AUTH (protocol#identify-body)."""
    size = read_body_size(connection, f"{verb} ")
    try:
        return connection.read(size)
    except EndOfStream as end:
        raise CommandRefused(BAD_BODY, f"{verb} failed to read body") from end


def read_size(connection: ClientConnection, prefix: str = "", code: str = BAD_BODY) -> int:
    """The length of the one message of PUB and its kin, judged (protocol#pub).

    Refusals begin with *prefix*, and have *code* where there is no size, or none that can be.
    """
    limit = connection.node.options.max_msg_size
    what = "message body" if prefix else "body"
    size = _read_word(connection, code, f"{prefix}failed to read {what} size")
    if size <= 0:
        raise CommandRefused(code, f"{prefix}invalid {what} size {size}")
    if size > limit:
        raise CommandRefused(BAD_MESSAGE, f"{prefix}message too big {size} > {limit}")
    return size


def read_rest(connection: ClientConnection, size: int, prefix: str = "") -> bytes:
    """The message itself."""
    try:
        return connection.read(size)
    except EndOfStream as end:
        raise CommandRefused(BAD_MESSAGE, f"{prefix}failed to read message body") from end


def _read_word(connection: ClientConnection, code: str, refusal: str) -> int:
    try:
        return int.from_bytes(connection.read(4), signed=True)
    except EndOfStream as end:
        raise CommandRefused(code, refusal) from end


class BatchReader:
    """The messages of one MPUB, cut out of large pieces.

    The outer length is only a hint of how much may be taken at once: count and sizes inside rule,
    whatever it says (protocol#mpub).
    """

    def __init__(self, connection: ClientConnection, prefix: str = "") -> None:
        """*prefix* begins the refusals of the outer length, which is read at once."""
        self._connection = connection
        self._ahead = read_body_size(connection, prefix)
        self._data = b""
        self._position = 0

    def __iter__(self) -> Iterator[bytes]:
        """Message by message; what is not taken is read as commands."""
        count = self._count()
        try:
            for position in range(count):
                yield self._next(position)
        finally:
            self._finish()

    def read(self) -> list[bytes]:
        """Every message, judged; raises :class:`CommandRefused`."""
        count = self._count()
        bodies: list[bytes] = []
        try:
            while len(bodies) < count:
                self._cut_whole(bodies, count)
                if len(bodies) < count:
                    bodies.append(self._next(len(bodies)))
        finally:
            self._finish()
        return bodies

    def _next(self, position: int) -> bytes:
        """The message that comes next, the *position*-th."""
        limit = self._connection.node.options.max_msg_size
        size = int.from_bytes(self._take(4, position), signed=True)
        if not 0 < size <= limit:
            raise _bad_entry(position, size, limit)
        return self._take(size, None)

    def _cut_whole(self, bodies: list[bytes], count: int) -> None:
        """Add to *bodies* what is held whole and is as it should be: nearly all of a batch."""
        data, position, end = self._data, self._position, len(self._data)
        limit = self._connection.node.options.max_msg_size
        for _ in range(count - len(bodies)):
            start = position + 4
            size = int.from_bytes(data[position:start])
            stop = start + size
            if not 0 < size <= limit or stop > end:
                break
            bodies.append(data[start:stop])
            position = stop
        self._position = position

    def _count(self) -> int:
        limit = (self._connection.node.options.max_body_size - 4) // 5
        try:
            count = int.from_bytes(self._more(4), signed=True)
        except EndOfStream as end:
            raise CommandRefused(BAD_BODY, "MPUB failed to read message count") from end
        if not 0 < count <= limit:
            raise CommandRefused(BAD_BODY, f"MPUB invalid message count {count}")
        return count

    def _take(self, count: int, entry: int | None) -> bytes:
        """*count* bytes: the size of an *entry*, or a body."""
        start = self._position
        end = start + count
        if end <= len(self._data):
            self._position = end
            return self._data[start:end]
        try:
            return self._more(count)
        except EndOfStream as end_of_stream:
            text = f"MPUB failed to read message({entry}) body size"
            if entry is None:
                text = "MPUB failed to read message body"
            raise CommandRefused(BAD_MESSAGE, text) from end_of_stream

    def _more(self, count: int) -> bytes:
        """*count* bytes, and whatever else of the batch has come."""
        decoder, held = self._connection.decoder, self._data[self._position :]
        missing = count - len(held)
        while decoder.buffered < missing:
            self._connection.receive()
        grab = max(missing, min(decoder.buffered, self._ahead))
        self._ahead -= grab
        self._data = held + (decoder.take(grab) or b"")
        self._position = count
        return self._data[:count]

    def _finish(self) -> None:
        """Give back what the outer length took too much."""
        rest = self._data[self._position :]
        if rest:
            decoder = self._connection.decoder
            behind = decoder.take_rest()
            decoder.feed(rest)
            decoder.feed(behind)
            self._data, self._position = b"", 0


def _bad_entry(position: int, size: int, limit: int) -> CommandRefused:
    if size <= 0:
        return CommandRefused(BAD_MESSAGE, f"MPUB invalid message({position}) body size {size}")
    return CommandRefused(BAD_MESSAGE, f"MPUB message too big {size} > {limit}")
