"""The read path of a consumer: messages and other frames, in all four layouts."""

from __future__ import annotations

import json
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.errors import ProtocolError
from nsqsmart.wire.deliveries import DeliveryDecoder
from nsqsmart.wire.frames import (
    ERROR,
    HEARTBEAT_FRAME,
    MESSAGE,
    RESPONSE,
    Frame,
    FrameDecoder,
    encode_frame,
)
from nsqsmart.wire.messages import EXT_JSON, PLAIN, MessageLayout, RawMessage, decode_message
from tests.encoding import encode_message
from tests.helpers import ROOT

VECTORS = json.loads((ROOT / "tests" / "vectors" / "wire.json").read_text())["messages"]
LAYOUTS = [MessageLayout(extended=e, detailed=d) for e in (False, True) for d in (False, True)]
LIMIT = 120

some_frames = st.lists(
    st.builds(
        RawMessage,
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**16 - 1),
        st.binary(min_size=16, max_size=16),
        st.binary(max_size=40),
        st.just(EXT_JSON),
        st.binary(max_size=20),
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**32 - 1),
    )
    | st.builds(Frame, st.sampled_from([RESPONSE, ERROR]), st.binary(max_size=60)),
    max_size=8,
)


def made(_read_batch: object, *fields: Any) -> RawMessage:
    """A plain message, as the decoder has it made."""
    return RawMessage(*fields)


def decoder_of(layout: MessageLayout, limit: int = LIMIT) -> DeliveryDecoder[RawMessage]:
    return DeliveryDecoder(layout, object, made, lambda _, message: message, limit)


def stream_of(some: list[RawMessage | Frame], layout: MessageLayout) -> bytes:
    return b"".join(
        encode_frame(*each)
        if isinstance(each, Frame)
        else encode_frame(MESSAGE, encode_message(each, layout))
        for each in some
    )


