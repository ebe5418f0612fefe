"""The server half: lines and bodies of a client, by the rules of either dialect."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.errors import ProtocolError
from nsqsmart.names import Dialect
from nsqsmart.wire import commands
from nsqsmart.wire.command_decoder import MAX_LINE, CommandDecoder, CommandLine, LineTooLong
from tests.helpers import ROOT

DOCUMENT = json.loads((ROOT / "tests" / "vectors" / "wire.json").read_text())
VECTORS = [
    pytest.param(Dialect(dialect), vector, id=f"{dialect}-{vector.get('name') or vector['call']}")
    for vector in DOCUMENT["lines"] + DOCUMENT["commands"]
    for dialect in vector["dialects"]
]
ORIGINAL, REDESIGNED = Dialect.ORIGINAL, Dialect.REDESIGNED
BOTH = pytest.mark.parametrize("dialect", list(Dialect))
ACKS = (b"FIN", b"REQ")
WITH_BODY = {"IDENTIFY", "AUTH", "DPUB"} | {
    f"{verb}{suffix}" for verb in ("PUB", "MPUB") for suffix in ("", "_TRACE", "_EXT")
}

# Bytes with a meaning in a protocol are frequent in them.
raw_ids = st.lists(st.sampled_from(b"\n \r\0FINx0\xff"), min_size=16, max_size=16).map(bytes)
hex_ids = st.from_regex(rb"[0-9a-f]{16}", fullmatch=True)
# A few words and loose bytes, so that half of a stream nearly means something.
noise = st.lists(
    st.sampled_from(
        [b"FIN", b"FIN ", b"REQ ", b"TOUCH", b"TOUCH ", b"TOUC", b"FI", b"NOP\n", b"RDY 1\n"]
        + [b"\n", b"\n", b" ", b"\r\n", b"\0", b"0123456789abcdef", b"FIN 0123456789abcdef\n"]
    ),
    max_size=30,
).map(b"".join)


def pieces(data: bytes, cuts: set[int]) -> list[bytes]:
    """*data* cut at these positions, as far as it reaches."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def value(stored: str) -> bytes:
    """A token as the file stores it: bytes that are no text are written as hex:..."""
    raw = stored.startswith("hex:")
    return bytes.fromhex(stored.removeprefix("hex:")) if raw else stored.encode()


def lines(decoder: CommandDecoder) -> list[CommandLine]:
    """All commands that have come."""
    return list(iter(decoder.next_command, None))


def lines_with_fins(decoder: CommandDecoder) -> list[CommandLine]:
    """Commands decoded with runs of FIN in one sweep."""
    found: list[CommandLine] = []
    while True:
        ids = decoder.take_fins()
        found += [CommandLine(b"FIN", (each,)) for each in ids]
        command = decoder.next_command()
        if command is None:
            return found
        found.append(command)


def read(
    dialect: Dialect,
    reads: list[bytes],
    drain: Callable[[CommandDecoder], list[CommandLine]] = lines,
) -> tuple[list[CommandLine], bytes]:
    decoder = CommandDecoder(dialect)
    found = []
    for data in reads:
        decoder.feed(data)
        found += drain(decoder)
    return found, decoder.take_rest()


def as_the_server_reads(dialect: Dialect, stream: bytes) -> tuple[list[CommandLine], bytes]:
    """The decoder again, as a blocking reader, by protocol#lines and protocol#binary-ids."""
    reader, found = io.BytesIO(stream), []
    while True:
        start = reader.tell()
        line = reader.readline()
        if dialect is REDESIGNED and line.endswith(b"\n") and line.startswith((*ACKS, b"TOUCH")):
            command = binary_command(line, reader)
        else:
            verb, *params = line[:-1].removesuffix(b"\r").split(b" ")
            command = CommandLine(verb, tuple(params)) if line.endswith(b"\n") else None
        if command is None:
            return found, stream[start:]
        found.append(command)


def binary_command(line: bytes, reader: io.BytesIO) -> CommandLine | None:
    """An acknowledgement whose first line is *line*; None if the stream ends within it."""
    if line.startswith(b"TOUCH"):
        line += reader.read(max(0, 23 - len(line)))
        return CommandLine(b"TOUCH", (line[6:22],)) if len(line) >= 23 else None
    if len(line) < 21:
        line += reader.read(20 - len(line))
        line += reader.readline()
    if len(line) < 21 or not line.endswith(b"\n"):
        return None
    timeout = (line[21:-1],) if line.startswith(b"REQ") and len(line) > 21 else ()
    return CommandLine(line[:3], (line[4:20], *timeout))


