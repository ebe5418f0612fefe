"""Inputs that were meant to break a parser: each is a value or an error of ours, for ever.

``tests/corpus`` has a file for each parser. An input that ever made one fail in another way is an
entry there from then on, with what has to come of it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import pytest

from nsqsmart.client.messages.message import _read_headers
from nsqsmart.config import Endpoint
from nsqsmart.embedded.broker.ext import BadHeader, BadTraceId, read_header
from nsqsmart.errors import NsqError
from nsqsmart.names import Address, Dialect
from nsqsmart.policy.answers.lookup import parse_lookup, parse_nodes, parse_peers
from nsqsmart.policy.answers.nodes import parse_info, parse_listing
from nsqsmart.policy.answers.stats import parse_stats
from nsqsmart.policy.spool_plan import read_progress
from nsqsmart.wire.answers import decode_error, refused_id
from nsqsmart.wire.command_decoder import CommandDecoder
from nsqsmart.wire.deliveries import DeliveryDecoder
from nsqsmart.wire.frames import FrameDecoder
from nsqsmart.wire.identify import decode_grant
from nsqsmart.wire.messages import MessageLayout, decode_message
from nsqsmart.wire.receipts import decode_receipt
from nsqsmart.wire.spool_records import read_mark, scan
from nsqsmart.wire.streams import DeflateStream, SnappyStream, Stream
from tests.helpers import ROOT

FOLDER = ROOT / "tests" / "corpus"
LIMIT = 4096
LAYOUTS = [MessageLayout(extended=e, detailed=d) for e in (False, True) for d in (False, True)]
_MUTATIONS = 30
_LONG = 2048


class Entry(NamedTuple):
    """One input, and whether it is ``taken`` or ``refused``."""

    parser: str
    name: str
    data: bytes
    outcome: str


def read(path) -> list[Entry]:
    """Parts are pairs of bytes in hex and how often they come."""
    return [
        Entry(
            path.stem,
            each["name"],
            b"".join(bytes.fromhex(part) * times for part, times in each["parts"]),
            each["outcome"],
        )
        for each in json.loads(path.read_text())
    ]


CORPUS = [entry for path in sorted(FOLDER.glob("*.json")) for entry in read(path)]


def first(calls: Iterable[Callable[[], object]]) -> object:
    """What comes of the first of *calls*; the others end in a value or an error of ours too."""
    outcomes: list[object] = []
    for call in calls:
        try:
            outcomes.append(call())
        except NsqError as error:
            outcomes.append(error)
    if isinstance(outcomes[0], NsqError):
        raise outcomes[0]
    return outcomes[0]


# ------------------------------------------------- parsers of streams: the pieces do not matter


def frames(*pieces: bytes) -> object:
    decoder = FrameDecoder(LIMIT)
    return [frame for piece in pieces for frame in decoder.feed(piece)]


def delivered(layout: MessageLayout, pieces: tuple[bytes, ...]) -> object:
    decoder = DeliveryDecoder(layout, object, lambda _, *facts: facts, lambda _, raw: raw, LIMIT)
    return [decoder.feed(piece) for piece in pieces]


def deliveries(*pieces: bytes) -> object:
    return first(partial(delivered, layout, pieces) for layout in LAYOUTS)


def commands(*pieces: bytes) -> object:
    found: list[object] = []
    for dialect in Dialect:
        decoder = CommandDecoder(dialect)
        for piece in pieces:
            decoder.feed(piece)
            while command := decoder.next_command():
                found.append(command)
    return found


def unpacked(make: Callable[[], Stream]) -> Callable[..., object]:
    def unpack(*pieces: bytes) -> object:
        stream, found = make(), []
        for piece in pieces:
            for data in stream.incoming(piece):
                # As its reader does: the bound is that of the frames inside.
                assert len(data) <= 256 * 1024
                found.append(data)
        return b"".join(found)

    return unpack


STREAMS = {
    "frames": frames,
    "deliveries": deliveries,
    "commands": commands,
    "deflate": unpacked(DeflateStream),
    "snappy": unpacked(SnappyStream),
}


# ---------------------------------------------------------------------------- parsers of a whole


def lookups(data: bytes) -> object:
    parsers = (parse_lookup, partial(parse_nodes, topic="t"), parse_peers, parse_listing)
    return first(partial(parse, status, data) for status in (200, 404) for parse in parsers)


def headers(data: bytes) -> object:
    """As a consumer reads them, which never fails, and as an embedded nsqd does."""
    found = _read_headers(data)
    assert isinstance(found, dict)
    try:
        return read_header(data)
    except (BadHeader, BadTraceId) as error:
        raise NsqError("refused") from error


def spool(data: bytes) -> object:
    """A file of the spool, and the record of its progress."""
    return [read_mark(data), scan(data), read_progress(data)]


def addresses(data: bytes) -> object:
    text = data.decode("utf-8", "surrogateescape")
    try:
        return Address.parse(text, 4150)
    except NsqError:
        return Endpoint.parse(text)


WHOLE: dict[str, Callable[[bytes], object]] = {
    "identify": decode_grant,
    "receipts": decode_receipt,
    "errors": lambda data: refused_id(decode_error(data, b"secret")),
    "messages": lambda data: first(partial(decode_message, data, each) for each in LAYOUTS),
    "headers": headers,
    "lookups": lookups,
    "stats": lambda data: first(
        (partial(parse_stats, 200, data, "n:4150"), partial(parse_info, 200, data))
    ),
    "spool": spool,
    "addresses": addresses,
}


def outcome_of(parse: Callable[..., object], *pieces: bytes) -> str:
    """Whatever else is raised is a crash."""
    try:
        parse(*pieces)
    except NsqError:
        return "refused"
    return "taken"


def test_every_parser_has_inputs_and_every_input_a_parser() -> None:
    assert {entry.parser for entry in CORPUS} == {*STREAMS, *WHOLE}
    names = [(entry.parser, entry.name) for entry in CORPUS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("entry", CORPUS, ids=lambda entry: f"{entry.parser}-{entry.name}")
def test_an_input_has_the_outcome_that_is_written_down(entry: Entry) -> None:
    if entry.parser in WHOLE:
        assert outcome_of(WHOLE[entry.parser], entry.data) == entry.outcome
        return
    parse = STREAMS[entry.parser]
    assert outcome_of(parse, entry.data) == entry.outcome
    if len(entry.data) <= _LONG:
        single = [entry.data[at : at + 1] for at in range(len(entry.data))]
        assert outcome_of(parse, *single) == entry.outcome


def mutated(data: bytes, chance: random.Random) -> bytes:
    """*data* with a few bytes changed, doubled, or gone."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(found) + 1)
        kind = chance.randrange(3)
        if kind == 0:
            found[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            del found[at : at + chance.randint(1, 8)]
        else:
            found[at:at] = found[at : at + chance.randint(1, 8)]
    return bytes(found)


@pytest.mark.parametrize("parser", [*STREAMS, *WHOLE])
def test_what_is_like_them_ends_in_a_value_or_an_error_of_ours_too(parser: str) -> None:
    chance = random.Random(parser)
    parse = STREAMS.get(parser) or WHOLE[parser]
    for entry in CORPUS:
        if entry.parser == parser and len(entry.data) <= _LONG:
            for _ in range(_MUTATIONS):
                assert outcome_of(parse, mutated(entry.data, chance)) in {"taken", "refused"}
