"""Snappy and deflate as byte transforms (protocol#upgrades).

Both directions keep one continuous stream, flushed after every command. ``incoming`` yields
pieces of bounded size, so that the reader's frame limit stops a decompression bomb.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

from nsqsmart.errors import CompressionError

_PIECE = 256 * 1024
# A stream may hold input that gives no output: empty blocks, padding. A server sends a few bytes of
# it between two heartbeats; without a limit, who sends nothing else would be read for ever.
_MOST_IDLE = 1024 * 1024

_SNAPPY_HEADER = b"\xff\x06\x00\x00sNaPpY"
_CHUNK_HEAD = 4
# Checksum and the worst case of 64 KiB of input: what the format allows a chunk to be.
_MAX_CHUNK = 76_494
_DATA_CHUNKS = (0x00, 0x01)
_FIRST_SKIPPABLE = 0x80


class Stream(Protocol):
    """A layer between the socket and the frames."""

    def outgoing(self, data: bytes) -> bytes:
        """The bytes to send for *data*, complete."""

    def incoming(self, data: bytes) -> Iterator[bytes]:
        """What *data* holds, in pieces of bounded size; raises CompressionError."""


class DeflateStream:
    """Raw deflate (RFC 1951), a sync flush after every command."""

    def __init__(self, level: int = 6) -> None:
        self._idle = 0
        self._compressor = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._decompressor = zlib.decompressobj(-zlib.MAX_WBITS)

    def outgoing(self, data: bytes) -> bytes:
        """Compress and flush."""
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)

    def incoming(self, data: bytes) -> Iterator[bytes]:
        """Decompress; empty sync blocks come at any time and give nothing."""
        piece = b""
        # A full piece may leave output inside zlib although all input is consumed.
        while data or len(piece) == _PIECE:
            try:
                piece = self._decompressor.decompress(data, _PIECE)
            except zlib.error as error:
                raise CompressionError(f"corrupt deflate stream: {error}") from error
            if self._decompressor.eof:
                raise CompressionError("the deflate stream ended; a server never ends it")
            self._idle = 0 if piece else _check_idle(self._idle + len(data))
            data = self._decompressor.unconsumed_tail
            if piece:
                yield piece


class SnappyStream:
    """The snappy framing format.

    The library waits for ever on a stream that does not start as one, and buffers 16 MB on
    request; so whole chunks are checked here before it sees them.
    """

    def __init__(self) -> None:
        import snappy  # noqa: PLC0415 - only compression needs it

        self._compressor = snappy.StreamCompressor()
        self._decompressor = snappy.StreamDecompressor()
        self._held = b""
        self._position = 0
        self._idle = 0
        self._started = False

    def outgoing(self, data: bytes) -> bytes:
        """Compress; each call is complete by itself."""
        return bytes(self._compressor.add_chunk(data))

    def incoming(self, data: bytes) -> Iterator[bytes]:
        """Decompress whole chunks; at most one chunk is held back."""
        self._held += data
        while (chunk := self._next_chunk()) is not None:
            try:
                piece = bytes(self._decompressor.decompress(chunk))
            except Exception as error:  # the library raises OSError and three classes of its own
                raise CompressionError(f"corrupt snappy stream: {error}") from error
            self._idle = 0 if piece else _check_idle(self._idle + len(chunk))
            if piece:
                yield piece
        # Once per call: a chunk may be as short as 4 bytes, cutting each off would be quadratic.
        self._held = self._held[self._position :]
        self._position = 0

    def _next_chunk(self) -> bytes | None:
        if not self._started:
            return self._header()
        head = self._held[self._position : self._position + _CHUNK_HEAD]
        if len(head) < _CHUNK_HEAD:
            return None
        kind, length = head[0], int.from_bytes(head[1:], "little")
        if length > _MAX_CHUNK:
            raise CompressionError(f"snappy chunk of {length} bytes exceeds {_MAX_CHUNK}")
        if kind not in _DATA_CHUNKS and kind < _FIRST_SKIPPABLE:
            raise CompressionError(f"snappy chunk of unknown type {kind}")
        return self._cut(_CHUNK_HEAD + length)

    def _header(self) -> bytes | None:
        if not _SNAPPY_HEADER.startswith(self._held[: len(_SNAPPY_HEADER)]):
            raise CompressionError("the peer did not answer with a snappy stream")
        header = self._cut(len(_SNAPPY_HEADER))
        self._started = header is not None
        return header

    def _cut(self, count: int) -> bytes | None:
        end = self._position + count
        if len(self._held) < end:
            return None
        chunk = self._held[self._position : end]
        self._position = end
        return chunk


def _check_idle(count: int) -> int:
    """*count*; raises CompressionError when so many bytes without any output are too many."""
    if count > _MOST_IDLE:
        raise CompressionError(f"{count} bytes of a compressed stream gave no output")
    return count