@pytest.mark.parametrize(("dialect", "vector"), VECTORS)
def test_vectors(dialect: Dialect, vector: dict) -> None:
    wire, rest = bytes.fromhex(vector["hex"]), bytes.fromhex(vector["rest"])
    expected = CommandLine(vector["verb"].encode(), tuple(map(value, vector["params"])))
    for cut in range(len(wire) + 1):
        decoder = CommandDecoder(dialect)
        decoder.feed(wire[:cut])
        command = decoder.next_command()
        if cut < len(wire) - len(rest):
            assert command is None
            assert decoder.buffered == cut
        decoder.feed(wire[cut:])
        assert (command or decoder.next_command()) == expected
        assert decoder.take_rest() == rest
        assert decoder.buffered == 0


@BOTH
@given(noise, st.sets(st.integers(0, 500)))
def test_the_cut_of_a_stream_does_not_matter(
    dialect: Dialect, stream: bytes, cuts: set[int]
) -> None:
    expected = as_the_server_reads(dialect, stream)
    single = [stream[i : i + 1] for i in range(len(stream))]
    for reads in ([stream], pieces(stream, cuts), single):
        assert read(dialect, reads) == expected
        assert read(dialect, reads, lines_with_fins) == expected


@pytest.mark.parametrize(
    ("dialect", "some_ids"), [(ORIGINAL, hex_ids), (REDESIGNED, raw_ids | st.binary())]
)
@given(st.data())
def test_ids_come_back_whatever_they_hold(
    dialect: Dialect, some_ids: st.SearchStrategy[bytes], data: st.DataObject
) -> None:
    full = st.lists(some_ids.map(lambda each: each[:16].ljust(16, b"\n")), max_size=12)
    stream, expected = b"", []
    for message_id in data.draw(full):
        wire, command = data.draw(
            st.sampled_from(
                [
                    (commands.fin(message_id), CommandLine(b"FIN", (message_id,))),
                    (commands.fin(message_id), CommandLine(b"FIN", (message_id,))),
                    (commands.req(message_id, 1500), CommandLine(b"REQ", (message_id, b"1500"))),
                    (commands.touch(message_id), CommandLine(b"TOUCH", (message_id,))),
                    (commands.NOP, CommandLine(b"NOP")),
                ]
            )
        )
        stream += wire
        expected.append(command)
    for reads in (
        [stream],
        pieces(stream, data.draw(st.sets(st.integers(0, 500)))),
        [stream[i : i + 1] for i in range(len(stream))],
    ):
        assert read(dialect, reads) == (expected, b"")
        assert read(dialect, reads, lines_with_fins) == (expected, b"")


tokens = st.from_regex(r"[a-z0-9._-]{1,12}", fullmatch=True)
partitions = st.none() | st.integers(0, 1023)
bodies = st.binary(max_size=40)
counts = st.integers(0, 2**64 - 1)
millis = st.integers(0, 10**7)
publishes = {
    ORIGINAL: st.one_of(
        st.builds(commands.identify, bodies),
        st.builds(commands.auth, bodies),
        st.builds(commands.pub, tokens, bodies),
        st.builds(commands.dpub, tokens, bodies, millis),
        st.builds(commands.mpub, tokens, st.lists(bodies, max_size=4)),
        st.builds(commands.sub, tokens, tokens),
        st.builds(commands.rdy, st.integers(0, 2500)),
        st.builds(commands.fins, st.lists(hex_ids, min_size=1, max_size=5)),
    ),
    REDESIGNED: st.one_of(
        st.builds(commands.pub, tokens, bodies, partitions),
        st.builds(commands.pub_trace, tokens, bodies, counts, partitions),
        st.builds(commands.pub_ext, tokens, bodies, bodies, partitions),
        st.builds(commands.mpub, tokens, st.lists(bodies, max_size=4), partitions),
        st.builds(
            commands.mpub_trace, tokens, st.lists(st.tuples(counts, bodies), max_size=3), partitions
        ),
        st.builds(
            commands.mpub_ext, tokens, st.lists(st.tuples(bodies, bodies), max_size=3), partitions
        ),
        st.builds(commands.sub, tokens, tokens, partitions),
        st.builds(commands.sub_ordered, tokens, tokens, partitions),
        st.builds(commands.sub_advanced, tokens, tokens, partitions, st.none() | tokens),
        st.builds(
            commands.internal_create_topic, tokens, st.integers(0, 9), extended=st.booleans()
        ),
        st.builds(commands.fins, st.lists(raw_ids, min_size=1, max_size=5)),
    ),
}


