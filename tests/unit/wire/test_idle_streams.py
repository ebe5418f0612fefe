"""Compressed input that gives no output: for a while it is harmless, without end it is not."""

from __future__ import annotations

import tracemalloc

import pytest

from nsqsmart.errors import CompressionError
from nsqsmart.wire.streams import DeflateStream, SnappyStream, Stream

MIB = 1024 * 1024
OK = b"\x00\x00\x00\x06\x00\x00\x00\x00OK"
EMPTY_BLOCK = b"\x00\x00\x00\xff\xff"
"""What a sync flush without data is in deflate."""


def skippable(size: int) -> bytes:
    """A snappy chunk of padding, *size* bytes in all."""
    return b"\xfe" + (size - 4).to_bytes(3, "little") + bytes(size - 4)


EVERY = pytest.mark.parametrize(
    ("make", "nothing"),
    [
        (DeflateStream, EMPTY_BLOCK * 1000),
        (SnappyStream, skippable(64 * 1024)),
        (SnappyStream, skippable(64) * 100),
    ],
    ids=["empty blocks", "padding", "small padding"],
)


def begin(make: type[Stream]) -> tuple[Stream, Stream]:
    """One that sends and one that has read the first of it."""
    sender, receiver = make(), make()
    assert b"".join(receiver.incoming(sender.outgoing(OK))) == OK
    return sender, receiver


@EVERY
def test_a_mebibyte_without_output_is_the_end(make, nothing) -> None:
    _, receiver = begin(make)
    fed, ended = 0, ""
    tracemalloc.start()
    try:
        while not ended and fed < 4 * MIB:
            fed += len(nothing)
            try:
                assert list(receiver.incoming(nothing)) == []
            except CompressionError as error:
                ended = str(error)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()
    assert "gave no output" in ended
    assert MIB < fed < MIB + 2 * len(nothing)


@EVERY
def test_every_output_begins_the_count_anew(make, nothing) -> None:
    """As between two heartbeats of a server that flushes often."""
    sender, receiver = begin(make)
    for _ in range(3):
        for _ in range(MIB * 3 // 4 // len(nothing)):
            assert list(receiver.incoming(nothing)) == []
        assert b"".join(receiver.incoming(sender.outgoing(OK))) == OK
