"""Which documents and rates are understood, and which of them counts for a topic."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.errors import ConfigError
from nsqsmart.policy.trace_rates import (
    MAX_DOCUMENT,
    MAX_TOPICS,
    check_rate,
    parse_rates,
    rate_for,
    read_rates,
)


@pytest.mark.parametrize("rate", [0, 1, 0.0, 1.0, 0.01, 5e-324])
def test_a_rate_is_a_share(rate):
    assert check_rate(rate) == rate
    assert type(check_rate(rate)) is float


@pytest.mark.parametrize(
    "rate", [-0.01, 1.01, 2, -1, float("nan"), float("inf"), float("-inf"), 10**400]
)
def test_what_is_no_share_is_refused_and_named(rate):
    with pytest.raises(ConfigError, match=f"the rate must be from 0 to 1, not {str(rate)[:20]}"):
        check_rate(rate, "the rate")


@pytest.mark.parametrize("rate", [True, None, "1", [1.0]])
def test_what_is_no_number_is_refused_by_its_type(rate):
    with pytest.raises(TypeError, match=f"rate must be .*, not {type(rate).__name__}"):
        check_rate(rate)


@pytest.mark.parametrize(
    "document", [{}, {"orders": 1.0, "*": 0.01}, {"a-b_c.d#ephemeral": 0, "*": 1}]
)
def test_a_document_gives_its_rates(document):
    assert read_rates(document) == document
    assert parse_rates(json.dumps(document).encode()) == document


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (None, "not NoneType"),
        ([["orders", 1]], "must be an object of topics and rates, .*not list"),
        ({"orders": 2}, "rate of 'orders' must be from 0 to 1, not 2"),
        ({"orders": True}, "rate of 'orders' must be a number from 0 to 1, not bool"),
        ({"not a topic": 1}, "'not a topic' is neither the name of a topic nor '\\*'"),
        ({"orders*": 1}, "'orders\\*' is neither"),
        ({"": 1}, "'' is neither"),
        ({7: 1}, "7 is neither"),
        ({f"t{number}": 1 for number in range(MAX_TOPICS + 1)}, f"{MAX_TOPICS} are permitted"),
    ],
)
def test_a_bad_document_is_refused_whole(document, reason):
    with pytest.raises(ConfigError, match=reason):
        read_rates(document)


def test_as_many_topics_as_permitted():
    document = {f"t{number}": 1.0 for number in range(MAX_TOPICS)}
    assert read_rates(document) == document


def test_neither_a_secret_nor_a_long_name_is_shown():
    with pytest.raises(ConfigError) as caught:
        read_rates({"password": "hunter2"})
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        read_rates({"x" * 10_000: 1})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"{'orders': 1}", b"\xff\xfe\xfd", b"[" * 100_000, b'{"a": 1e}', b"9" * 5000],
)
def test_what_is_not_json_is_refused(data):
    with pytest.raises(ConfigError, match="it is not JSON"):
        parse_rates(data)


@pytest.mark.parametrize("data", [b'{"a": NaN}', b'{"a": Infinity}', b'{"a": -1}'])
def test_json_knows_numbers_that_are_no_share(data):
    with pytest.raises(ConfigError, match="must be from 0 to 1"):
        parse_rates(data)


def test_a_document_has_a_size():
    padded = b'{"a": 1}'.ljust(MAX_DOCUMENT)
    assert parse_rates(padded) == {"a": 1.0}
    with pytest.raises(ConfigError, match=f"more than {MAX_DOCUMENT} bytes"):
        parse_rates(padded + b" ")


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data):
    with contextlib.suppress(ConfigError):
        parse_rates(data)


@pytest.mark.parametrize(
    ("said", "document", "rate"),
    [
        ({}, {}, 0.0),
        ({"orders": 0.5}, {}, 0.5),
        ({"other": 0.5}, {}, 0.0),
        ({"*": 0.5}, {}, 0.5),
        ({"orders": 0.0, "*": 0.5}, {}, 0.0),
        ({}, {"orders": 0.25}, 0.25),
        ({}, {"*": 0.25}, 0.25),
        ({}, {"orders": 0.0, "*": 0.25}, 0.0),
        ({"orders": 0.5}, {"orders": 0.25, "*": 1.0}, 0.5),
        ({"orders": 0.0}, {"orders": 0.25}, 0.0),
        ({"other": 0.5}, {"orders": 0.25}, 0.25),
        ({"*": 0.0}, {"orders": 0.25}, 0.0),
    ],
)
def test_the_program_comes_before_the_document_and_a_name_before_all(said, document, rate):
    assert rate_for("orders", said, document) == rate