def serve(decoder: CommandDecoder, seen: list[bytes]) -> Iterator[None]:
    """Write every command anew with its values; yields to be called when more has come."""
    while True:
        while (command := decoder.next_command()) is None:
            yield
        verb = command.verb.decode()
        if verb not in WITH_BODY:
            seen.append(rebuild_line(verb, command))
            continue
        while (length := decoder.take(4)) is None:
            yield
        while (body := decoder.take(int.from_bytes(length))) is None:
            yield
        seen.append(rebuild(verb, [each.decode() for each in command.params], body))


def rebuild(verb: str, params: list[str], body: bytes) -> bytes:
    if verb in {"IDENTIFY", "AUTH"}:
        return {"IDENTIFY": commands.identify, "AUTH": commands.auth}[verb](body)
    topic, *more = params
    partition = int(more[0]) if more else None
    if verb == "DPUB":
        return commands.dpub(topic, body, int(more[0]))
    if verb == "PUB":
        return commands.pub(topic, body, partition)
    if verb == "PUB_TRACE":
        return commands.pub_trace(topic, body[8:], int.from_bytes(body[:8]), partition)
    if verb == "PUB_EXT":
        end = 2 + int.from_bytes(body[:2])
        return commands.pub_ext(topic, body[end:], body[2:end], partition)
    return rebuild_batch(verb, topic, body, partition)


def rebuild_batch(verb: str, topic: str, body: bytes, partition: int | None) -> bytes:
    reader = io.BytesIO(body)
    count = int.from_bytes(reader.read(4))
    entries = [reader.read(int.from_bytes(reader.read(4))) for _ in range(count)]
    assert reader.read() == b""
    if verb == "MPUB":
        return commands.mpub(topic, entries, partition)
    if verb == "MPUB_TRACE":
        pairs = [(int.from_bytes(each[:8]), each[8:]) for each in entries]
        return commands.mpub_trace(topic, pairs, partition)
    sizes = [2 + int.from_bytes(each[:2]) for each in entries]
    split = [(each[2:end], each[end:]) for each, end in zip(entries, sizes, strict=True)]
    return commands.mpub_ext(topic, split, partition)


def rebuild_line(verb: str, command: CommandLine) -> bytes:
    """Write a command without body anew."""
    if verb == "FIN":
        return commands.fin(*command.params)
    params = [each.decode() for each in command.params]
    if verb == "RDY":
        return commands.rdy(int(params[0]))
    if verb == "INTERNAL_CREATE_TOPIC":
        return commands.internal_create_topic(params[0], int(params[1]), extended=len(params) > 2)
    topic, channel, *more = params
    partition = int(more[0]) if more else None
    if verb == "SUB_ADVANCED":
        return commands.sub_advanced(topic, channel, partition, *more[1:])
    build = {"SUB": commands.sub, "SUB_ORDERED": commands.sub_ordered}[verb]
    return build(topic, channel, partition)


@BOTH
@given(st.data())
def test_round_trip_of_every_command(dialect: Dialect, data: st.DataObject) -> None:
    stream = b"".join(data.draw(st.lists(publishes[dialect], max_size=5)))
    cuts = data.draw(st.sets(st.integers(0, 800)))
    single = [stream[i : i + 1] for i in range(len(stream))]
    for reads in ([stream], pieces(stream, cuts), single):
        decoder, seen = CommandDecoder(dialect), []
        server = serve(decoder, seen)
        for each in reads:
            decoder.feed(each)
            next(server)
        assert b"".join(seen) == stream
        assert decoder.buffered == 0


@BOTH
def test_a_body_is_taken_when_it_has_come(dialect: Dialect) -> None:
    wire = commands.pub("t", b"FIN 0123456789abcdef\n")
    decoder = CommandDecoder(dialect)
    for i in range(6):
        assert decoder.next_command() is None
        decoder.feed(wire[i : i + 1])
    assert decoder.next_command() == (b"PUB", (b"t",))
    for i in range(6, 10):
        assert decoder.take(4) is None
        decoder.feed(wire[i : i + 1])
    assert decoder.take(4) == (21).to_bytes(4)
    for i in range(10, len(wire)):
        assert decoder.take(21) is None
        assert decoder.buffered == i - 10
        decoder.feed(wire[i : i + 1])
    assert decoder.take(21) == b"FIN 0123456789abcdef\n"
    assert decoder.take(0) == b""
    assert decoder.take(1) is None
    assert decoder.take_rest() == b""


def test_lines_end_where_the_servers_buffers_end() -> None:
    assert MAX_LINE == {ORIGINAL: 16384, REDESIGNED: 4096}


