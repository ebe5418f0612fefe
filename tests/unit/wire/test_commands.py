"""Commands: every builder against bytes that a server took."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.wire import commands
from tests.helpers import ROOT

VECTORS = json.loads((ROOT / "tests" / "vectors" / "wire.json").read_text())["commands"]

ids = st.binary(min_size=16, max_size=16)
partitions = st.none() | st.integers(0, 1023)


def value(stored: object) -> object:
    """An argument as the file stores it: bytes are written as hex:..."""
    if isinstance(stored, str) and stored.startswith("hex:"):
        return bytes.fromhex(stored.removeprefix("hex:"))
    return [value(each) for each in stored] if isinstance(stored, list) else stored


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v['call']}-{v['hex'][-20:]}")
def test_vectors(vector: dict) -> None:
    build = getattr(commands, vector["call"])
    arguments = [value(each) for each in vector["args"]]
    assert build(*arguments, **vector.get("kwargs", {})).hex() == vector["hex"]


def test_every_builder_has_a_vector() -> None:
    builders = {
        name
        for name, each in vars(commands).items()
        if callable(each) and not name.startswith("_") and each.__module__ == commands.__name__
    }
    parts = {"prefix", "with_body", "batch", "traced_body"}
    assert builders - parts == {vector["call"] for vector in VECTORS}


def test_constants() -> None:
    assert commands.MAGIC_V2 == bytes.fromhex("20205632")
    assert commands.MAGIC_V1 == bytes.fromhex("20205631")
    assert commands.NOP == b"NOP\n"
    assert commands.CLS == b"CLS\n"


def test_a_line_is_made_once_for_many_messages() -> None:
    line = commands.prefix("PUB", "t", 3)
    assert line == b"PUB t 3\n"
    assert commands.prefix("PUB", "t") == b"PUB t\n"
    assert commands.with_body(line, b"body") == commands.pub("t", b"body", 3)
    line = commands.prefix("PUB_TRACE", "t", 3)
    assert commands.traced_body(line, b"body", 9) == commands.pub_trace("t", b"body", 9, 3)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (commands.pub("t", b"", None), b"PUB t\n"),
        (commands.pub_trace("t", b"", 0), b"PUB_TRACE t\n"),
        (commands.pub_ext("t", b"", b"{}"), b"PUB_EXT t\n"),
        (commands.mpub("t", []), b"MPUB t\n"),
        (commands.mpub_trace("t", []), b"MPUB_TRACE t\n"),
        (commands.mpub_ext("t", []), b"MPUB_EXT t\n"),
        (commands.sub("t", "c"), b"SUB t c\n"),
        (commands.sub_ordered("t", "c"), b"SUB_ORDERED t c\n"),
    ],
)
def test_without_partition_there_is_no_token_and_no_space(line: bytes, expected: bytes) -> None:
    assert line.startswith(expected)


@pytest.mark.parametrize(
    ("partition", "expected"),
    [(None, b"SUB_ADVANCED t c 0 special:-1\n"), (3, b"SUB_ADVANCED t c 3 special:-1\n")],
)
def test_a_start_needs_a_partition_token(partition: int | None, expected: bytes) -> None:
    assert commands.sub_advanced("t", "c", partition, "special:-1") == expected


@given(st.lists(st.binary(max_size=30), max_size=20), partitions)
def test_a_batch_is_what_it_counts(bodies: list[bytes], partition: int | None) -> None:
    line, _, rest = commands.mpub("t", bodies, partition).partition(b"\n")
    assert line == (b"MPUB t" if partition is None else b"MPUB t %d" % partition)
    length, count = struct.unpack_from(">II", rest)
    assert length == len(rest) - 4
    assert count == len(bodies)
    assert rest[8:] == b"".join(len(body).to_bytes(4) + body for body in bodies)


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.binary(max_size=9)), max_size=9))
def test_a_traced_batch_is_a_batch_of_ids_and_bodies(entries: list[tuple[int, bytes]]) -> None:
    plain = [trace.to_bytes(8) + body for trace, body in entries]
    traced = commands.mpub_trace("t", iter(entries), 1)
    assert traced == commands.mpub("t", plain, 1).replace(b"MPUB t", b"MPUB_TRACE t", 1)


@given(st.lists(st.tuples(st.binary(max_size=300), st.binary(max_size=9)), max_size=9))
def test_an_extended_batch_is_a_batch_of_headers_and_bodies(
    entries: list[tuple[bytes, bytes]],
) -> None:
    plain = [len(ext).to_bytes(2) + ext + body for ext, body in entries]
    extended = commands.mpub_ext("t", iter(entries), 1)
    assert extended == commands.mpub("t", plain, 1).replace(b"MPUB t", b"MPUB_EXT t", 1)


@given(st.lists(ids, min_size=1, max_size=20))
def test_many_fins_are_one_after_the_other(message_ids: list[bytes]) -> None:
    assert commands.fins(message_ids) == b"".join(map(commands.fin, message_ids))


@given(ids)
def test_ids_never_pass_through_text(message_id: bytes) -> None:
    assert commands.fin(message_id) == b"FIN " + message_id + b"\n"
    assert commands.req(message_id) == b"REQ " + message_id + b" 0\n"
    assert commands.req(message_id, 90_000) == b"REQ " + message_id + b" 90000\n"
    assert commands.touch(message_id) == b"TOUCH " + message_id + b"\n"


def test_a_header_beyond_two_bytes_of_length_cannot_be_written() -> None:
    assert len(commands.pub_ext("t", b"b", b"x" * 65535)) == len("PUB_EXT t\n") + 6 + 65535 + 1
    with pytest.raises(struct.error):
        commands.pub_ext("t", b"b", b"x" * 65536)
