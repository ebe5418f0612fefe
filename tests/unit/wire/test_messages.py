"""Messages: four layouts, the subscription decides which."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.errors import ProtocolError
from nsqsmart.wire import messages
from nsqsmart.wire.messages import (
    EXT_JSON,
    EXT_NONE,
    EXT_TAG,
    PLAIN,
    MessageLayout,
    RawMessage,
    decode_message,
)
from tests.encoding import encode_message, redesigned_id
from tests.helpers import ROOT

VECTORS = json.loads((ROOT / "tests" / "vectors" / "wire.json").read_text())["messages"]
LAYOUTS = [MessageLayout(extended=e, detailed=d) for e in (False, True) for d in (False, True)]

counts = st.integers(0, 2**64 - 1)


@st.composite
def some_messages(draw: st.DrawFn, layout: MessageLayout) -> RawMessage:
    """A message with the blocks that *layout* has, and no other."""
    message = RawMessage(
        draw(counts),
        draw(st.integers(0, 2**16 - 1)),
        draw(st.binary(min_size=16, max_size=16)),
        draw(st.binary(max_size=40)),
    )
    if layout.extended and draw(st.booleans()):
        version = draw(st.sampled_from([EXT_TAG, EXT_JSON, 1, 255]))
        message = message._replace(ext_version=version, ext=draw(st.binary(max_size=30)))
    if layout.detailed:
        message = message._replace(offset=draw(counts), size=draw(st.integers(0, 2**32 - 1)))
    return message


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["frame"][60:])
def test_vectors(vector: dict) -> None:
    layout = MessageLayout(extended=vector["extended"], detailed=vector["detailed"])
    message = RawMessage(
        vector["timestamp"],
        vector["attempts"],
        bytes.fromhex(vector["id"]),
        bytes.fromhex(vector["body"]),
        vector.get("ext_version", EXT_NONE),
        bytes.fromhex(vector["ext"]) if "ext" in vector else None,
        vector.get("offset"),
        vector.get("size"),
    )
    data = bytes.fromhex(vector["frame"])[8:]
    assert decode_message(data, layout) == message
    assert encode_message(message, layout) == data


@pytest.mark.parametrize("layout", LAYOUTS)
@given(st.data())
def test_round_trip(layout: MessageLayout, data: st.DataObject) -> None:
    message = data.draw(some_messages(layout))
    assert decode_message(encode_message(message, layout), layout) == message


def test_the_extension_versions_by_number() -> None:
    assert (EXT_NONE, EXT_TAG, EXT_JSON) == (0, 2, 4)


def test_the_plain_layout_is_the_default() -> None:
    assert MessageLayout(extended=False, detailed=False) == PLAIN
    message = RawMessage(1, 2, b"0123456789abcdef", b"body")
    assert encode_message(message) == encode_message(message, PLAIN)
    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("version", [EXT_NONE, EXT_JSON])
def test_a_message_cut_within_its_head_is_refused(layout: MessageLayout, version: int) -> None:
    ext = b'{"k":"v"}' if version and layout.extended else None
    message = RawMessage(1, 2, b"0123456789abcdef", b"", version if ext else 0, ext, 7, 9)
    data = encode_message(message, layout)
    for length in range(len(data)):
        with pytest.raises(ProtocolError, match="^message (of|ends)"):
            decode_message(data[:length], layout)
    assert decode_message(data, layout).body == b""


@pytest.mark.parametrize(
    ("more", "layout", "complaint"),
    [
        (b"", MessageLayout(extended=True), "before its extension version"),
        (b"\x04", MessageLayout(extended=True), "within its extension header"),
        (b"\x04\x00", MessageLayout(extended=True), "within its extension header"),
        (b"\x04\x00\x01", MessageLayout(extended=True), "within its extension header"),
        (b"\x04\xff\xff" + bytes(65534), MessageLayout(extended=True), "within its extension"),
        (bytes(11), MessageLayout(detailed=True), "within its offset and size"),
        (bytes(12), MessageLayout(extended=True, detailed=True), "within its offset and size"),
    ],
)
def test_what_is_missing_is_named(more: bytes, layout: MessageLayout, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode_message(bytes(26) + more, layout)


def test_a_short_head_is_measured() -> None:
    with pytest.raises(ProtocolError, match="message of 25 bytes is shorter than its head"):
        decode_message(bytes(25))
    assert decode_message(bytes(26)).body == b""


def test_the_longest_extension_header() -> None:
    layout = MessageLayout(extended=True)
    message = RawMessage(1, 2, b"0123456789abcdef", b"b", EXT_JSON, b"x" * 65535)
    assert decode_message(encode_message(message, layout), layout) == message


def test_what_the_layout_has_no_room_for_is_left_out() -> None:
    message = RawMessage(1, 2, b"0123456789abcdef", b"b", EXT_JSON, b"{}", 3, 4)
    assert decode_message(encode_message(message)) == (1, 2, message.id, b"b", 0, None, None, None)


def test_what_the_layout_asks_for_and_is_not_there_is_zero() -> None:
    layout = MessageLayout(extended=True, detailed=True)
    message = RawMessage(1, 2, b"0123456789abcdef", b"b", EXT_TAG)
    read = decode_message(encode_message(message, layout), layout)
    assert read == message._replace(ext=b"", offset=0, size=0)


@given(st.binary(max_size=60), st.sampled_from(LAYOUTS))
def test_garbage_is_a_message_or_an_error_of_ours(data: bytes, layout: MessageLayout) -> None:
    try:
        message = decode_message(data, layout)
    except ProtocolError:
        return
    assert encode_message(message, layout) == data


def test_the_halves_of_an_id() -> None:
    message_id = bytes.fromhex("000c0000000000020000000000000007")
    assert messages.internal_id(message_id) == (3 << 50) | 2
    assert messages.trace_id(message_id) == 7
    assert messages.partition_of(message_id) == 3
    assert redesigned_id((3 << 50) | 2, 7) == message_id
    assert redesigned_id(1) == bytes(7) + b"\x01" + bytes(8)


@given(st.integers(0, 1023), st.integers(0, 2**50 - 1), counts)
def test_ids_are_put_together_and_taken_apart(partition: int, counter: int, trace: int) -> None:
    internal = partition << 50 | counter
    message_id = redesigned_id(internal, trace)
    assert len(message_id) == messages.ID_SIZE
    assert messages.partition_of(message_id) == partition
    assert (messages.internal_id(message_id), messages.trace_id(message_id)) == (internal, trace)


def test_the_bits_above_the_partition_do_not_count() -> None:
    assert messages.partition_of(b"\xff" * 16) == 1023
    assert messages.partition_of(b"\xf0" + bytes(15)) == 0