def pieces(data: bytes, cuts: set[int]) -> list[bytes]:
    """*data* cut at these positions, as far as it reaches."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def read(
    decoder: DeliveryDecoder[RawMessage], reads: list[bytes]
) -> tuple[list[RawMessage], list[Frame]]:
    messages: list[RawMessage] = []
    others: list[Frame] = []
    for data in reads:
        more_messages, more_others = decoder.feed(data)
        messages += more_messages
        others += more_others
    return messages, others


def expected(stream: bytes, layout: MessageLayout) -> tuple[list[RawMessage], list[Frame]]:
    """Decode *stream* with the general decoder."""
    frames = FrameDecoder(LIMIT).feed(stream)
    messages = [decode_message(frame.data, layout) for frame in frames if frame.type == MESSAGE]
    return messages, [frame for frame in frames if frame.type != MESSAGE]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["frame"][60:])
def test_vectors(vector: dict) -> None:
    layout = MessageLayout(extended=vector["extended"], detailed=vector["detailed"])
    wire = HEARTBEAT_FRAME + bytes.fromhex(vector["frame"]) + HEARTBEAT_FRAME
    for cut in range(len(wire) + 1):
        (message,), others = read(decoder_of(layout), [wire[:cut], wire[cut:]])
        assert (message.timestamp, message.attempts) == (vector["timestamp"], vector["attempts"])
        assert message.id.hex() == vector["id"]
        assert message.body.hex() == vector["body"]
        assert (message.offset, message.size) == (vector.get("offset"), vector.get("size"))
        assert others == [(RESPONSE, b"_heartbeat_")] * 2


@pytest.mark.parametrize("layout", LAYOUTS)
@given(some_frames, st.sets(st.integers(0, 1000)), st.integers(0, 70))
def test_the_cut_of_a_stream_does_not_matter(
    layout: MessageLayout, some: list[RawMessage | Frame], cuts: set[int], held: int
) -> None:
    rest = encode_frame(MESSAGE, bytes(70))[:held]
    stream = stream_of(some, layout)
    decoder = decoder_of(layout)
    messages, others = read(decoder, pieces(stream + rest, cuts))
    assert (messages, others) == expected(stream, layout)
    assert [m.body for m in messages] == [m.body for m in some if isinstance(m, RawMessage)]
    assert others == [each for each in some if isinstance(each, Frame)]
    assert decoder.tail.size == held
    assert decoder.feed(encode_frame(MESSAGE, bytes(70))[held:])[1] == []
    assert decoder.tail.size == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@given(some_frames)
def test_every_byte_for_itself(layout: MessageLayout, some: list[RawMessage | Frame]) -> None:
    stream = stream_of(some, layout)
    single = [stream[i : i + 1] for i in range(len(stream))]
    assert read(decoder_of(layout), single) == expected(stream, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@given(st.binary(max_size=150), st.sets(st.integers(0, 150)))
def test_garbage_is_refused_whatever_the_cut(
    layout: MessageLayout, garbage: bytes, cuts: set[int]
) -> None:
    # Zeros make sizes and types that are nearly right.
    for head in (b"", b"\0\0\0", b"\0\0\0\x1e\0\0\0"):
        outcomes = []
        for reads in ([head + garbage], pieces(head + garbage, cuts)):
            decoder = decoder_of(layout)
            try:
                outcomes.append(read(decoder, reads))
            except ProtocolError:
                outcomes.append(None)
            assert decoder.tail.size < 4 + LIMIT
        assert outcomes[0] == outcomes[1]


def test_a_plain_message_takes_the_short_way() -> None:
    decoder = DeliveryDecoder(
        PLAIN, lambda: "here", lambda *each: each, lambda *_: pytest.fail("long way")
    )
    wire = encode_frame(MESSAGE, encode_message(RawMessage(1, 2, b"0123456789abcdef", b"body")))
    assert decoder.feed(wire) == ([("here", 1, 2, b"0123456789abcdef", b"body")], [])


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_every_other_message_takes_the_long_way(layout: MessageLayout) -> None:
    decoder = DeliveryDecoder(
        layout, lambda: "here", lambda *_: pytest.fail("short way"), lambda *each: each
    )
    message = RawMessage(1, 2, b"0123456789abcdef", b"body", EXT_JSON, b"{}", 3, 4)
    data = encode_message(message, layout)
    assert decoder.feed(encode_frame(MESSAGE, data)) == (
        [("here", decode_message(data, layout))],
        [],
    )


def test_messages_and_other_frames_keep_their_order() -> None:
    some = [
        Frame(RESPONSE, b"OK"),
        RawMessage(1, 1, b"a" * 16, b"1"),
        Frame(RESPONSE, b"_heartbeat_"),
        Frame(ERROR, b"E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight"),
        RawMessage(2, 1, b"b" * 16, b"2"),
        RawMessage(3, 1, b"c" * 16, b"3"),
        Frame(RESPONSE, b""),
    ]
    messages, others = decoder_of(PLAIN).feed(stream_of(some, PLAIN))
    assert messages == [some[1], some[4], some[5]]
    assert others == [some[0], some[2], some[3], some[6]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_message_at_the_limit(layout: MessageLayout) -> None:
    head = len(encode_message(RawMessage(1, 1, b"a" * 16, b"", EXT_JSON, b"{}"), layout))
    body = b"x" * (LIMIT - 4 - head)
    wire = stream_of([RawMessage(1, 1, b"a" * 16, body, EXT_JSON, b"{}")], layout)
    assert [m.body for m in decoder_of(layout).feed(wire)[0]] == [body]
    with pytest.raises(ProtocolError, match=f"frame of {LIMIT} bytes exceeds"):
        decoder_of(layout, LIMIT - 1).feed(wire)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [0, 1, 2, 3, LIMIT + 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("came", [4, 5, 6, 7, 8, 33, 34, 200])
def test_a_size_out_of_bounds(layout: MessageLayout, size: int, came: int) -> None:
    for frame_type in (RESPONSE, ERROR, MESSAGE):
        data = (size.to_bytes(4) + frame_type.to_bytes(4) + bytes(200))[:came]
        with pytest.raises(ProtocolError, match="^frame (size|of)"):
            decoder_of(layout).feed(data)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("came", [8, 34, 44, 100])
def test_an_unknown_type(layout: MessageLayout, came: int) -> None:
    with pytest.raises(ProtocolError, match="unknown frame type 3"):
        decoder_of(layout).feed((b"\0\0\0\x28\0\0\0\x03" + bytes(100))[:came])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_http_port_is_named(layout: MessageLayout) -> None:
    with pytest.raises(ProtocolError, match="the peer speaks HTTP"):
        decoder_of(layout).feed(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n400")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [0, 1, 25])
@pytest.mark.parametrize("behind", [b"", bytes(100)])
def test_a_message_shorter_than_its_head(layout: MessageLayout, size: int, behind: bytes) -> None:
    wire = encode_frame(MESSAGE, bytes(size))
    for cut in (8, len(wire)):
        with pytest.raises(ProtocolError, match=f"message of {size} bytes is shorter than its"):
            decoder_of(layout).feed(wire[:cut] + behind)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_long_frame_of_another_type_cut_anywhere(layout: MessageLayout) -> None:
    some = [RawMessage(1, 1, b"a" * 16, b"b"), Frame(ERROR, b"E" * 90)]
    wire = stream_of(some, layout)
    for cut in range(len(wire) + 1):
        decoder = decoder_of(layout)
        assert read(decoder, [wire[:cut], wire[cut:]]) == expected(wire, layout)
        assert decoder.tail.missing == 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_message_without_body(layout: MessageLayout) -> None:
    message = RawMessage(1, 1, b"a" * 16, b"")
    (read_back,), _ = decoder_of(layout).feed(stream_of([message], layout))
    assert (read_back.id, read_back.body) == (message.id, b"")


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_a_message_that_ends_within_its_blocks(layout: MessageLayout) -> None:
    wire = encode_frame(MESSAGE, bytes(26))
    with pytest.raises(ProtocolError, match="message ends"):
        decoder_of(layout).feed(wire)


def test_how_much_is_missing() -> None:
    decoder = decoder_of(PLAIN)
    wire = stream_of([RawMessage(1, 1, b"a" * 16, b"x" * 66)], PLAIN)
    assert decoder.tail.missing == 0
    decoder.feed(wire[:3])
    assert decoder.tail.missing == 0  # its size is not known yet
    decoder.feed(wire[3:30])
    assert decoder.tail.missing == 70
    decoder.feed(wire[30:99])
    assert decoder.tail.missing == 1
    decoder.feed(wire[99:])
    assert decoder.tail.missing == 0


def test_a_large_message_is_copied_twice_at_most() -> None:
    size = 4_000_000
    decoder = DeliveryDecoder(PLAIN, object, made, lambda _, message: message)
    wire = stream_of([RawMessage(1, 1, b"a" * 16, bytes(size))], PLAIN)
    reads = [wire[i : i + 65536] for i in range(0, len(wire), 65536)]
    tracemalloc.start()
    try:
        messages = read(decoder, reads)[0]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [len(message.body) for message in messages] == [size]
    assert peak < 2.2 * size
