"""What a lookup may say, and what it may not make us believe."""

from __future__ import annotations

import contextlib
import json
from bisect import bisect
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nsqsmart.errors import DiscoveryError
from nsqsmart.names import Address, Dialect
from nsqsmart.policy.answers.lookup import (
    LookupPeers,
    Node,
    TopicMeta,
    TopicState,
    parse_lookup,
    parse_nodes,
    parse_peers,
)
from tests.helpers import ROOT

VECTORS = json.loads((ROOT / "tests" / "vectors" / "lookup.json").read_text())
PARSERS: dict[str, Callable[[int, bytes], Any]] = {
    "lookup": parse_lookup,
    "peers": parse_peers,
    "nodes": lambda status, body: parse_nodes(status, body, "t"),
}


def dump(value: object) -> bytes:
    return json.dumps(value).encode()


def entry(host: object = "h", port: object = 4150, **more: object) -> dict[str, object]:
    return {"broadcast_address": host, "tcp_port": port, **more}


def addresses(nodes: tuple[Node, ...]) -> list[str]:
    return [str(node.address) for node in nodes]


@pytest.mark.parametrize("vector", VECTORS["lookup"], ids=lambda vector: vector["name"])
def test_lookup_vectors(vector: dict) -> None:
    answer = parse_lookup(vector["status"], vector["body"].encode())
    assert answer.state == vector["state"]
    leaders = {str(number): str(node.address) for number, node in answer.leaders.items()}
    assert leaders == vector["leaders"]
    assert addresses(answer.producers) == vector["producers"]
    meta = (answer.meta.partition_num, answer.meta.ordered, answer.meta.extended)
    assert meta == (vector["partition_num"], vector["ordered"], vector["extended"])
    assert answer.redesigned == vector["redesigned"]
    assert answer.skipped == 0


@pytest.mark.parametrize("vector", VECTORS["peers"], ids=lambda vector: vector["name"])
def test_peers_vectors(vector: dict) -> None:
    peers = parse_peers(vector["status"], vector["body"].encode())
    if vector["original"]:
        assert peers is None
        return
    assert peers is not None
    assert (str(peers.leader) if peers.leader else None) == vector["leader"]
    assert [str(member) for member in peers.members] == vector["members"]


@pytest.mark.parametrize("vector", VECTORS["errors"], ids=lambda v: f"{v['kind']}, {v['name']}")
def test_error_vectors(vector: dict) -> None:
    with pytest.raises(DiscoveryError):
        PARSERS[vector["kind"]](vector["status"], vector["body"].encode())


def test_a_node_in_full() -> None:
    body = dump({"producers": [entry("10.0.0.1", 4150, http_port=4151, version="1.3.0")]})
    (node,) = parse_lookup(200, body).producers
    assert node == Node(Address("10.0.0.1", 4150), Address("10.0.0.1", 4151), "1.3.0")


@pytest.mark.parametrize(
    ("version", "dialect"),
    [("1.3.0", Dialect.ORIGINAL), ("0.3.7-HA.1.13.0", Dialect.REDESIGNED), ("", Dialect.ORIGINAL)],
)
def test_the_dialect_of_a_node(version: str, dialect: Dialect) -> None:
    address = Address("a", 4150)
    assert Node(address, address, version).dialect is dialect


def test_the_error_says_what_came_and_not_too_much_of_it() -> None:
    with pytest.raises(DiscoveryError, match=r"answered 503 'x{100}'$"):
        parse_lookup(503, dump({"message": "x" * 5000}))
    with pytest.raises(DiscoveryError, match=r"answered 500 ''$"):
        parse_lookup(500, dump({"message": ["x"]}))
    with pytest.raises(DiscoveryError, match=r"answered 500 '\{x+'$") as caught:
        parse_lookup(500, b"{" + b"x" * 5000)
    assert len(str(caught.value)) < 200


# /nodes.


def test_nodes_leaves_out_what_is_tombstoned_for_this_topic_alone() -> None:
    nodes = [
        entry("a", topics=["t", "u"], tombstones=[False, True]),
        entry("b", topics=["u", "t"], tombstones=[False, True]),
        entry("c", topics=["t"], tombstones=[]),
        entry("d", topics=None, tombstones=None),
        entry("e"),
        {"broadcast_address": "f"},
        None,
    ]
    assert addresses(parse_nodes(200, dump({"producers": nodes}), "t")) == [
        "a:4150",
        "c:4150",
        "d:4150",
        "e:4150",
    ]
    assert parse_nodes(200, dump({"producers": None}), "t") == ()


def test_nodes_wrapped() -> None:
    body = dump({"status_code": 200, "status_txt": "OK", "data": {"producers": [entry()]}})
    assert addresses(parse_nodes(200, body, "t")) == ["h:4150"]


