"""Names that nsqd takes, and addresses as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.errors import ConfigError
from nsqsmart.names import (
    MAX_PARTITION,
    Address,
    Dialect,
    check_channel,
    check_partition,
    check_topic,
    is_valid_name,
    printable,
)

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
EPHEMERAL = "#ephemeral"


@pytest.mark.parametrize(
    "name",
    ["t", ".", "-", "_", "0", "Orders.v2_eu-1", LETTERS[:64], "x" * 64, "x" * 54 + EPHEMERAL],
)
def test_a_name_is_taken(name: str) -> None:
    assert is_valid_name(name)
    assert check_topic(name) == name
    assert check_channel(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "t\n",
        "t#ephemeral\n",
        "\nt",
        " t",
        "t ",
        "a b",
        "a/b",
        "t$",
        "é",
        "٣",  # a digit, not one of ours
        "ａ",  # a letter, not one of ours
        "t\x00",
        "x" * 65,
        "x" * 55 + EPHEMERAL,
        EPHEMERAL,
        "t#",
        "t#Ephemeral",
        "t#ephemeral#ephemeral",
        "t#ephemeral.x",
    ],
)
def test_a_name_is_refused(name: str) -> None:
    assert not is_valid_name(name)
    with pytest.raises(ConfigError, match="^topic .* is not valid: 1 to 64"):
        check_topic(name)
    with pytest.raises(ConfigError, match="^channel .* is not valid: 1 to 64"):
        check_channel(name)


@pytest.mark.parametrize("name", [None, 7, b"t", ["t"]])
def test_a_name_is_text(name: object) -> None:
    with pytest.raises(TypeError, match=f"topic must be a str, not {type(name).__name__}"):
        check_topic(name)
    with pytest.raises(TypeError, match=f"channel must be a str, not {type(name).__name__}"):
        check_channel(name)


@given(st.text(LETTERS, min_size=1, max_size=54), st.sampled_from(["", EPHEMERAL]))
def test_any_mixture_of_the_letters_is_a_name(name: str, suffix: str) -> None:
    assert is_valid_name(name + suffix)


@given(st.text(LETTERS + "#é\n\0 ٣", min_size=1, max_size=70))
def test_a_valid_name_is_short_ascii_without_blanks(name: str) -> None:
    if is_valid_name(name):
        assert len(name.encode()) <= 64
        assert name.isascii()
        assert not set(name) & set(" \n\r\t")


@pytest.mark.parametrize("partition", [0, 1, MAX_PARTITION])
def test_a_partition_is_taken(partition: int) -> None:
    assert check_partition(partition) == partition


@pytest.mark.parametrize("partition", [-1, MAX_PARTITION + 1])
def test_a_partition_is_refused(partition: int) -> None:
    with pytest.raises(ConfigError, match=f"partition {partition} is not between 0 and 1023"):
        check_partition(partition)


@pytest.mark.parametrize("partition", [True, False, "1", 1.0, None])
def test_a_partition_is_an_int(partition: object) -> None:
    kind = type(partition).__name__
    with pytest.raises(TypeError, match=f"partition must be an int, not {kind}"):
        check_partition(partition)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost", "localhost", 4150),
        ("localhost:1", "localhost", 1),
        ("nsqd-0.nsqd.svc.cluster.local:65535", "nsqd-0.nsqd.svc.cluster.local", 65535),
        ("127.0.0.1:4150", "127.0.0.1", 4150),
        ("my_host:00080", "my_host", 80),
        ("bücher.example", "bücher.example", 4150),
        ("[::1]", "::1", 4150),
        ("[::1]:4152", "::1", 4152),
        ("[2001:DB8::a:0]:9", "2001:DB8::a:0", 9),
        ("[::ffff:10.0.0.1]", "::ffff:10.0.0.1", 4150),
        ("[fe80::1%eth0]:9", "fe80::1%eth0", 9),
        ("[fe80::1%br-lan.7]", "fe80::1%br-lan.7", 4150),
    ],
)
def test_an_address_is_read(text: str, host: str, port: int) -> None:
    assert Address.parse(text, 4150) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":4150",
        "host:",
        "host:x",
        "host:+1",
        "host:-1",
        "host: 1",
        "host:1\n",
        "host:123456",
        "host:٣",
        "host:1:2",
        "::1",
        "2001:db8::1",
        "[::1",
        "::1]",
        "[]",
        "[]:1",
        "[localhost]",
        "[127.0.0.1]",
        "[::1]4150",
        "[::1]:",
        "[::1]:x",
        "[::g]",
        "[::1%]",
        "[[::1]]",
        "a b",
        "a\tb",
        "a\x00b",
        "a\x7fb",
        "a,b",
        "user@host",
        "host/path",
        "http://host",
        "host?x",
        "host#x",
        "host\n",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not host:port; write an IPv6 host in brackets"):
        Address.parse(text, 4150)


@pytest.mark.parametrize("text", ["host:0", "host:65536", "[::1]:0", "[::1]:99999"])
def test_a_port_out_of_range(text: str) -> None:
    with pytest.raises(ConfigError, match=r"port \d+ is not between 1 and 65535"):
        Address.parse(text, 4150)


def test_the_default_port_is_checked_too() -> None:
    with pytest.raises(ConfigError, match="port 0 is not between"):
        Address.parse("host", 0)


@given(
    st.one_of(
        st.from_regex(r"[a-z0-9_.-]{1,20}", fullmatch=True),
        st.ip_addresses(v=4).map(str),
        st.ip_addresses(v=6).map(str),
    ),
    st.integers(1, 65535),
)
def test_an_address_is_read_as_it_was_written(host: str, port: int) -> None:
    address = Address(host, port)
    assert Address.parse(str(address), 1) == address


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_an_error_of_ours(text: str) -> None:
    try:
        host, port = Address.parse(text, 4150)
    except ConfigError:
        return
    assert host
    assert 0 < port <= 65535


def test_a_dialect_is_its_name() -> None:
    assert [str(dialect) for dialect in Dialect] == ["original", "redesigned"]


@given(st.text())
def test_what_a_peer_says_is_one_line_of_text(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert (shown == text) is text.isprintable()


def test_what_is_not_printable_is_escaped() -> None:
    assert printable("a\n\x1b[2J\r\0é\u202e") == "a\\n\\x1b[2J\\r\\x00é\\u202e"
