"""What an Admin tells of a cluster, and what it refuses before anything is sent."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator

import pytest

import nsqsmart
from nsqsmart.errors import (
    ConfigError,
    DiscoveryError,
)
from nsqsmart.names import Dialect
from tests.peers import Peer
from tests.scripted import (
    HA,
    IO,
    QUICK,
    SILENCE,
    World,
    scripted,
)


@pytest.fixture
def original() -> Iterator[World]:
    with scripted("original") as world:
        yield world


# --------------------------------------------------------------------------- nodes and statistics


def test_nodes_and_topics_of_all_lookups_are_united(original):
    first, second = original.entry(0, IO, topics=["b"]), original.entry(1, IO, http_port=0)
    original.lookups[0].say("/nodes", (200, {"producers": [second]}))
    original.lookups[1].say("/nodes", (200, {"producers": [first, second]}))
    original.lookups[0].say("/topics", (200, {"topics": ["b"]}))
    original.lookups[1].say("/topics", (200, {"topics": ["a", "b"]}))
    admin = original.admin()
    nodes = admin.nodes()
    assert [each.nsqd for each in nodes] == ["127.0.0.1:4150", "127.0.0.1:4151"]
    assert (nodes[0].topics, nodes[0].hostname) == (("b",), "host0")
    assert (nodes[1].http, nodes[1].dialect) == ("", Dialect.ORIGINAL)
    assert admin.topics() == ["a", "b"]


def test_an_nsqd_without_statistics_is_named(original):
    original.nsqds[0].say("/stats", (200, {"topics": [{"topic_name": "t", "depth": 3}]}))
    original.nsqds[1].say("/stats", (403, {"message": "TLS_REQUIRED"}))
    stats = original.admin().stats("t")
    assert [(each.nsqd, each.depth) for each in stats.topics] == [("127.0.0.1:4150", 3)]
    (missing,) = stats.unreachable
    assert missing.nsqd == "127.0.0.1:4151"
    assert "TLS_REQUIRED" in missing.reason
    asked = [each.query for each in original.requests if each.path == "/stats"]
    assert asked[0]["topic"] == "t"
    assert asked[0]["format"] == "json"
    assert asked[0]["needClients"] == asked[0]["include_clients"] == "false"


def test_an_nsqd_that_says_nothing_does_not_take_the_time_of_others(original):
    original.nsqds[0].say("/stats", SILENCE)
    original.nsqds[1].say("/stats", (200, {"topics": [{"topic_name": "t"}]}))
    stats = original.admin(admin_timeout=3).stats()
    assert [each.nsqd for each in stats.topics] == ["127.0.0.1:4151"]
    assert [each.nsqd for each in stats.unreachable] == ["127.0.0.1:4150"]


def test_addresses_are_translated_and_judged_for_http_too(original):
    table = {
        "docker:4150": "127.0.0.1:14150",
        "docker:4151": f"127.0.0.1:{original.nsqds[0].port}",
        "docker:4160": "127.0.0.2:14160",
    }
    listed = [
        original.entry(0, IO, broadcast_address="docker", tcp_port=port, http_port=http)
        for port, http in ((4150, 4151), (4160, 4161))
    ]
    original.everywhere("/nodes", (200, {"producers": listed}))
    original.nsqds[0].say("/stats", (200, {"topics": [{"topic_name": "t"}]}))
    admin = original.admin(address_map=table, address_policy=lambda each: each.host != "127.0.0.2")
    (node,) = admin.nodes()
    assert (node.nsqd, node.http) == ("127.0.0.1:14150", table["docker:4151"])
    assert [each.nsqd for each in admin.stats().topics] == ["127.0.0.1:14150"]


def test_no_lookup_answers():
    with Peer(lambda talk: None) as peer:
        url = "nsq+lookupd://{}:{}".format(*peer.address)
    admin = nsqsmart.Admin(url, **QUICK)
    calls = [
        admin.topics,
        admin.nodes,
        admin.stats,
        lambda: admin.topology("t"),
        lambda: admin.create_topic("t"),
        lambda: admin.delete_topic("t"),
        lambda: admin.create_channel("t", "c"),
        lambda: admin.pause_topic("t"),
    ]
    for call in calls:
        with pytest.raises(DiscoveryError, match=r"no nsqlookupd answered \(127"):
            call()


# ------------------------------------------------------------------------ what never leaves here


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.topology("no good"),
        lambda admin: admin.stats("no good"),
        lambda admin: admin.stats("t", "no good"),
        lambda admin: admin.create_topic("no good"),
        lambda admin: admin.create_topic("t", partitions=0),
        lambda admin: admin.create_topic("t", partitions=255),
        lambda admin: admin.create_topic("t", replicas=6),
        lambda admin: admin.delete_topic(""),
        lambda admin: admin.pause_topic("x" * 65),
        lambda admin: admin.create_channel("no good", "c"),
        lambda admin: admin.create_channel("t", "no good"),
        lambda admin: admin.delete_channel("t", ""),
        lambda admin: admin.empty_channel("t", "no good"),
        lambda admin: admin.set_order("t", "no good", True),
        lambda admin: admin.set_offset("t", "c", -1, "end"),
        lambda admin: admin.set_offset("t", "c", 0, "somewhere"),
        lambda admin: admin.probe("no good"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(original, call):
    with pytest.raises(ConfigError):
        call(original.admin())
    assert original.requests == []


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.topology(b"t"),
        lambda admin: admin.create_topic("t", partitions="2"),
        lambda admin: admin.create_topic("t", replicas=True),
        lambda admin: admin.create_topic("t", ordered=1),
        lambda admin: admin.set_order("t", "c", "true"),
        lambda admin: admin.set_offset("t", "c", "0", "end"),
        lambda admin: admin.probe(("h", 1)),
        pickle.dumps,
    ],
)
def test_arguments_of_the_wrong_type(original, call):
    with pytest.raises(TypeError):
        call(original.admin())
    assert original.requests == []


def test_an_nsqd_does_not_tell_where_its_http_is():
    admin = nsqsmart.Admin("nsq://127.0.0.1:1")
    calls = [
        admin.topics,
        admin.stats,
        lambda: admin.create_topic("t"),
        lambda: admin.delete_topic("t"),
        lambda: admin.empty_topic("t"),
        lambda: admin.create_channel("t", "c"),
        lambda: admin.delete_channel("t", "c"),
        lambda: admin.unpause_channel("t", "c"),
        lambda: admin.set_offset("t", "c", 0, "end"),
        lambda: admin.set_order("t", "c", False),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=r"needs the HTTP addresses.*use nsq\+lookupd://"):
            call()


def test_without_lookups_an_nsqd_is_asked_who_it_is():
    grant = json.dumps({"version": HA}).encode()
    with Peer(lambda talk: talk.greet(grant)) as peer:
        admin = nsqsmart.Admin(f"{peer.url},127.0.0.1:1", **QUICK)
        known, dead = admin.nodes()
        name = "{}:{}".format(*peer.address)
        assert (known.nsqd, known.version, known.dialect) == (name, HA, Dialect.REDESIGNED)
        assert (dead.nsqd, dead.version, dead.dialect) == ("127.0.0.1:1", "", None)
        assert [each.name for each in admin.topology("t").targets] == [name, "127.0.0.1:1"]
        assert admin.probe(name).ok
        assert not admin.probe("127.0.0.1:1").ok


def test_an_admin_says_where_it_goes_and_keeps_secrets():
    admin = nsqsmart.Admin("nsq+lookupd://l1:4161?auth_secret=hush", admin_timeout="250ms")
    assert repr(admin) == "<Admin nsq+lookupd://l1:4161>"
    with pytest.raises(ConfigError, match="option of ConsumerConfig, not of AdminConfig"):
        nsqsmart.Admin("nsq+lookupd://l1", workers=3)
    config = nsqsmart.AdminConfig(admin_timeout=3)
    assert nsqsmart.Admin("nsq+lookupd://l1", config=config)._config.admin_timeout == 3
