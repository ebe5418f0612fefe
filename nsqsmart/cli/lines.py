"""Messages out of a stream: what stands between delimiters."""

from __future__ import annotations

import codecs
import os
from collections import deque

from nsqsmart.cli.waiting import is_readable
from nsqsmart.errors import ConfigError

_CHUNK = 1 << 16
_MOST = 16 << 20


class Lines:
    """Reads a descriptor as it comes; empty messages are passed over, for nsqd takes none.

    ``number`` counts the pieces that were taken, empty ones too; ``taken`` the bytes.
    """

    def __init__(self, descriptor: int, delimiter: bytes, name: str) -> None:
        self._descriptor = descriptor
        self._delimiter = delimiter
        self._name = name
        self._pieces: deque[bytes] = deque()
        self._rest = bytearray()
        self._ended = False
        self.number = 0
        self.taken = 0

    def pauses(self) -> bool:
        """Whether nothing is there to be taken at this moment."""
        return not (self._pieces or self._ended or is_readable(self._descriptor, 0.0))

    def take(self, until: float | None) -> bytes | None:
        """The next message, None at the end; raises TimeoutError at *until* (monotonic seconds).

        Raises :class:`ConfigError` for one of more than 16 MiB, OSError where it cannot be read.
        """
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self.number += 1
                self.taken += len(piece) + len(self._delimiter)
                if piece:
                    return piece
            if self._ended:
                return None
            self._fill(until)

    def _fill(self, until: float | None) -> None:
        if not is_readable(self._descriptor, until):
            raise TimeoutError
        data = os.read(self._descriptor, _CHUNK)
        self._ended = not data
        # A delimiter of several bytes may have come in two parts.
        begin = max(0, len(self._rest) - len(self._delimiter))
        self._rest += data
        if self._delimiter in self._rest[begin:]:
            *whole, last = bytes(self._rest).split(self._delimiter)
            self._pieces.extend(whole)
            self._rest = bytearray(last)
        if len(self._rest) > _MOST:
            place = self.number + len(self._pieces) + 1
            raise ConfigError(f"{self._name}: message {place} has more than {_MOST} bytes")
        if self._ended and self._rest:
            self._pieces.append(bytes(self._rest))
            self._rest.clear()


def read_delimiter(text: str) -> bytes:
    r"""Text with escapes: ``\n``, ``\0``, ``\t``, ``\x1e``; raises ValueError."""
    delimiter = codecs.escape_decode(text.encode())[0]
    if not delimiter:
        raise ValueError("it is empty")
    return bytes(delimiter)
