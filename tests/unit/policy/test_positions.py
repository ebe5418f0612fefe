"""Where a channel may be told to go on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from nsqsmart.errors import ConfigError
from nsqsmart.policy.positions import position_text


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (0, "virtual_queue:0"),
        ((1 << 63) - 1, "virtual_queue:9223372036854775807"),
        ("start", "virtual_queue:0"),
        ("end", "special:-1"),
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
