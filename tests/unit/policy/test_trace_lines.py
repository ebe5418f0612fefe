"""What a line of the trace log holds, to the byte."""

from __future__ import annotations

import json
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.policy.trace_lines import encode_line, make_fields, record_fields, rfc3339

NOW = 1_700_000_000_123_456_789


def test_a_line_is_one_json_object():
    facts = record_fields(2**50 + 2, 2**64 - 1, 2**40, 35)
    fields = make_fields("received", NOW, 77, facts, {"topic": "orders", "error": None})
    assert encode_line(fields) == (
        '{"v":1,"ts":"2023-11-14T22:13:20.123456Z","mono_ns":77,"event":"received",'
        '"nsq_trace_id":"18446744073709551615","nsq_internal_id":"1125899906842626",'
        '"nsq_disk_offset":"1099511627776","nsq_disk_size":35,"topic":"orders"}'
    )


def test_what_is_not_known_is_left_out_and_nothing_is_not_unknown():
    fields = make_fields("published", NOW, 0, record_fields(0, 0, 0, 0), {"partition": 0})
    assert list(fields) == [
        "v",
        "ts",
        "mono_ns",
        "event",
        "nsq_trace_id",
        "nsq_internal_id",
        "nsq_disk_offset",
        "nsq_disk_size",
        "partition",
    ]
    assert fields["nsq_internal_id"] == "0"
    assert "nsq_disk_offset" not in make_fields("x", NOW, 0, record_fields(None, 1, None, None))


def test_later_facts_win():
    assert make_fields("x", NOW, 0, {"a": 1}, {"a": 2})["a"] == 2
    assert make_fields("x", NOW, 0, {"a": 1}, {"a": None})["a"] == 1


@given(st.dictionaries(st.text(), st.text() | st.integers()))
def test_a_line_has_one_line_whatever_is_in_it(facts):
    line = encode_line(facts)
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line) == facts


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (999, "1970-01-01T00:00:00.000000Z"),
        (1000, "1970-01-01T00:00:00.000001Z"),
        (1_709_210_096_999_999_999, "2024-02-29T12:34:56.999999Z"),
    ],
)
def test_times_are_utc_with_microseconds(now, text):
    assert rfc3339(now) == text
    assert datetime.fromisoformat(text).timestamp() == pytest.approx(now / 1e9, abs=2e-6)
