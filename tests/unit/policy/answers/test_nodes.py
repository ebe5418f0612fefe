"""The nsqds and topics of a whole cluster, as lookups of both dialects list them."""

from __future__ import annotations

import json

import pytest

from nsqsmart.errors import DiscoveryError
from nsqsmart.names import Address, Dialect
from nsqsmart.policy.answers.lookup import Node
from nsqsmart.policy.answers.nodes import (
    Listed,
    NodeInfo,
    describe,
    parse_info,
    parse_listing,
    parse_topics,
    unite,
)

HA = "0.3.7-HA.1.13.0"


def entry(host: str = "10.0.0.1", **values: object) -> dict[str, object]:
    return {
        "broadcast_address": host,
        "hostname": f"{host}.example",
        "tcp_port": 4150,
        "http_port": 4151,
        "version": "1.3.0",
        "topics": ["t"],
    } | values


def listing(*entries: object) -> bytes:
    return json.dumps({"producers": entries}).encode()


def node(host: str, port: int = 4150, version: str = "1.3.0") -> Node:
    return Node(Address(host, port), Address(host, 4151), version)


def test_nodes_are_listed_with_what_they_have():
    (found,) = parse_listing(200, listing(entry(topics=["t", "u#ephemeral", "bad name", 3])))
    assert found == Listed(node("10.0.0.1"), "10.0.0.1.example", frozenset({"t", "u#ephemeral"}))


def test_the_older_envelope_is_the_same():
    wrapped = {"status_code": 200, "status_txt": "OK", "data": {"producers": [entry()]}}
    assert parse_listing(200, json.dumps(wrapped).encode()) == parse_listing(200, listing(entry()))


@pytest.mark.parametrize(
    "bad", [None, 1, {}, entry(tcp_port=0), entry(broadcast_address="0.0.0.0")]
)
def test_an_entry_that_cannot_be_used_is_left_out(bad):
    assert [each.node.address.host for each in parse_listing(200, listing(bad, entry("b")))] == [
        "b"
    ]


def test_a_host_name_that_is_no_text_is_none():
    assert [
        each.hostname
        for each in parse_listing(200, listing(entry(hostname="a\x1b[2J"), entry(hostname=None)))
    ] == ["", ""]
    (long,) = parse_listing(200, listing(entry(hostname="x" * 300)))
    assert len(long.hostname) == 253


def test_there_is_a_bound_to_the_nodes():
    assert len(parse_listing(200, listing(*[entry(f"h{n}") for n in range(1100)]))) == 1024


@pytest.mark.parametrize("parse", [parse_listing, parse_topics])
@pytest.mark.parametrize(("status", "body"), [(500, b'{"message":"INTERNAL_ERROR"}'), (200, b"[]")])
def test_what_is_no_answer_is_an_error(parse, status, body):
    with pytest.raises(DiscoveryError, match=rf"(nodes|topics) answered {status}"):
        parse(status, body)


def test_topics_are_names():
    assert parse_topics(200, b'{"topics":["b","a","no good",null,7]}') == ["b", "a"]
    assert parse_topics(200, b'{"topics":null}') == []


def test_an_nsqd_tells_its_version_and_host():
    told = {"version": "1.3.0", "hostname": "box\x1b[31m"}
    assert parse_info(200, json.dumps(told).encode()) == ("1.3.0", "box\\x1b[31m")
    with pytest.raises(DiscoveryError, match="without a version"):
        parse_info(200, b'{"hostname":"box"}')
    with pytest.raises(DiscoveryError):
        parse_info(404, b'{"message":"NOT_FOUND"}')


def test_what_several_lookups_list_is_one_node():
    first = Listed(node("b"), "b", frozenset({"t"}))
    again = Listed(node("b"), "other", frozenset({"u"}))
    second = Listed(node("a"), "a", frozenset())
    assert unite([[first], [again, second]]) == [
        second,
        first._replace(topics=frozenset({"t", "u"})),
    ]
    assert unite([]) == []


@pytest.mark.parametrize(
    ("version", "dialect"), [("1.3.0", Dialect.ORIGINAL), (HA, Dialect.REDESIGNED), ("", None)]
)
def test_a_node_is_described(version, dialect):
    listed = Listed(node("::1", version=version), "here", frozenset({"b", "a"}))
    assert describe(listed) == NodeInfo(
        "[::1]:4150", "[::1]:4151", "here", version, dialect, ("a", "b")
    )


def test_a_port_that_no_lookup_names_is_not_made_up():
    listed = Listed(Node(Address("a", 4150), Address("a", 0)), "", frozenset())
    assert describe(listed) == NodeInfo("a:4150")
