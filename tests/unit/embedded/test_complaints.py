"""The words of a parser that gave up."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.embedded.broker.complaints import complaint


@pytest.mark.parametrize(
    ("data", "why", "tail"),
    [
        (b"", "cannot parse empty string", ""),
        (b"{", "cannot parse object: missing '}'", ""),
        (b"{x}", 'cannot parse object: cannot find opening \'"" for object key', "x}"),
        (b'{"a', "cannot parse object: cannot parse object key: missing closing '\"'", ""),
        (b'{"a" 1', "cannot parse object: missing ':' after object key", "1"),
        (b'{"a":"b"', "cannot parse object: unexpected end of object", ""),
        (b'{"a":1 2}', "cannot parse object: missing ',' after object value", "2}"),
        (
            b'{"a":tru}',
            'cannot parse object: cannot parse object value: unexpected value found: "tru}"',
            "tru}",
        ),
        (b"[", "cannot parse array: missing ']'", ""),
        (b"[1", "cannot parse array: unexpected end of array", ""),
        (b"[1 2]", "cannot parse array: missing ',' after array value", "2]"),
        (
            b"[1,]",
            "cannot parse array: cannot parse array value: "
            'cannot parse number: unexpected char: "]"',
            "]",
        ),
        (b'"a\\"', "cannot parse string: missing closing '\"'", ""),
        (b"-x", 'cannot parse number: unexpected char: "-"', "-x"),
    ],
)
def test_why_and_where(data: bytes, why: str, tail: str) -> None:
    assert complaint(data) == f'cannot parse JSON: {why}; unparsed tail: "{tail}"'


def test_a_long_tail_is_shown_from_both_ends() -> None:
    text = complaint(b"1 " + b"a" * 60 + b"b" * 60)
    assert text == 'unexpected tail: "' + "a" * 40 + "..." + "b" * 40 + '"'


def test_nesting_has_an_end() -> None:
    assert "too big depth for the nested JSON; it exceeds 300" in complaint(b"[" * 400)


@given(st.text(alphabet='{}[]",:\\ tfn1-ex'))
def test_every_text_that_is_no_json_gets_some_words(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        assert complaint(text.encode())