# Hostile documents.


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "10.1.2.3",
        "::1",
        "2001:db8::1",
        "fe80::1%eth0",
        "::ffff:10.0.0.1",
        "localhost",
        "nsqd-1.example.com",
        "nsqd-1.example.com.",
        "nsqd_1",
        "nsqd.1",
        "223.example",
        "224.0.0.example",
        "123456789012",
        "ff",
        "fab.example",
        "a" * 63,
        ".".join(["a" * 49] * 5),
    ],
)
def test_hosts_to_dial(host: str) -> None:
    answer = parse_lookup(200, dump({"producers": [entry(host)], "partitions": {"0": entry(host)}}))
    assert answer.producers[0].address == answer.leaders[0].address == Address(host, 4150)
    assert answer.skipped == 0


@pytest.mark.parametrize(
    "host",
    [
        "",
        None,
        7,
        True,
        ["h"],
        {"h": "h"},
        "0.0.0.0",
        "::",
        "::0",
        "0:0:0:0:0:0:0:0",
        "::%1",
        "::ffff:0.0.0.0",
        "0",
        "0.",
        "00",
        "0x0",
        "0.0",
        "000.0.0.0",
        "０.０.０.０",
        "255.255.255.255",
        "::ffff:255.255.255.255",
        "4294967295",
        "224.0.0.1",
        "239.255.255.255",
        "224.1",
        "0xe0.0.0.1",
        "0340.0.0.1",
        "3758096385",
        "ff02::1",
        "FF02::1%eth0",
        "::ffff:224.0.0.1",
        "fe80::1%\n",
        "fe80::1%a/b",
        "[::1]",
        "a b",
        "a\n",
        "a\0",
        "a/b",
        "a@b",
        "a:80",
        "a?",
        "a..b",
        ".",
        "-a",
        "\ud800",
        "a" * 64,
        "a" * 254,
        ".".join(["a" * 50] * 5),
    ],
)
def test_hosts_refused(host: object) -> None:
    bad = entry(host)
    body = dump({"producers": [bad, entry("good")], "partitions": {"0": bad, "1": entry("good")}})
    answer = parse_lookup(200, body)
    assert addresses(answer.producers) == ["good:4150"]
    assert list(answer.leaders) == [1]
    assert answer.skipped == 2
    assert addresses(parse_nodes(200, body, "t")) == ["good:4150"]
    peer = {"NodeIP": host, "HttpPort": "4161"}
    peers = parse_peers(200, dump({"lookupdleader": peer, "lookupdnodes": [peer]}))
    assert peers == LookupPeers(None, ())


@pytest.mark.parametrize(
    "port", [0, -1, 65536, 10**30, "4150", 4150.0, True, None, [4150], float("inf"), float("nan")]
)
def test_ports_refused(port: object) -> None:
    answer = parse_lookup(200, dump({"producers": [entry("h", port)]}))
    assert (answer.state, answer.producers, answer.skipped) == (TopicState.UNKNOWN, (), 1)
    # A wrong HTTP port spoils nothing: only the admin's commands need it.
    (node,) = parse_lookup(200, dump({"producers": [entry("h", 1, http_port=port)]})).producers
    assert node.http == Address("h", 0)


@pytest.mark.parametrize("port", [1, 65535])
def test_ports_taken(port: int) -> None:
    (node,) = parse_lookup(200, dump({"producers": [entry("h", port, http_port=port)]})).producers
    assert node.address == node.http == Address("h", port)


@pytest.mark.parametrize("port", ["1", "4161", "65535"])
def test_peer_ports_taken(port: str) -> None:
    peers = parse_peers(200, dump({"lookupdleader": {"NodeIP": "h", "HttpPort": port}}))
    assert peers == LookupPeers(Address("h", int(port)), ())


@pytest.mark.parametrize(
    "port",
    [4161, "", "0", "65536", "004161", "99999999", "-1", "4161 ", "4_1", "４１６１", "²", None, []],
)
def test_peer_ports_refused(port: object) -> None:
    peer = {"NodeIP": "h", "HttpPort": port}
    peers = parse_peers(200, dump({"lookupdleader": peer, "lookupdnodes": [peer]}))
    assert peers == LookupPeers(None, ())


