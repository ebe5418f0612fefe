"""The JSON header of an extended message."""

from __future__ import annotations

import json

import pytest

from nsqsmart.wire.ext import encode_header


def test_nothing_to_say_is_no_header() -> None:
    assert encode_header(None) == b""
    assert encode_header({}) == b""


def test_tag_and_trace_id_stand_beside_the_callers_headers() -> None:
    header = encode_header({"a": "ü", "n": 1}, tag="red", trace_id=2**64 - 1)
    assert json.loads(header) == {
        "a": "ü",
        "n": 1,
        "##client_dispatch_tag": "red",
        # A number would be refused (protocol#pub_ext).
        "##trace_id": "18446744073709551615",
    }
    assert b" " not in header
    assert "ü".encode() in header


def test_trace_id_zero_is_one_too() -> None:
    assert encode_header(None, trace_id=0) == b'{"##trace_id":"0"}'


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_what_json_cannot_say_is_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        encode_header({"a": value})
