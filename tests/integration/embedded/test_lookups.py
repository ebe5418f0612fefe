"""Lookups and administration over HTTP."""

from __future__ import annotations

import pytest

from nsqsmart.embedded import Cluster, get, stop
from nsqsmart.wire import commands
from tests.integration.embedded.rawclient import http


def test_both_envelopes(redesigned) -> None:
    address = redesigned.lookupds[0].http_address
    nothing = {"channels": [], "partitions": {}, "producers": []}
    assert http("GET", address, "/lookup?topic=no&access=r") == (200, nothing)
    wrapped = {"status_code": 200, "status_txt": "OK", "data": nothing}
    assert http("GET", address, "/lookup?topic=no", legacy=True) == (200, wrapped)
    assert http("GET", address, "/lookup?topic=no&access=w") == (
        404,
        {"message": "Key not found"},
    )
    assert http("GET", address, "/lookup?topic=no&access=w", legacy=True) == (
        500,
        {"status_code": 500, "status_txt": "Key not found", "data": None},
    )
    assert http("GET", address, "/nope", legacy=True) == (404, {"message": "NOT_FOUND"})
    assert http("POST", address, "/lookup") == (405, {"message": "METHOD_NOT_ALLOWED"})


def test_a_topic_is_written_only_where_it_has_a_channel(redesigned) -> None:
    redesigned.create_topic("t", partitions=2)
    address = redesigned.lookupds[1].http_address
    target = "/lookup?topic=t&access=w"
    text = "Topic has no channel, should init at least one for the new topic"
    assert http("GET", address, target) == (404, {"message": text})
    assert set(http("GET", address, "/lookup?topic=t")[1]["partitions"]) == {"0", "1"}
    leader = redesigned.leader("t", 1).http_address
    assert http("POST", leader, "/channel/create?topic=t&partition=1&channel=c") == (200, "")
    answer = http("GET", address, target)[1]
    assert (set(answer["partitions"]), answer["channels"]) == ({"1"}, ["c"])
    node = redesigned.leader("t", 1)
    peer = answer["partitions"]["1"]
    assert (peer["broadcast_address"], peer["tcp_port"]) == node.tcp_address
    assert answer["producers"] == [peer]
    # Anything but nothing asks for the description.
    meta = http("GET", address, target + "&metainfo=false")[1]["meta"]
    assert (meta["partition_num"], meta["replica"], meta["ordered"]) == (2, 1, False)


def test_tombstones_hide_from_writers_of_one_daemon(redesigned) -> None:
    redesigned.create_topic("t")
    redesigned.create_channel("t", "c")
    first, second = (each.http_address for each in redesigned.lookupds)
    host, port = redesigned.leader("t").http_address
    target = f"/topic/tombstone?topic=t&node={host}:{port}"
    assert http("POST", first, target) == (200, "")
    assert http("GET", first, "/lookup?topic=t&access=w")[1]["partitions"] == {}
    assert http("GET", first, "/lookup?topic=t&access=r")[1]["partitions"] != {}
    assert http("GET", second, "/lookup?topic=t&access=w")[1]["partitions"] != {}
    assert http("POST", first, target + "&restore=true") == (200, "")
    assert http("GET", first, "/lookup?topic=t&access=w")[1]["partitions"] != {}


def test_only_the_leading_daemon_administers(redesigned) -> None:
    leading, other = (each.http_address for each in redesigned.lookupds)
    target = "/topic/create?topic=n&partition_num=2&replicator=1"
    assert http("POST", other, target) == (400, {"message": "E_FAILED_ON_NOT_LEADER"})
    assert http("POST", leading, target) == (200, "")
    assert http("PUT", leading, target) == (200, "")
    again = target.replace("=2", "=3")
    assert http("POST", leading, again) == (400, {"message": "already exist"})
    many = "/topic/create?topic=m&partition_num=2&replicator=2"
    text = "ErrType:9 ErrCode:1 : No node is available for topic"
    assert http("POST", leading, many) == (400, {"message": text})
    assert http("POST", leading, many + "&multipart=true") == (200, "")
    listed = http("GET", other, "/listlookup")[1]
    assert listed["lookupdleader"]["HttpPort"] == str(leading[1])
    assert len(listed["lookupdnodes"]) == 2
    delete = "/topic/delete?topic=n&partition=**"
    assert http("POST", other, delete) == (500, {"message": "Not nsqlookup leader"})
    assert http("POST", leading, delete) == (200, "")
    assert http("POST", leading, delete) == (500, {"message": "Key not found"})
    assert http("GET", other, "/topics")[1] == {"topics": ["m"]}