@pytest.mark.parametrize(
    "key",
    ["-11", "1024", "10000", "", " 1", "1.0", "x", "٣", "²", "000009999", "00000" + "9" * 5000],
)
def test_partitions_refused(key: str) -> None:
    answer = parse_lookup(200, dump({"partitions": {key: entry(), "1023": entry()}}))
    assert list(answer.leaders) == [1023]
    assert answer.skipped == 1


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        (None, TopicMeta()),
        ([], TopicMeta()),
        ({}, TopicMeta()),
        ({"partition_num": 1024}, TopicMeta(1024)),
        ({"partition_num": 1025}, TopicMeta()),
        ({"partition_num": -1}, TopicMeta()),
        ({"partition_num": True}, TopicMeta()),
        ({"partition_num": "4"}, TopicMeta()),
        ({"partition_num": 4.0}, TopicMeta()),
        ({"partition_num": 4, "ordered": 1, "extend_support": "true"}, TopicMeta(4)),
        ({"partition_num": 4, "ordered": True}, TopicMeta(4, ordered=True)),
        ({"partition_num": 4, "extend_support": True}, TopicMeta(4, extended=True)),
        ({"partition_num": 4, "replica": 3}, TopicMeta(4, replicas=3)),
        ({"partition_num": 4, "replica": "3"}, TopicMeta(4)),
        (
            {"partition_num": 4, "disable_channel_auto_create": True},
            TopicMeta(4, channels_by_lookup=True),
        ),
    ],
)
def test_meta(meta: object, expected: TopicMeta) -> None:
    answer = parse_lookup(200, dump({"meta": meta, "partitions": {"0": entry()}}))
    assert answer.meta == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1.3.0", "1.3.0"),
        ("v" * 200, "v" * 100),
        (None, ""),
        (13, ""),
        ([["1"]], ""),
        ("1\n2", ""),
        ("\ud800", ""),
    ],
)
def test_versions(version: object, expected: str) -> None:
    (node,) = parse_lookup(200, dump({"producers": [entry(version=version)]})).producers
    assert node.version == expected


@pytest.mark.parametrize("wrong", [None, 1, "x", {"a": 1}, True])
def test_what_should_be_a_list_is_none(wrong: object) -> None:
    answer = parse_lookup(200, dump({"producers": wrong, "partitions": wrong and [wrong]}))
    assert (answer.state, answer.leaders, answer.producers) == (TopicState.UNKNOWN, {}, ())
    assert parse_nodes(200, dump({"producers": wrong}), "t") == ()
    assert parse_peers(200, dump({"lookupdnodes": wrong, "lookupdleader": wrong})) == (None, ())


@pytest.mark.parametrize("document", [1, "x", [1], True])
def test_peers_that_are_no_object(document: object) -> None:
    assert parse_peers(200, dump(document)) == LookupPeers(None, ())


@pytest.mark.parametrize("code", [True, None, "404", 404.0, [404]])
def test_a_wrapped_status_of_the_wrong_type_is_not_believed(code: object) -> None:
    body = dump({"status_code": code, "status_txt": None, "data": {"producers": [entry()]}})
    assert parse_lookup(200, body).state is TopicState.FOUND
    with pytest.raises(DiscoveryError, match="500 ''"):
        parse_lookup(500, body)


def test_the_http_port_of_an_nsqd_is_told_as_that() -> None:
    # An nsqd has no /lookup; an nsqlookupd that does not know the topic says TOPIC_NOT_FOUND.
    with pytest.raises(DiscoveryError, match="the HTTP port of an nsqd"):
        parse_lookup(404, dump({"message": "NOT_FOUND"}))


def test_an_envelope_has_both_keys() -> None:
    body = {"status_code": 500, "producers": [entry()]}
    assert parse_lookup(200, dump(body)).state is TopicState.FOUND
    assert parse_lookup(404, dump({"message": 7})).state is TopicState.UNKNOWN


@pytest.mark.parametrize("kind", PARSERS)
@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b"\xff\xfe\xff", b'"\xff"', b"{}}", b"\0"],
    ids=lambda body: f"{body[:6]!r}",
)
def test_what_json_cannot_read(kind: str, body: bytes) -> None:
    with pytest.raises(DiscoveryError):
        PARSERS[kind](200, body)
    with pytest.raises(DiscoveryError):
        PARSERS[kind](500, body)


def nested(depth: int) -> bytes:
    deep = "[" * depth + "]" * depth
    node = f'{{"broadcast_address":"h","tcp_port":1,"version":{deep}}}'
    return f'{{"producers":[{node}],"message":{deep}}}'.encode()


def too_deep(depth: int) -> bool:
    try:
        json.loads(nested(depth))
    except RecursionError:
        return True
    return False


def test_nesting_just_short_of_what_json_refuses() -> None:
    """Nothing may walk down what json could just read."""
    limit = bisect(range(100_000), x=False, key=too_deep)
    for depth in range(limit - 40, limit + 10):
        check_lookup_or_refusal(nested(depth))


def check_lookup_or_refusal(body: bytes) -> None:
    with contextlib.suppress(DiscoveryError):
        assert parse_lookup(200, body).producers[0].version == ""


def test_a_byte_order_mark_is_no_harm() -> None:
    body = b"\xef\xbb\xbf" + dump({"producers": [entry()]})
    assert parse_lookup(200, body).state is TopicState.FOUND