@pytest.mark.parametrize("head", [b"PUB ", b"FIN ", b"FIN \n", b"REQ ", b"TOUCH "])
@pytest.mark.parametrize(("dialect", "limit"), [(ORIGINAL, 16384), (REDESIGNED, 4096)])
@pytest.mark.parametrize("before", [b"", b"NOP\n"])
def test_the_longest_line(dialect: Dialect, limit: int, head: bytes, before: bytes) -> None:
    if dialect is ORIGINAL and b"\n" in head:
        head = b"FIN "
    line = head.ljust(limit - 1, b"x")
    for reads in ([line + b"\n"], [line, b"\n"]):
        decoder = CommandDecoder(dialect)
        decoder.feed(before)
        assert len(lines(decoder)) == bool(before)
        (command,), rest = read_on(decoder, reads)
        assert command.verb == head.split()[0]
        assert rest == b""
    for reads in ([line + b"x\n"], [line + b"x"], [line, b"x"], [line, b"x\n"]):
        decoder = CommandDecoder(dialect)
        decoder.feed(before)
        assert len(lines(decoder)) == bool(before)
        with pytest.raises(LineTooLong, match=f"command line exceeds {limit} bytes"):
            read_on(decoder, reads)


def read_on(decoder: CommandDecoder, reads: Iterable[bytes]) -> tuple[list[CommandLine], bytes]:
    found = []
    for each in reads:
        decoder.feed(each)
        found += lines(decoder)
    return found, decoder.take_rest()


@BOTH
def test_a_client_without_line_ends_is_cut_off(dialect: Dialect) -> None:
    decoder = CommandDecoder(dialect)
    endless = (b"x" * 100 for _ in range(1000))
    with pytest.raises(ProtocolError):
        read_on(decoder, endless)
    assert decoder.buffered < MAX_LINE[dialect] + 100


@BOTH
def test_an_http_request_is_two_lines(dialect: Dialect) -> None:
    found, _ = read(dialect, [b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"])
    assert found == [
        (b"GET", (b"/ping", b"HTTP/1.1")),
        (b"Host:", (b"x",)),
        (b"", ()),
    ]


@pytest.mark.parametrize(
    ("dialect", "stream", "taken", "left"),
    [
        (ORIGINAL, b"", 0, 0),
        (ORIGINAL, b"FIN 0123456789abcdef", 0, 20),
        (ORIGINAL, b"FIN 0123456789abcdef\n", 1, 0),
        (ORIGINAL, b"FIN 0123456789abcdef\n" * 3 + b"FIN 01", 3, 6),
        (ORIGINAL, b"FIN 0123456789abcdef\n" * 2 + b"RDY 1\n" * 4, 2, 24),
        (ORIGINAL, b"RDY 1\n" * 4, 0, 24),
        (ORIGINAL, b"FIN 0123456789abcde\n" * 2, 0, 40),
        (ORIGINAL, b"FIN 0123456789abcdefg\n", 0, 22),
        (ORIGINAL, b"FIN 0123 56789abcdef\n", 0, 21),
        (ORIGINAL, b"FIN 0123\n56789abcdef\n", 0, 21),
        (ORIGINAL, b"FIN 0123456789abcde\r\n", 0, 21),
        (REDESIGNED, b"FIN 0123456789abcdefg\n", 0, 22),
        (REDESIGNED, b"FIN 0123 56789abcdef\n", 1, 0),
        (REDESIGNED, b"FIN " + b"\n" * 17, 1, 0),
        (REDESIGNED, b"FINX0123456789abcdef\n", 0, 21),
        (REDESIGNED, b"FIN 0123456789abcdef\nFINX0123456789abcdef\n", 1, 21),
        (REDESIGNED, b"REQ 0123456789abcdef\n", 0, 21),
    ],
)
def test_a_run_of_fins(dialect: Dialect, stream: bytes, taken: int, left: int) -> None:
    decoder = CommandDecoder(dialect)
    decoder.feed(stream)
    ids = decoder.take_fins()
    assert ids == [stream[21 * i + 4 : 21 * i + 20] for i in range(taken)]
    assert decoder.buffered == left
    decoder.feed(b"more")  # nothing may still look at the buffer
    assert decoder.take_rest() == stream[21 * taken :] + b"more"


def test_a_client_always_one_byte_ahead_does_not_fill_the_memory() -> None:
    decoder = CommandDecoder(ORIGINAL)
    decoder.feed(b"N")
    for _ in range(30_000):
        decoder.feed(b"OP\nN")
        assert decoder.next_command() == (b"NOP", ())
        assert len(decoder._buffer) <= 65536 + 4
    assert decoder.buffered == 1
