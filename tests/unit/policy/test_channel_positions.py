"""Whether a channel has skipped something, and what to do then."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.errors import DiscoveryError
from nsqsmart.policy.channel_positions import (
    ChannelPosition,
    Finding,
    Remembered,
    judge_position,
    parse_position,
)

CHANNEL = {"channel_name": "c", "depth": 6, "depth_size": 300, "client_num": 1, "backlogs": 6}
TOPIC = {
    "topic_name": "t",
    "topic_partition": "3",
    "depth": 900,
    "backend_start": 40,
    "channels": [CHANNEL],
}


def answer(*topics: object) -> bytes:
    return json.dumps({"topics": list(topics)}).encode()


def test_where_a_channel_stands():
    other = {**TOPIC, "topic_partition": "2", "depth": 1}
    more = {**CHANNEL, "channel_name": "d", "depth_size": 0}
    body = answer(other, {**TOPIC, "channels": [more, CHANNEL]})
    assert parse_position(200, body, 3, "c") == ChannelPosition(40, 900, 600, 6, 1)
    enveloped = json.dumps({"status_code": 200, "data": json.loads(body)}).encode()
    assert parse_position(200, enveloped, 3, "d") == ChannelPosition(40, 900, 900, 6, 1)


def test_who_does_not_know_it():
    assert parse_position(200, answer(TOPIC), 3, "d") is None
    assert parse_position(200, answer(TOPIC), 0, "c") is None
    assert parse_position(200, answer(), 0, "c") is None
    odd = {**TOPIC, "depth": "x", "channels": [{**CHANNEL, "client_num": None}]}
    assert parse_position(200, answer(odd), 3, "c") == ChannelPosition(40, 0, 0, 6, 0)


@pytest.mark.parametrize(("status", "body"), [(500, b"{}"), (200, b"[]"), (200, b"nonsense")])
def test_what_is_no_answer(status, body):
    with pytest.raises(DiscoveryError):
        parse_position(status, body, 0, "c")


def known(lowest=100, unfinished=1, *, finished=False, rewound=False) -> Remembered:
    return Remembered(lowest, unfinished, finished, rewound)


def at(confirmed: int, clients: int = 1, unfinished: int = 5) -> ChannelPosition:
    return ChannelPosition(0, 1000, confirmed, unfinished, clients)


@pytest.mark.parametrize(
    ("memory", "position", "ordered", "choice", "finding"),
    [
        # It stands where it stood, or before that.
        (known(), at(100), True, "auto", Finding.FINE),
        (known(), at(0), True, "auto", Finding.FINE),
        # It has moved beyond what was unfinished.
        (known(), at(101), True, "auto", Finding.REWIND),
        (known(0), at(1000), False, "rewind", Finding.REWIND),
        (known(), at(101), True, "rewind", Finding.REWIND),
        (known(), at(101), False, "auto", Finding.TELL),
        (known(), at(101), True, "warn", Finding.TELL),
        # Another consumer may have finished it, or would get it twice.
        (known(), at(101, clients=2), True, "auto", Finding.TELL),
        (known(), at(101, clients=2), False, "warn", Finding.TELL),
        # A channel with a FIN is not forgotten.
        (known(finished=True), at(101), True, "auto", Finding.FINE),
        (known(finished=True), at(101, clients=2), True, "warn", Finding.FINE),
        (known(finished=True), at(101, clients=2), False, "auto", Finding.FINE),
        (known(finished=True), at(101), False, "auto", Finding.TELL),
        # Once only.
        (known(rewound=True), at(101), True, "auto", Finding.TELL),
        # Without offsets.
        (known(None, 4), at(1000, unfinished=0), False, "auto", Finding.TELL),
        (known(None, 4), at(1000, unfinished=1), False, "auto", Finding.FINE),
        (known(None, 4), at(1000, clients=2, unfinished=0), False, "auto", Finding.FINE),
        (known(None, 0), at(1000, unfinished=0), False, "auto", Finding.FINE),
    ],
)
def test_what_is_to_be_done(memory, position, ordered, choice, finding):
    assert judge_position(memory, position, ordered=ordered, choice=choice) is finding


@given(
    st.builds(
        Remembered,
        st.none() | st.integers(0, 5),
        st.integers(0, 2),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        ChannelPosition,
        st.just(0),
        st.just(5),
        st.integers(0, 5),
        st.integers(0, 2),
        st.integers(0, 3),
    ),
    st.booleans(),
    st.sampled_from(["auto", "rewind", "warn"]),
)
def test_nothing_is_set_back_that_somebody_else_may_have(memory, position, ordered, choice):
    finding = judge_position(memory, position, ordered=ordered, choice=choice)
    if finding is Finding.REWIND:
        assert position.clients <= 1
        assert memory.lowest is not None
        assert position.confirmed > memory.lowest
        assert not memory.finished
        assert not memory.rewound
        assert choice == "rewind" or (ordered and choice == "auto")
