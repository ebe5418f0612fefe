"""Envelopes of both kinds, and values of any shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.errors import DiscoveryError
from nsqsmart.policy.answers.documents import (
    count_of,
    dicts_of,
    list_of,
    object_of,
    shown,
    text_of,
    unwrap,
)


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        (200, b'{"topics":[]}', (200, {"topics": []}, "")),
        (404, b'{"message":"NOT_FOUND"}', (404, {"message": "NOT_FOUND"}, "NOT_FOUND")),
        (
            500,
            b'{"status_code":500,"status_txt":"Key not found","data":null}',
            (500, None, "Key not found"),
        ),
        (200, b'{"status_code":404,"status_txt":"NO","data":{}}', (404, {}, "NO")),
        (200, b'{"status_code":"404","status_txt":1,"data":3}', (200, 3, "")),
        (200, b'{"status_code":404}', (200, {"status_code": 404}, "")),
        (200, b"", (200, None, "")),
        (200, b" \n", (200, None, "")),
        (200, b"[1]", (200, [1], "")),
        (400, b'{"message":7}', (400, {"message": 7}, "")),
        (400, b'parsing "x": bad \xff', (400, None, 'parsing "x": bad \ufffd')),
        (400, b"x" * 300, (400, None, "x" * 200)),
    ],
)
def test_what_is_in_an_envelope(status, body, found):
    assert unwrap(status, body) == found


@pytest.mark.parametrize("body", [b"<html>", b"[" * 100_000])
def test_a_success_must_be_json(body):
    with pytest.raises(DiscoveryError, match="not JSON"):
        unwrap(200, body)


@given(st.integers(100, 599), st.binary(max_size=50))
def test_any_bytes_are_read_or_refused(status, body):
    try:
        assert len(unwrap(status, body)) == 3
    except DiscoveryError:
        assert status == 200


@pytest.mark.parametrize("value", [None, 7, 1.5, True, {}, "x", [1], -3])
def test_values_of_the_wrong_shape_are_nothing(value):
    assert text_of(value) == (value if value == "x" else "")
    assert list_of(value) == (value if value == [1] else [])
    assert dicts_of(value) == []
    assert count_of(value) == (7 if value == 7 else 0)


def test_objects_are_picked_out_of_a_list():
    assert dicts_of([{"a": 1}, None, 3, {}]) == [{"a": 1}, {}]


def test_what_a_peer_says_cannot_drive_a_terminal():
    assert shown("  one\x1b[2J\ntwo ") == "one\\x1b[2J\\ntwo"
    assert shown("x" * 300) == "x" * 200


def test_an_object_is_taken_or_what_came_is_told():
    assert object_of(200, b'{"status_code":200,"status_txt":"OK","data":{"a":1}}', "x") == {"a": 1}
    with pytest.raises(DiscoveryError, match="nodes answered 404 'NOT_FOUND'"):
        object_of(404, b'{"message":"NOT_FOUND"}', "nodes")
    with pytest.raises(DiscoveryError, match="stats answered 200 ''"):
        object_of(200, b"[1]", "stats")