def test_the_number_of_nodes_is_bounded() -> None:
    nodes = [entry("h", port) for port in range(1, 1101)]
    answer = parse_lookup(200, dump({"producers": nodes}))
    assert len(answer.producers) == 1024
    assert answer.skipped == 76
    assert len(parse_nodes(200, dump({"producers": nodes}), "t")) == 1024
    peers = parse_peers(
        200, dump({"lookupdnodes": [{"NodeIP": "h", "HttpPort": str(n)} for n in range(1, 30)]})
    )
    assert peers is not None
    assert len(peers.members) == 16


def check_host(host: str) -> None:
    assert 0 < len(host) <= 253
    assert host.isascii()
    assert not set(host) & set("/@?#[] \t\r\n\0")
    try:
        address = ip_address(host)
    except ValueError:
        assert ":" not in host
        assert "%" not in host
    else:
        assert not address.is_unspecified
        assert not address.is_multicast


def check_node(node: Node) -> None:
    check_host(node.address.host)
    assert type(node.address.port) is int
    assert 0 < node.address.port <= 65535
    assert node.http.host == node.address.host
    assert 0 <= node.http.port <= 65535
    assert len(node.version) <= 100
    assert node.version.isprintable()


def check_lookup(status: int, body: bytes) -> None:
    answer = parse_lookup(status, body)
    assert all(type(number) is int and 0 <= number <= 1023 for number in answer.leaders)
    for node in [*answer.leaders.values(), *answer.producers]:
        check_node(node)
    assert 0 <= answer.meta.partition_num <= 1024
    assert (answer.state is TopicState.FOUND) == bool(
        answer.leaders or answer.producers or answer.meta.partition_num
    )


def check_nodes(status: int, body: bytes) -> None:
    for node in parse_nodes(status, body, "t"):
        check_node(node)


def check_peers(status: int, body: bytes) -> None:
    peers = parse_peers(status, body) or LookupPeers(None, ())
    for peer in filter(None, [*peers.members, peers.leader]):
        check_host(peer.host)
        assert 0 < peer.port <= 65535


def check(status: int, body: bytes) -> None:
    """Each parser refuses with DiscoveryError, or gives what can be used."""
    for one in (check_lookup, check_nodes, check_peers):
        with contextlib.suppress(DiscoveryError):
            one(status, body)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["127.0.0.1", "0", "::", "224.1", "4161", "h", "t", "0.3.7-HA.1"])
)
# fmt: off
KEYS = st.sampled_from([
    "status_code", "status_txt", "data", "message", "meta", "partitions", "producers",
    "partition_num", "ordered", "topics", "tombstones", "broadcast_address", "tcp_port",
    "http_port", "version", "lookupdleader", "lookupdnodes", "NodeIP", "HttpPort", "0", "1",
    "1023", "1024",
]) | st.text(max_size=6)
# fmt: on
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=30,
)
NODES = st.fixed_dictionaries(
    {},
    optional={
        "broadcast_address": st.from_regex(r"[0-9a-fx.:%-]{1,12}", fullmatch=True) | SCALARS,
        "tcp_port": st.integers(0, 70000) | SCALARS,
        "http_port": SCALARS,
        "version": JSON,
        "NodeIP": SCALARS,
        "HttpPort": st.integers(0, 70000).map(str) | SCALARS,
        "topics": JSON,
        "tombstones": JSON,
    },
)
ANSWERS = st.fixed_dictionaries(
    {},
    optional={
        "producers": st.lists(NODES | JSON, max_size=4) | JSON,
        "partitions": st.dictionaries(KEYS, NODES | JSON, max_size=4) | JSON,
        "meta": st.dictionaries(KEYS, SCALARS, max_size=4) | JSON,
        "lookupdleader": NODES | JSON,
        "lookupdnodes": st.lists(NODES | JSON, max_size=4) | JSON,
        "message": JSON,
    },
)
WRAPPED = st.fixed_dictionaries(
    {"status_code": st.sampled_from([200, 404, 500]) | SCALARS, "data": ANSWERS | JSON},
    optional={"status_txt": JSON},
)


@given(st.sampled_from([200, 404, 500]), JSON | ANSWERS | WRAPPED)
@example(200, {"producers": [entry("0.0.0.0")]})
def test_any_document(status: int, document: object) -> None:
    check(status, dump(document))


@given(st.integers(0, 999), st.binary(max_size=200))
def test_any_bytes(status: int, body: bytes) -> None:
    check(status, body)


@given(st.text(max_size=30) | st.from_regex(r"[0-9a-fx.:%]{1,15}", fullmatch=True))
def test_any_host(host: str) -> None:
    check(200, dump({"producers": [entry(host)]}))
