"""Frames: one stream, however it is cut, gives the same frames; garbage is refused early."""

from __future__ import annotations

import json
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.errors import ProtocolError
from nsqsmart.wire import frames
from nsqsmart.wire.frames import (
    ERROR,
    MESSAGE,
    RESPONSE,
    Frame,
    FrameDecoder,
    Tail,
    cut_frame,
    encode_frame,
)
from tests.encoding import CLOSE_WAIT_FRAME
from tests.helpers import ROOT

VECTORS = json.loads((ROOT / "tests" / "vectors" / "wire.json").read_text())["frames"]
LIMIT = 64

some_frames = st.lists(
    st.builds(Frame, st.sampled_from([RESPONSE, ERROR, MESSAGE]), st.binary(max_size=LIMIT - 4)),
    max_size=6,
)


def pieces(data: bytes, cuts: set[int]) -> list[bytes]:
    """*data* cut at these positions, as far as it reaches."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def stream_of(some: list[Frame]) -> bytes:
    return b"".join(encode_frame(*frame) for frame in some)


def by_next(decoder: FrameDecoder, data: bytes) -> list[Frame]:
    """All frames, one at a time, as the handshake takes them."""
    found = []
    while (cut := decoder.next(data)) is not None:
        frame, data = cut
        found.append(frame)
    return found


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_vectors(vector: dict) -> None:
    data, wire = bytes.fromhex(vector["data"]), bytes.fromhex(vector["hex"])
    assert encode_frame(vector["type"], data) == wire
    for cut in range(len(wire) + 1):
        for read in (FrameDecoder.feed, by_next):
            decoder = FrameDecoder()
            assert read(decoder, wire[:cut]) + read(decoder, wire[cut:]) == [(vector["type"], data)]
            assert decoder.buffered == 0


def test_the_types_by_number() -> None:
    assert (RESPONSE, ERROR, MESSAGE) == (0, 1, 2)


def test_ready_made_frames() -> None:
    assert frames.OK_FRAME == encode_frame(RESPONSE, b"OK")
    assert frames.HEARTBEAT_FRAME == encode_frame(RESPONSE, b"_heartbeat_")
    assert CLOSE_WAIT_FRAME == encode_frame(RESPONSE, b"CLOSE_WAIT")


@given(some_frames, st.sets(st.integers(0, 500)), st.integers(0, 40))
def test_the_cut_of_a_stream_does_not_matter(some: list[Frame], cuts: set[int], held: int) -> None:
    rest = encode_frame(MESSAGE, bytes(33))[:held]
    stream = stream_of(some) + rest
    for read in (FrameDecoder.feed, by_next):
        decoder = FrameDecoder(LIMIT)
        found = [frame for piece in pieces(stream, cuts) for frame in read(decoder, piece)]
        assert found == some
        assert decoder.buffered == len(rest)
        assert decoder.take_rest() == rest


@given(some_frames)
def test_every_byte_for_itself(some: list[Frame]) -> None:
    for read in (FrameDecoder.feed, by_next):
        decoder = FrameDecoder(LIMIT)
        stream = stream_of(some)
        assert [f for i in range(len(stream)) for f in read(decoder, stream[i : i + 1])] == some


@given(some_frames, some_frames, st.binary(max_size=20))
def test_behind_the_handshake_the_bytes_are_someone_elses(
    before: list[Frame], after: list[Frame], other: bytes
) -> None:
    decoder = FrameDecoder(LIMIT)
    data = stream_of([*before, Frame(RESPONSE, b"OK")]) + other
    for frame in before:
        cut = decoder.next(data)
        assert cut is not None
        assert cut[0] == frame
        data = cut[1]
    assert decoder.next(data) == (Frame(RESPONSE, b"OK"), other)
    assert decoder.buffered == 0
    assert decoder.feed(stream_of(after)) == after


def test_what_is_held_can_be_handed_over() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(frames.OK_FRAME + b"\0\0\0") == [(RESPONSE, b"OK")]
    assert decoder.feed(b"\x06\0") == []
    assert decoder.buffered == 5
    assert decoder.take_rest() == b"\0\0\0\x06\0"
    assert decoder.take_rest() == b""
    assert decoder.feed(frames.OK_FRAME) == [(RESPONSE, b"OK")]


def test_nothing_gives_nothing() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"") == []
    assert decoder.next(b"") is None
    assert decoder.buffered == 0


def test_how_much_is_missing() -> None:
    tail, wire = Tail(1000), encode_frame(MESSAGE, b"x" * 100)
    assert tail.missing == 0
    tail.keep(wire[:3])
    assert tail.missing == 0  # its size is not known yet
    tail.clear()
    tail.keep(wire[:8])
    assert tail.missing == 100
    assert tail.join(wire[8:50]) is None
    assert tail.missing == 58
    assert tail.join(wire[50:]) == wire
    assert tail.missing == 0


@pytest.mark.parametrize("size", [0, 1, 2, 3])
@pytest.mark.parametrize("came", range(4, 9))
@pytest.mark.parametrize("read", [FrameDecoder.feed, FrameDecoder.next])
def test_a_size_too_small(read, size: int, came: int) -> None:
    head = size.to_bytes(4) + bytes(4)
    with pytest.raises(ProtocolError, match=f"frame size {size} is less than 4"):
        read(FrameDecoder(), head[:came])


@pytest.mark.parametrize("size", [LIMIT + 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("came", range(4, 9))
@pytest.mark.parametrize("read", [FrameDecoder.feed, FrameDecoder.next])
def test_a_size_too_large(read, size: int, came: int) -> None:
    head = size.to_bytes(4) + bytes(4)
    with pytest.raises(ProtocolError, match=f"{size} bytes exceeds max_frame_size={LIMIT}$"):
        read(FrameDecoder(LIMIT), head[:came])


@pytest.mark.parametrize("size", [0, 3, LIMIT + 1, 2**32 - 1])
@pytest.mark.parametrize("read", [FrameDecoder.feed, FrameDecoder.next])
def test_a_size_is_refused_with_its_fourth_byte(read, size: int) -> None:
    decoder = FrameDecoder(LIMIT)
    head = size.to_bytes(4)
    for i in range(3):
        assert not read(decoder, head[i : i + 1])
    with pytest.raises(ProtocolError, match=f"^frame (size|of) {size}"):
        read(decoder, head[3:])


@pytest.mark.parametrize("cut", range(1, 8))
@pytest.mark.parametrize("read", [FrameDecoder.feed, FrameDecoder.next])
def test_a_type_is_refused_with_its_fourth_byte(read, cut: int) -> None:
    decoder = FrameDecoder(LIMIT)
    head = (40).to_bytes(4) + (3).to_bytes(4)
    assert not read(decoder, head[:cut])
    assert not read(decoder, head[cut:7])
    with pytest.raises(ProtocolError, match="unknown frame type 3"):
        read(decoder, head[7:])


def test_the_limit_itself_is_allowed() -> None:
    frame = Frame(MESSAGE, b"x" * (LIMIT - 4))
    wire = stream_of([frame])
    decoder = FrameDecoder(LIMIT)
    assert decoder.feed(wire[:-1]) == []
    assert decoder.feed(wire[-1:]) == [frame]
    assert FrameDecoder(LIMIT).next(wire) == (frame, b"")


def test_the_default_limit_has_room_for_the_largest_message() -> None:
    head, ext, detail = 4 + 26, 3, 12
    assert head + ext + detail + 5 * 1024 * 1024 <= frames.DEFAULT_MAX_FRAME_SIZE
    assert frames.DEFAULT_MAX_FRAME_SIZE == 5 * 1024 * 1024 + 64
    size = frames.DEFAULT_MAX_FRAME_SIZE
    assert FrameDecoder().feed(size.to_bytes(4)) == []
    with pytest.raises(ProtocolError, match="exceeds max_frame_size=5242944"):
        FrameDecoder().feed((size + 1).to_bytes(4))


@pytest.mark.parametrize("frame_type", [3, 0x7FFFFFFF, 0xFFFFFFFF])
@pytest.mark.parametrize("read", [FrameDecoder.feed, FrameDecoder.next])
def test_an_unknown_type_is_refused_before_its_data(read, frame_type: int) -> None:
    head = (40).to_bytes(4) + frame_type.to_bytes(4)
    with pytest.raises(ProtocolError, match=f"unknown frame type {frame_type}"):
        read(FrameDecoder(), head)


@pytest.mark.parametrize("came", [4, 8, 100])
def test_the_http_port_is_named(came: int) -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    with pytest.raises(ProtocolError, match="the peer speaks HTTP: use the TCP port, usually 4150"):
        FrameDecoder().feed(answer[:came])


@pytest.mark.parametrize(
    "garbage", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\x15\x03\x01\x00\x02\x02\x46", b"-ERR unknown\r\n"]
)
def test_another_protocol_is_refused(garbage: bytes) -> None:
    with pytest.raises(ProtocolError, match="exceeds max_frame_size"):
        FrameDecoder().feed(garbage)


@given(st.lists(st.binary(max_size=32), max_size=30))
def test_never_more_is_held_than_the_limit(reads: list[bytes]) -> None:
    decoder = FrameDecoder(LIMIT)
    try:
        for data in reads:
            decoder.feed(b"\0\0\0" + data)
            assert decoder.buffered < 4 + LIMIT
    except ProtocolError:
        assert decoder.buffered < 4 + LIMIT + 32 + 3


def test_the_reads_of_a_frame_are_joined_once() -> None:
    decoder = FrameDecoder()
    wire = encode_frame(MESSAGE, bytes(100))
    for i in range(0, 100, 25):
        assert decoder.feed(wire[i : i + 25]) == []
    assert len(decoder._tail._pieces) == 4
    assert decoder.feed(wire[100:]) == [(MESSAGE, bytes(100))]
    assert decoder._tail._pieces == []


def test_a_size_alone_allocates_nothing() -> None:
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        decoder.feed(frames.DEFAULT_MAX_FRAME_SIZE.to_bytes(4))
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
    assert decoder.buffered == 4


def test_a_large_frame_is_copied_twice_at_most() -> None:
    size = 4_000_000
    decoder = FrameDecoder()
    wire = encode_frame(MESSAGE, bytes(size))
    tracemalloc.start()
    try:
        found = [f for i in range(0, len(wire), 65536) for f in decoder.feed(wire[i : i + 65536])]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [len(frame.data) for frame in found] == [size]
    assert peak < 2.2 * size


def test_a_message_without_room_for_its_head_is_refused() -> None:
    """Before the rest of it is there."""
    begun = encode_frame(MESSAGE, b"x" * 10)[:8]
    with pytest.raises(ProtocolError, match="message of 10 bytes is shorter than its head"):
        cut_frame(begun, 0, LIMIT, least=30)
    assert cut_frame(encode_frame(RESPONSE, b"OK"), 0, LIMIT, least=30)[0] == Frame(RESPONSE, b"OK")
