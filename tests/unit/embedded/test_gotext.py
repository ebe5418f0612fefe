"""Go's numbers and strings."""

from __future__ import annotations

import pytest

from nsqsmart.embedded.gotext import (
    GoError,
    atoi,
    byte_list,
    digits,
    parse_bool,
    parse_uint,
    quote,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [(b"0", 0), (b"-1", -1), (b"+7", 7), (b"007", 7), (b"0" * 5000 + b"5", 5), (b"-00", 0)],
)
def test_atoi(text: bytes, number: int) -> None:
    assert atoi(text) == number


@pytest.mark.parametrize("text", [b"", b"-", b"x", b"1.0", b" 1", b"1_0", "²".encode()])
def test_what_is_no_number(text: bytes) -> None:
    with pytest.raises(GoError, match=r"^strconv.Atoi: parsing .*: invalid syntax$"):
        atoi(text)
    with pytest.raises(GoError, match="^strconv.ParseUint: "):
        parse_uint(text)


def test_numbers_have_64_bits() -> None:
    assert atoi(b"9223372036854775807") == 2**63 - 1
    assert atoi(b"-9223372036854775808") == -(2**63)
    assert parse_uint(b"18446744073709551615") == 2**64 - 1
    for text in (b"9223372036854775808", b"-9223372036854775809", b"9" * 9000):
        with pytest.raises(GoError, match="value out of range"):
            atoi(text)
    for text in (b"18446744073709551616", b"9" * 9000):
        with pytest.raises(GoError, match="value out of range"):
            parse_uint(text)
    with pytest.raises(GoError, match="invalid syntax"):
        parse_uint(b"-1")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"", 0),
        (b"12", 12),
        (b"18446744073709551617", 1),
        (b"9" * 5000, int("9" * 4000) * 10**1000 % 2**64 + int("9" * 1000) % 2**64),
        (b"-1", None),
        (b"x", None),
    ],
)
def test_the_servers_own_digits_wrap_around(text: bytes, number: int | None) -> None:
    assert digits(text) == (None if number is None else number % 2**64)


def test_truth() -> None:
    assert parse_bool(b"T") is True
    assert parse_bool(b"0") is False
    with pytest.raises(GoError, match='strconv.ParseBool: parsing "yes": invalid syntax'):
        parse_bool(b"yes")


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        (b'a"b\\', r'"a\"b\\"'),
        (b"\n\t\x00\x7f", r'"\n\t\x00\x7f"'),
        ("é".encode(), '"é"'),
        (b"\xff", r'"\xff"'),
        ("\u200b".encode(), r'"\u200b"'),
    ],
)
def test_quotes(text: bytes, quoted: str) -> None:
    assert quote(text) == quoted


def test_bytes_are_listed_in_decimal() -> None:
    assert byte_list(b"PUB") == "[80 85 66]"
    assert byte_list(b"") == "[]"
