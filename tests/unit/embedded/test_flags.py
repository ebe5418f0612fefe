"""Flags as the Go programs take them."""

from __future__ import annotations

import pytest

from nsqsmart.embedded.serving.flags import Flag, FlagError, address, duration, parse, switch

FLAGS = {
    "size": Flag(int, ""),
    "name": Flag(str, ""),
    "on": Flag(switch, "", switch=True),
    "more": Flag(str, "", repeatable=True),
}


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ([], {}),
        (["--size=5"], {"size": 5}),
        (["-size=5"], {"size": 5}),
        (["--size", "5", "-name", "x"], {"size": 5, "name": "x"}),
        (["-name="], {"name": ""}),
        (["-name", "a=b"], {"name": "a=b"}),
        (["--on"], {"on": True}),
        (["--on", "--size=1"], {"on": True, "size": 1}),
        (["--on=false"], {"on": False}),
        (["-more", "a", "--more=b"], {"more": ["a", "b"]}),
        (["-size=1", "-size=2"], {"size": 2}),
    ],
)
def test_what_is_understood(arguments: list[str], values: dict[str, object]) -> None:
    assert parse(arguments, FLAGS) == values


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--nope"], "flag provided but not defined: -nope"),
        (["--siz=5"], "flag provided but not defined: -siz"),
        (["--size"], "flag needs an argument: -size"),
        (["--size=x"], "invalid value 'x' for flag -size"),
        (["--on=maybe"], "invalid value 'maybe' for flag -on"),
        (["size"], "unexpected argument 'size'"),
        (["--"], "unexpected argument '--'"),
        (["--on", "false"], "unexpected argument 'false'"),
    ],
)
def test_what_is_refused(arguments: list[str], text: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse(arguments, FLAGS)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("1m30s", 90), ("250ms", 0.25), ("1.5h", 5400), ("1000", 1), ("5us", 5e-6)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "5x", "1m 30s", "-5s", "5s!"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration(text)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("127.0.0.1:4150", ("127.0.0.1", 4150)),
        (":0", ("127.0.0.1", 0)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_addresses(text: str, where: tuple[str, int]) -> None:
    assert address(text) == where


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "host:65536", "host:²"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="not host:port"):
        address(text)
