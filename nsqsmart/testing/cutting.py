"""Cuts what goes by on a connection into commands and frames, byte for byte.

Both sides are read until they are no longer NSQ: after an upgrade to TLS or compression, and for
HTTP, everything is one nameless piece after another.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

from nsqsmart.errors import ProtocolError
from nsqsmart.names import Dialect
from nsqsmart.wire.command_decoder import CommandDecoder
from nsqsmart.wire.commands import MAGIC_V2
from nsqsmart.wire.frames import ERROR, HEARTBEAT, MESSAGE, PREFIX_SIZE, RESPONSE, check_size

_SIZE = 4
_LARGEST = 64 << 20
_WITH_BODY = ("IDENTIFY", "AUTH", "PUB", "MPUB", "DPUB", "INTERNAL_CREATE_TOPIC")
_KINDS = {RESPONSE: "RESPONSE", ERROR: "ERROR", MESSAGE: "MESSAGE"}
_UPGRADES = ("tls_v1", "snappy", "deflate")


class Piece(NamedTuple):
    """A command with its body or a frame, as it stands on the wire; without a name, mere bytes."""

    name: str
    data: bytes


class Opaque:
    """Whether a connection no longer speaks plain NSQ; both of its directions read it."""

    def __init__(self) -> None:
        self.value = False


class Cutter(ABC):
    """One direction of a connection."""

    def __init__(self, opaque: Opaque) -> None:
        self._opaque = opaque
        self._held = bytearray()

    @abstractmethod
    def feed(self, data: bytes) -> Iterator[Piece]:
        """The pieces that are complete with *data*."""

    def rest(self) -> bytes:
        """What has come of an incomplete piece."""
        return self._take(len(self._held))

    def _take(self, count: int) -> bytes:
        data = bytes(self._held[:count])
        del self._held[:count]
        return data


class Commands(Cutter):
    """What a client sends."""

    def __init__(self, opaque: Opaque) -> None:
        super().__init__(opaque)
        self._begun = False
        self._verb = ""
        # It reads what clients of original servers send as well: their ids have no LF.
        self._decoder = CommandDecoder(Dialect.REDESIGNED)

    def feed(self, data: bytes) -> Iterator[Piece]:
        """The pieces that are complete with *data*."""
        self._held += data
        if not self._begun and len(self._held) >= len(MAGIC_V2):
            self._begun = True
            if self._held[: len(MAGIC_V2)] == MAGIC_V2:
                self._decoder.feed(bytes(self._held[len(MAGIC_V2) :]))
                yield Piece("", self._take(len(MAGIC_V2)))
            else:
                self._opaque.value = True
        elif self._begun and not self._opaque.value:
            self._decoder.feed(data)
        if self._begun:
            yield from self._pieces()

    def _pieces(self) -> Iterator[Piece]:
        while not self._opaque.value and (name := self._next()):
            yield Piece(name, self._take(len(self._held) - self._decoder.buffered))
        if self._opaque.value and self._held:
            yield Piece("", self.rest())

    def _next(self) -> str:
        """The verb of the next complete command, or ""."""
        try:
            if not self._verb:
                command = self._decoder.next_command()
                self._verb = command.verb.decode("ascii", "replace") if command else ""
                self._size: int | None = None
        except ProtocolError:
            self._opaque.value = True
            return ""
        if self._verb.startswith(_WITH_BODY):
            if self._size is None and (head := self._decoder.take(_SIZE)) is not None:
                self._size = int.from_bytes(head)
            if self._size is None or self._decoder.take(self._size) is None:
                return ""
        found, self._verb = self._verb, ""
        return found


class Frames(Cutter):
    """What an nsqd sends."""

    def feed(self, data: bytes) -> Iterator[Piece]:
        """The pieces that are complete with *data*."""
        self._held += data
        while not self._opaque.value and (frame := self._next()):
            yield frame
        if self._opaque.value and self._held:
            yield Piece("", self.rest())

    def _next(self) -> Piece | None:
        if len(self._held) < PREFIX_SIZE:
            return None
        size = int.from_bytes(self._held[:_SIZE])
        kind = _KINDS.get(int.from_bytes(self._held[_SIZE:PREFIX_SIZE]))
        try:
            check_size(size, _LARGEST)
        except ProtocolError:
            kind = None
        if kind is None:
            self._opaque.value = True
            return None
        if len(self._held) < _SIZE + size:
            return None
        data = self._take(_SIZE + size)
        body = data[PREFIX_SIZE:]
        if kind == "RESPONSE" and body == HEARTBEAT:
            kind = "HEARTBEAT"
        if kind == "RESPONSE" and _upgrades(body):
            # The client speaks the new language as soon as it has read this.
            self._opaque.value = True
        return Piece(kind, data)


def _upgrades(body: bytes) -> bool:
    """Whether it is an answer to IDENTIFY that grants another layer."""
    if not body.startswith(b"{"):
        return False
    try:
        granted = json.loads(body)
    except ValueError:
        return False
    return any(granted.get(name) for name in _UPGRADES)
