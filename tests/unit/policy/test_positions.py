"""Where a channel may be told to go on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from nsqsmart.errors import ConfigError
from nsqsmart.policy.positions import Gate, gate_of, position_text


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (0, "virtual_queue:0"),
        ((1 << 63) - 1, "virtual_queue:9223372036854775807"),
        ("start", "virtual_queue:0"),
        ("end", "special:-1"),
        ("head", "virtual_queue:0"),
        ("tail", "special:-1"),
        ("special:-1", "special:-1"),
        ("virtual_queue:62", "virtual_queue:62"),
        ("timestamp:1700000000", "timestamp:1700000000"),
        ("msgcount:3", "msgcount:3"),
        (datetime(1970, 1, 1, tzinfo=UTC), "timestamp:0"),
        (datetime(2023, 11, 14, 22, 13, 20, 999_999, UTC), "timestamp:1700000000"),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=1))), "timestamp:3600"),
    ],
)
def test_how_the_server_calls_it(position, text):
    assert position_text(position) == text


@pytest.mark.parametrize(
    "position",
    [
        -1,
        1 << 63,
        "",
        "begin",
        "special:0",
        "virtual_queue:",
        "virtual_queue:-1",
        "virtual_queue:1\n",
        "timestamp:1.5",
        "msgcount:\u0661",
        "virtual_queue:" + "9" * 19,
        datetime(2024, 1, 1),  # noqa: DTZ001 - that it has no zone is the point
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    ],
)
def test_what_is_no_position(position):
    with pytest.raises(ConfigError, match="position"):
        position_text(position)


@pytest.mark.parametrize("position", [None, True, 1.0, b"end"])
def test_a_position_of_the_wrong_type(position):
    with pytest.raises(TypeError, match="must be an int, a str or a datetime"):
        position_text(position)


SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "ordered", "offsets", "admitted"),
    [
        # Stragglers from before the position, then what is there.
        ("special:-1", False, [124, 155, 700, 731, 10], [700, 731, 10]),
        ("virtual_queue:62", False, [31, 62, 93], [62, 93]),
        # One from behind it does no harm, unless order matters.
        ("virtual_queue:62", False, [310, 62, 93], [310, 62, 93]),
        ("virtual_queue:62", True, [310, 62, 93], [62, 93]),
        ("virtual_queue:62", True, [310, 310, 62], [62]),
        # The first one went to another consumer: it goes on all the same.
        ("virtual_queue:62", True, [310, 341], [341]),
        # The log was cleaned: it begins at 40.
        ("virtual_queue:0", True, [40, 71], [40, 71]),
        # Behind the end there is no message to wait for.
        ("virtual_queue:800", True, [831], [831]),
        ("virtual_queue:700", True, [731], [731]),
        ("msgcount:3", True, [5, 1], [5, 1]),
    ],
)
def test_stragglers_are_kept_out(text, ordered, offsets, admitted):
    gate = gate_of(text, 40, 700, ordered=ordered)
    assert not gate.is_open
    assert [offset for offset in offsets if gate.admits(offset, SECOND, 1)] == admitted
    assert gate.is_open


def test_stragglers_from_before_a_time():
    gate = gate_of("timestamp:5", 0, 700, ordered=True)
    times = [4 * SECOND, 5 * SECOND - 1, 5 * SECOND, 4 * SECOND]
    # Behind the first one the server's clocks may differ: nothing is kept out any more.
    assert [gate.admits(0, each, 1) for each in times] == [False, False, True, True]


def test_a_gate_for_everything():
    assert Gate().admits(0, 0, 1)


def test_what_was_given_back_and_comes_again_is_let_in():
    """Another consumer has the first one."""
    gate = gate_of("virtual_queue:62", 0, 700, ordered=True)
    assert not gate.admits(93, SECOND, 1)
    assert gate.is_early(93)
    assert not gate.is_early(62)
    assert not gate.admits(93, SECOND, 1)
    assert gate.admits(93, SECOND, 2)
    assert gate.is_open
