"""Compressed streams: cut anywhere, bounded whatever they hold, and never trusted."""

from __future__ import annotations

import json
import random
import tracemalloc
import zlib
from collections.abc import Callable
from itertools import pairwise

import pytest
import snappy
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.errors import CompressionError
from nsqsmart.wire.streams import DeflateStream, SnappyStream, Stream
from tests.helpers import ROOT

VECTORS = json.loads((ROOT / "tests" / "vectors" / "wire.json").read_text())["streams"]
CODECS: dict[str, Callable[[], Stream]] = {"snappy": SnappyStream, "deflate": DeflateStream}
EVERY = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)

HEADER = b"\xff\x06\x00\x00sNaPpY"
OK = bytes.fromhex("00000006000000004f4b")
KIB = 1024

# Repetition compresses; noise does not.
commands = st.lists(st.binary(max_size=60) | st.binary(max_size=8).map(lambda b: b * 50))


def pieces(data: bytes, cuts: set[int]) -> list[bytes]:
    """*data* cut at these positions, as far as it reaches."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def plain(stream: Stream, *reads: bytes) -> bytes:
    return b"".join(piece for data in reads for piece in stream.incoming(data))


def chunk(kind: int, data: bytes) -> bytes:
    return bytes([kind]) + len(data).to_bytes(3, "little") + data


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_vectors(vector: dict) -> None:
    codec = CODECS[vector["codec"]]
    wire, expected = bytes.fromhex(vector["hex"]), bytes.fromhex(vector["plain"])
    assert plain(codec(), wire) == expected
    for cut in range(len(wire) + 1):
        assert plain(codec(), wire[:cut], wire[cut:]) == expected


def test_what_is_sent_looks_as_what_the_servers_send() -> None:
    assert SnappyStream().outgoing(OK).hex() == VECTORS[0]["hex"]
    assert DeflateStream(0).outgoing(OK).hex() == VECTORS[2]["hex"]


@EVERY
@given(commands, st.sets(st.integers(0, 2000)))
def test_the_cut_of_a_stream_does_not_matter(
    codec: Callable[[], Stream], some: list[bytes], cuts: set[int]
) -> None:
    sender = codec()
    wire = b"".join(map(sender.outgoing, some))
    for reads in ([wire], pieces(wire, cuts), [wire[i : i + 1] for i in range(len(wire))]):
        assert plain(codec(), *reads) == b"".join(some)


@EVERY
@given(commands)
def test_every_command_arrives_by_itself(codec: Callable[[], Stream], some: list[bytes]) -> None:
    sender, receiver = codec(), codec()
    for command in some:
        assert plain(receiver, sender.outgoing(command)) == command


@EVERY
@pytest.mark.parametrize(
    "size", [0, 1, 65535, 65536, 65537, 256 * KIB - 1, 256 * KIB, 256 * KIB + 1, 512 * KIB, 10**6]
)
@pytest.mark.parametrize("noisy", [False, True])
def test_every_size_arrives_whole(codec: Callable[[], Stream], size: int, noisy: bool) -> None:
    data = random.Random(size).randbytes(size) if noisy else b"x" * size
    sender, receiver = codec(), codec()
    for _ in range(2):
        assert plain(receiver, sender.outgoing(data)) == data


@EVERY
def test_nothing_gives_nothing(codec: Callable[[], Stream]) -> None:
    assert list(codec().incoming(b"")) == []
    receiver = codec()
    assert plain(receiver, codec().outgoing(OK)) == OK
    assert list(receiver.incoming(b"")) == []


def test_what_one_read_of_snappy_holds_may_be_taken_in_two_goes() -> None:
    sender, receiver = SnappyStream(), SnappyStream()
    wire = b"".join(map(sender.outgoing, (b"first", b"second", b"third")))
    assert next(iter(receiver.incoming(wire))) == b"first"
    assert plain(receiver, sender.outgoing(b"fourth")) == b"secondthirdfourth"


@EVERY
def test_a_bomb_comes_out_in_pieces(codec: Callable[[], Stream]) -> None:
    size = 32 * KIB * KIB
    largest = {DeflateStream: 256 * KIB, SnappyStream: 64 * KIB}[codec]
    bomb, receiver, total = codec().outgoing(bytes(size)), codec(), 0
    tracemalloc.start()
    try:
        for piece in receiver.incoming(bomb):
            assert 0 < len(piece) <= largest
            total += len(piece)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == size
    assert peak < 4 * len(bomb) + 4 * largest + 100_000


@EVERY
def test_a_bomb_is_not_opened_before_it_is_looked_at(codec: Callable[[], Stream]) -> None:
    bomb = codec().outgoing(bytes(32 * KIB * KIB))
    tracemalloc.start()
    try:
        assert next(codec().incoming(bomb))
        assert tracemalloc.get_traced_memory()[1] < 4 * len(bomb) + KIB * KIB
    finally:
        tracemalloc.stop()


# ------------------------------------------------------------------------------------- deflate


@pytest.mark.parametrize("level", range(10))
def test_every_deflate_level(level: int) -> None:
    data = b"PUB t\n" * 1000
    sent = DeflateStream(level).outgoing(data)
    assert plain(DeflateStream(), sent) == data
    assert sent.endswith(b"\x00\x00\xff\xff")
    assert (len(sent) < len(data)) == (level > 0)


def test_the_deflate_level_is_six_unless_told() -> None:
    data = json.dumps([{"n": n, "square": n * n} for n in range(2000)]).encode()
    sizes = {level: len(DeflateStream(level).outgoing(data)) for level in (1, 6, 9)}
    assert len(DeflateStream().outgoing(data)) == sizes[6] != sizes[1]


def test_empty_sync_blocks_give_nothing() -> None:
    sender, receiver = DeflateStream(), DeflateStream()
    empty = b"\x00\x00\x00\xff\xff"
    wire = empty + sender.outgoing(OK) + empty * 3
    assert plain(receiver, wire) == OK
    assert plain(receiver, empty, sender.outgoing(b"more")) == b"more"


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff", b"\x07", OK, b"HTTP/1.1 400 Bad Request\r\n\r\n", zlib.compress(OK)]
)
def test_corrupt_deflate(data: bytes) -> None:
    with pytest.raises(CompressionError, match="deflate stream"):
        # What is corrupt may begin like a block, and show when the next one comes.
        plain(DeflateStream(), data, b"\xff" * 100)


@pytest.mark.parametrize("size", [0, 10, 256 * KIB, 10**6])
def test_a_deflate_stream_that_ends(size: int) -> None:
    compressor = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    wire = compressor.compress(bytes(size)) + compressor.flush(zlib.Z_FINISH)
    with pytest.raises(CompressionError, match="the deflate stream ended"):
        plain(DeflateStream(), wire + b"more")


@given(st.binary(max_size=200), st.sets(st.integers(0, 200)))
def test_garbage_is_deflate_or_an_error_of_ours(garbage: bytes, cuts: set[int]) -> None:
    outcomes = []
    for reads in ([garbage], pieces(garbage, cuts)):
        try:
            outcomes.append(plain(DeflateStream(), *reads))
        except CompressionError:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


# -------------------------------------------------------------------------------------- snappy


def test_what_is_sent_has_one_header_and_is_read_by_others() -> None:
    sender, data = SnappyStream(), b"PUB t\n" * 50
    wire = b"".join(sender.outgoing(data) for _ in range(3))
    assert wire.startswith(HEADER)
    assert wire.count(HEADER) == 1
    assert snappy.StreamDecompressor().decompress(wire) == data * 3
    assert SnappyStream().outgoing(b"") == b""


@pytest.mark.parametrize(
    "data",
    [b"\x00", b"\xff\x07", b"\xff\x06\x00\x01", b"\xff\x06\x00\x00sNaPpy", OK, b"E_INVALID"]
    + [b"HTTP/1.1 400 Bad Request\r\n\r\n"],
)
def test_a_wrong_header_is_refused_at_once(data: bytes) -> None:
    with pytest.raises(CompressionError, match="the peer did not answer with a snappy stream"):
        plain(SnappyStream(), data)
    stream = SnappyStream()
    single = [bytes([byte]) for byte in data]
    with pytest.raises(CompressionError, match="the peer did not answer with a snappy stream"):
        plain(stream, *single)
    assert len(stream._held) <= len(HEADER)


def test_half_a_header_is_waited_for() -> None:
    for cut in range(len(HEADER)):
        assert plain(SnappyStream(), HEADER[:cut]) == b""


@pytest.mark.parametrize("kind", [0x00, 0x01, 0x80, 0xFE, 0xFF])
def test_a_chunk_too_long_is_refused_by_its_head(kind: int) -> None:
    for length in (76_495, 2**24 - 1):
        head = bytes([kind]) + length.to_bytes(3, "little")
        with pytest.raises(CompressionError, match=f"chunk of {length} bytes exceeds 76494"):
            plain(SnappyStream(), HEADER, head)
    stream = SnappyStream()
    assert plain(stream, HEADER, bytes([kind]) + (76_494).to_bytes(3, "little")) == b""
    assert plain(stream, bytes(76_493)) == b""


@pytest.mark.parametrize("kind", [0x02, 0x03, 0x40, 0x7F])
def test_a_chunk_of_unknown_type_is_refused_by_its_head(kind: int) -> None:
    with pytest.raises(CompressionError, match=f"snappy chunk of unknown type {kind}"):
        plain(SnappyStream(), HEADER, chunk(kind, b"")[:4])


@pytest.mark.parametrize("kind", [0x80, 0x81, 0xC0, 0xFD, 0xFE])
@pytest.mark.parametrize("data", [b"", b"padding", bytes(65_536)], ids=len)
def test_a_chunk_that_may_be_skipped_is(kind: int, data: bytes) -> None:
    wire = bytes.fromhex(VECTORS[0]["hex"])
    stream = SnappyStream()
    assert plain(stream, wire + chunk(kind, data) + wire[len(HEADER) :]) == OK * 2
    assert stream._held == b""


def test_a_header_may_come_again() -> None:
    wire = bytes.fromhex(VECTORS[0]["hex"])
    assert plain(SnappyStream(), wire + wire) == OK * 2


CHECKSUM = bytes.fromhex("26982bcf")


@pytest.mark.parametrize(
    "data",
    [
        chunk(0x01, CHECKSUM + OK[:-1] + b"L"),
        chunk(0x01, bytes(4) + OK),
        chunk(0x00, CHECKSUM + OK),
        chunk(0x00, b""),
        chunk(0x01, b"abc"),
        chunk(0x01, CHECKSUM),
        chunk(0x01, CHECKSUM + bytes(70_000)),
        chunk(0x00, CHECKSUM + b"\xff\xff\xff\xff\x0f" + b"bomb"),
        chunk(0xFF, b"sNaPpX"),
        chunk(0xFF, b"sNaPp"),
    ],
    ids=lambda data: data[:12].hex(),
)
def test_corrupt_snappy(data: bytes) -> None:
    with pytest.raises(CompressionError, match="corrupt snappy stream") as caught:
        plain(SnappyStream(), HEADER + data)
    assert caught.value.__cause__ is not None
    assert not isinstance(caught.value, OSError)


def test_a_block_that_claims_more_than_64_kib_is_refused() -> None:
    block = snappy.compress(bytes(65537))
    with pytest.raises(CompressionError, match="corrupt snappy stream"):
        plain(SnappyStream(), HEADER + chunk(0x00, bytes(4) + block))


@pytest.mark.parametrize("position", range(len(HEADER), 28))
def test_a_changed_bit_never_changes_the_data(position: int) -> None:
    good = bytes.fromhex(VECTORS[0]["hex"])
    for bit in range(8):
        wire = bytearray(good)
        wire[position] ^= 1 << bit
        try:
            assert plain(SnappyStream(), bytes(wire)) == b""  # skipped, or waited for
        except CompressionError:
            continue


@given(st.binary(max_size=60), st.sampled_from([0x00, 0x01, 0xFF]), st.sets(st.integers(0, 80)))
def test_garbage_is_snappy_or_an_error_of_ours(garbage: bytes, kind: int, cuts: set[int]) -> None:
    for wire in (garbage, HEADER + garbage, HEADER + chunk(kind, garbage)):
        outcomes = []
        for reads in ([wire], pieces(wire, cuts)):
            stream = SnappyStream()
            try:
                outcomes.append(plain(stream, *reads))
            except CompressionError:
                outcomes.append(None)
        assert outcomes[0] == outcomes[1]


def test_a_flood_of_tiny_chunks_leaves_nothing_behind() -> None:
    stream = SnappyStream()
    assert plain(stream, HEADER + chunk(0xFE, b"") * 20_000) == b""
    assert stream._held == b""


# ------------------------------------------------------------------- input that gives no output

EMPTY_BLOCK = b"\x00\x00\x00\xff\xff"


def skippable(size: int) -> bytes:
    """A snappy chunk of padding, *size* bytes in all."""
    return b"\xfe" + (size - 4).to_bytes(3, "little") + bytes(size - 4)


IDLE = pytest.mark.parametrize(
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


@IDLE
def test_a_mebibyte_without_output_is_the_end(make, nothing) -> None:
    _, receiver = begin(make)
    fed, ended = 0, ""
    tracemalloc.start()
    try:
        while not ended and fed < 4 * KIB * KIB:
            fed += len(nothing)
            try:
                assert list(receiver.incoming(nothing)) == []
            except CompressionError as error:
                ended = str(error)
        assert tracemalloc.get_traced_memory()[1] < KIB * KIB
    finally:
        tracemalloc.stop()
    assert "gave no output" in ended
    assert KIB * KIB < fed < KIB * KIB + 2 * len(nothing)


@IDLE
def test_every_output_begins_the_count_anew(make, nothing) -> None:
    """As between two heartbeats of a server that flushes often."""
    sender, receiver = begin(make)
    for _ in range(3):
        for _ in range(KIB * KIB * 3 // 4 // len(nothing)):
            assert list(receiver.incoming(nothing)) == []
        assert b"".join(receiver.incoming(sender.outgoing(OK))) == OK
