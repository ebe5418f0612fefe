"""The server half: cuts a client's stream into command lines and bodies.

Servers judge a command line before they read its body, so this decoder is pulled: ask for the
next command, then for as many bytes as the command says. A call returns None while its bytes have
not all come; feed more and call again.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from nsqsmart.errors import ProtocolError
from nsqsmart.names import Dialect
from nsqsmart.wire.messages import ID_SIZE

MAX_LINE = {Dialect.ORIGINAL: 16384, Dialect.REDESIGNED: 4096}
"""Bytes of a command line, its LF included; a longer one is cut off unanswered (protocol#lines)."""

_FIN = struct.Struct("4s16sc")
_FIN_SIZE = _FIN.size
# Where a redesigned nsqd looks for the id, and how many bytes it takes without looking for LF.
_ACK_VERBS = (b"FIN", b"REQ")
_ACK_HEAD = 4 + ID_SIZE
_TOUCH_HEAD = 6 + ID_SIZE
_TOUCH_SIZE = _TOUCH_HEAD + 1
_COMPACT_AT = 64 * 1024


class LineTooLong(ProtocolError):
    """A command line exceeds what the server buffers; it closes without an answer."""


class CommandLine(NamedTuple):
    """A command line: its verb and its other tokens; ids are raw."""

    verb: bytes
    params: tuple[bytes, ...] = ()


class CommandDecoder:
    """Cuts a client's bytes by the rules of *dialect* (protocol#lines and protocol#binary-ids)."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._max_line = MAX_LINE[dialect]
        self._buffer = bytearray()
        self._start = 0

    @property
    def buffered(self) -> int:
        """Bytes held and not yet taken."""
        return len(self._buffer) - self._start

    def feed(self, data: bytes) -> None:
        """Add what the client sent."""
        if self._start >= _COMPACT_AT or self._start == len(self._buffer):
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    def take(self, count: int) -> bytes | None:
        """Exactly *count* bytes, or None while they have not all come."""
        return None if self.buffered < count else self._cut(count)

    def take_rest(self) -> bytes:
        """Everything held: after an upgrade it belongs to the next layer."""
        return self._cut(self.buffered)

    def take_fins(self) -> list[bytes]:
        """The ids of the FINs at the head of the stream that stand complete, in one sweep.

        Clients combine FINs; a run of them is 21 bytes each whatever the ids hold.
        """
        count = self.buffered // _FIN_SIZE
        if not count or not self._buffer.startswith(b"FIN ", self._start):
            return []
        ids: list[bytes] = []
        binary = self._dialect is Dialect.REDESIGNED
        end = self._start + count * _FIN_SIZE
        # The view must be gone before the buffer can grow again.
        with memoryview(self._buffer)[self._start : end] as run:
            for verb, message_id, last in _FIN.iter_unpack(run):
                if verb != b"FIN " or last != b"\n" or not (binary or message_id.isalnum()):
                    break
                ids.append(message_id)
        self._start += len(ids) * _FIN_SIZE
        return ids

    def next_command(self) -> CommandLine | None:
        """The next command line, or None while it is incomplete.

        Raises :class:`LineTooLong` when more than the dialect's limit came without an LF.
        """
        if self._dialect is Dialect.REDESIGNED:
            return self._next_redesigned()
        line = self._line(self._start)
        return None if line is None else self._tokens(line)

    def _next_redesigned(self) -> CommandLine | None:
        head = bytes(self._buffer[self._start : self._start + 5])
        # An LF within the verb ends the line there: "FI\n" is no FIN.
        if head[:3] in _ACK_VERBS:
            return self._ack(head[:3])
        if head == b"TOUCH":
            return self._touch()
        line = self._line(self._start)
        return None if line is None else self._tokens(line)

    def _ack(self, verb: bytes) -> CommandLine | None:
        """FIN and REQ: the id by width, then the rest of the line (protocol#binary-ids)."""
        first = self._newline(self._start)
        if first is None:
            return None
        head_end = self._start + _ACK_HEAD
        # An LF among the first 20 bytes belongs to the id: the line ends at the next one.
        line = self._line(first if first >= head_end else head_end)
        if line is None:
            return None
        message_id = line[4:_ACK_HEAD]
        if verb == b"REQ" and len(line) > _ACK_HEAD:
            return CommandLine(verb, (message_id, line[_ACK_HEAD + 1 :]))
        return CommandLine(verb, (message_id,))

    def _touch(self) -> CommandLine | None:
        """TOUCH: at least 23 bytes, LFs among them or not; nothing is read after them."""
        newline = self._newline(self._start)
        if newline is None:
            return None
        end = max(newline + 1, self._start + _TOUCH_SIZE)
        if end > len(self._buffer):
            return None
        data = self._cut(end - self._start)
        return CommandLine(b"TOUCH", (data[6:_TOUCH_HEAD],))

    def _newline(self, search_from: int) -> int | None:
        """Where the line at the head of the stream ends; refuses one beyond the limit."""
        newline = self._buffer.find(b"\n", search_from)
        length = self.buffered if newline == -1 else newline - self._start
        if length >= self._max_line:
            raise LineTooLong(f"command line exceeds {self._max_line} bytes")
        return None if newline == -1 else newline

    def _line(self, search_from: int) -> bytes | None:
        """The line at the head of the stream, its LF taken off."""
        newline = self._newline(search_from)
        return None if newline is None else self._cut(newline + 1 - self._start)[:-1]

    def _cut(self, count: int) -> bytes:
        end = self._start + count
        data = bytes(memoryview(self._buffer)[self._start : end])
        self._start = end
        return data

    @staticmethod
    def _tokens(line: bytes) -> CommandLine:
        verb, *params = line.removesuffix(b"\r").split(b" ")
        return CommandLine(verb, tuple(params))
