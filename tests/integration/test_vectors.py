"""Every server vector, in every dialect it is about, against the embedded servers."""

from __future__ import annotations

import json

import pytest

from nsqsmart.embedded.nsqd.refusals import CommandRefused
from tests.helpers import ROOT
from tests.integration.vector_values import agrees, frame_agrees
from tests.integration.vectors import Bench, ByHand

VECTORS = json.loads((ROOT / "tests" / "vectors" / "servers.json").read_text())["vectors"]
PAIRS = [(vector, dialect) for vector in VECTORS for dialect in vector["dialects"]]


def local_write_error(bench: Bench) -> None:
    """A failure that is the node's own keeps its text."""
    plain_topic(bench)
    text = "ErrType:7 ErrCode:1 : local boom"
    the_shard(bench).refusal = lambda: CommandRefused("E_PUB_FAILED", text, fatal=False)


def consuming_disabled(bench: Bench) -> None:
    """The node led, lost the lead and has it again, all but for this."""
    plain_topic(bench)
    the_shard(bench).consumable = False


def second_partition_unregistered(bench: Bench) -> None:
    cluster = bench.start_cluster(nsqds=1, lookupds=1)
    cluster.create_topic("t", partitions=2)
    cluster.create_channel("t", "ch")
    cluster.set_writable("t", 1, False)


def two_topics(bench: Bench) -> None:
    cluster = bench.start_cluster(nsqds=1, lookupds=1)
    cluster.create_topic("t")
    cluster.create_topic("tx")


def second_lookupd(bench: Bench) -> None:
    bench.lookupd = bench.start_cluster(nsqds=1, lookupds=2).lookupds[1]


def one_topic(bench: Bench) -> None:
    bench.start_cluster(nsqds=1, lookupds=1).create_topic("t")


def plain_topic(bench: Bench) -> None:
    actions = [{"topic": "t"}, {"connect": "c"}]
    bench.start(actions)
    bench.vector = bench.vector | {"given": actions}
    for action in actions:
        bench.give(action)


def the_shard(bench: Bench):
    assert bench.program is not None
    return bench.program.topics.local()[0]


BY_HAND: dict[str, ByHand] = {
    "T084": local_write_error,
    "T106": consuming_disabled,
    "H65": second_partition_unregistered,
    "H77": two_topics,
    "H82": second_lookupd,
    "H86": one_topic,
}


@pytest.mark.parametrize(
    ("vector", "dialect"), PAIRS, ids=[f"{vector['id']}-{dialect}" for vector, dialect in PAIRS]
)
def test_the_embedded_servers_answer_as_real_ones(vector, dialect, tmp_path) -> None:
    by_hand = BY_HAND[vector["id"]] if vector.get("by_hand") else None
    with Bench(vector, dialect, tmp_path) as bench:
        bench.play(by_hand)


NOW = 1_800_000_000_000_000_000
STAMP = NOW.to_bytes(8)


@pytest.mark.parametrize(
    ("data", "template", "known", "same"),
    [
        (b"\x01\x02", "0102", None, True),
        (b"\x01\x02\x03", "0102", None, False),
        (STAMP + b"a", "<ts:8>61", None, True),
        (bytes(8) + b"a", "<ts:8>61", None, False),
        (b"x" * 16, "<id:16>", None, True),
        (b"x" * 16, "<id:16>", b"x" * 16, True),
        (b"x" * 16, "<id:16>", b"y" * 16, False),
        (b"0123456789abcdef", "<hexid:16>", None, True),
        (b"0123456789ABCDEF", "<hexid:16>", None, False),
    ],
)
def test_frames_are_compared(data, template, known, same) -> None:
    assert frame_agrees(data, template, NOW, known) is same


@pytest.mark.parametrize(
    ("value", "template", "same"),
    [
        ({"a": 1}, {"a": "<int>"}, True),
        ({"a": True}, {"a": "<int>"}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ([1, 2], [2, 1], False),
        ([1, 2], {"<set>": [2, 1]}, True),
        ([1, 1], {"<set>": [2, 1]}, False),
        ("0.3.7-HA.1", "<version>", True),
        ("1.3.0", "<version>", False),
        ("12", "<digits>", True),
        (12, "<str>", False),
        (1, True, False),
        (None, [], False),
    ],
)
def test_documents_are_compared(value, template, same) -> None:
    assert agrees(value, template, "redesigned") is same