def test_channels_are_registered_where_sub_may_not_make_them(redesigned, connect) -> None:
    redesigned.create_topic("t", disable_channel_auto_create=True)
    redesigned.create_topic("free")
    leading, other = (each.http_address for each in redesigned.lookupds)
    refused = connect(redesigned.leader("t"))
    assert refused.refused(commands.sub("t", "c", 0)).startswith("E_SUB_CHANNEL_NOT_REGISTERED")
    target = "/channel/create?topic=t&channel=c"
    assert http("POST", other, target) == (400, {"message": "Not nsqlookup leader"})
    assert http("POST", leading, target) == (200, "")
    assert http("POST", leading, target)[1] == {"message": "channel c already registered"}
    text = "channel auto create NOT disabled in topic free"
    assert http("POST", leading, target.replace("=t&", "=free&"))[1] == {"message": text}
    connect(redesigned.leader("t")).subscribe(commands.sub("t", "c", 0))
    assert http("POST", leading, "/channel/delete?topic=t&channel=c") == (200, "")


def test_the_interface_of_an_original_daemon(original, connect) -> None:
    address = original.lookupds[0].http_address
    assert http("GET", address, "/lookup?topic=t") == (404, {"message": "TOPIC_NOT_FOUND"})
    assert http("GET", address, "/lookup") == (400, {"message": "MISSING_ARG_TOPIC"})
    assert http("GET", address, "/listlookup") == (404, {"message": "NOT_FOUND"})
    node = original.nsqds[0]
    connect(node).ask(commands.pub("t", b"x"))
    consumer = connect(node)
    consumer.subscribe(commands.sub("t", "c"))
    for lookupd in original.lookupds:
        answer = http("GET", lookupd.http_address, "/lookup?topic=t")[1]
        assert answer["channels"] == ["c"]
        assert [peer["tcp_port"] for peer in answer["producers"]] == [node.tcp_address[1]]
        assert http("GET", lookupd.http_address, "/channels?topic=t")[1] == {"channels": ["c"]}
    assert http("GET", address, "/topics")[1] == {"topics": ["t"]}
    nodes = http("GET", address, "/nodes")[1]["producers"]
    assert sorted(map(len, (each["topics"] for each in nodes))) == [0, 1]
    host, port = node.http_address
    assert http("POST", address, f"/topic/tombstone?topic=t&node={host}:{port}") == (200, "")
    assert http("GET", address, "/lookup?topic=t")[1]["producers"] == []


def test_an_original_node_learns_the_channels_of_a_new_topic(original, connect) -> None:
    address = original.lookupds[0].http_address
    assert http("POST", address, "/channel/create?topic=t&channel=known") == (200, "")
    assert http("POST", address, "/channel/create?topic=t&channel=gone%23ephemeral") == (200, "")
    connect(original.nsqds[0]).ask(commands.pub("t", b"x"))
    consumer = connect(original.nsqds[0])
    consumer.subscribe(commands.sub("t", "known"))
    assert consumer.message().body == b"x"
    listed = http("GET", original.nsqds[0].http_address, "/stats?format=json")[1]
    assert [each["channel_name"] for each in listed["topics"][0]["channels"]] == ["known"]


def test_a_cluster_of_an_address_makes_topics_on_use(connect) -> None:
    cluster = get("lookups-test", partitions="2", dialect="redesigned", nsqds="2")
    try:
        assert get("lookups-test") is cluster
        address = cluster.lookupds[0].http_address
        answer = http("GET", address, "/lookup?topic=t&access=w&metainfo=true")[1]
        assert set(answer["partitions"]) == {"0", "1"}
        assert connect(cluster.leader("t", 1)).ask(commands.pub("t", b"x", 1)) == b"OK"
        consumer = connect(cluster.leader("t", 1))
        consumer.subscribe(commands.sub("t", "new", 1))
        assert consumer.message().body == b"x"
    finally:
        stop("lookups-test")
    stop("lookups-test")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"nope": "1"}, "'nope'"),
        ({"partitions": "many"}, "partitions='many'"),
        ({"dialect": "klingon"}, "klingon"),
    ],
)
def test_options_of_an_address_are_checked(options, text) -> None:
    with pytest.raises(ValueError, match=text):
        get("never", **options)


def test_options_of_a_cluster_are_checked() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        Cluster(nonsense=1)
    with pytest.raises(ValueError, match="klingon"):
        Cluster(dialect="klingon")
