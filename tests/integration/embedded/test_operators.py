"""What operators ask of the servers: options, single messages, limits, partitions that move."""

from __future__ import annotations

import pytest

from nsqsmart.embedded import Cluster
from nsqsmart.wire import commands
from tests.helpers import eventually
from tests.integration.embedded.rawclient import http


def message(text: str) -> dict[str, str]:
    return {"message": text}


@pytest.fixture
def cluster(redesigned):
    redesigned.create_topic("t", replicas=2)
    redesigned.create_channel("t", "c")
    return redesigned


@pytest.fixture
def ask(cluster):
    """A request to the leader of t, about its channel c."""

    def send(method: str, path: str, more: str = "", **options):
        separator = "&" if "?" in path else "?"
        target = f"{path}{separator}topic=t&partition=0&channel=c{more}"
        return http(method, cluster.leader("t").http_address, target, **options)

    return send


@pytest.fixture
def admin(redesigned):
    """A POST to the leading lookup daemon, or the other one."""

    def send(target: str, which: int = 0):
        return http("POST", redesigned.lookupds[which].http_address, target)

    return send


def test_messages_are_found_by_number_id_and_offset(cluster, connect, ask) -> None:
    producer = connect(cluster.leader("t"))
    for body in (b"a", b"b"):
        producer.ask(commands.pub_trace("t", body, 7, 0))
    second = cluster.stored("t")[1]
    for mode, position in (
        ("count", 1),
        ("id", second.internal_id),
        ("virtual_offset", second.offset),
    ):
        status, found = ask("GET", "/message/get", f"&search_mode={mode}&search_pos={position}")
        assert status == 200
        assert (found["id"], found["body"], found["trace_id"]) == (second.internal_id, "b", 7)
        assert (found["offset"], found["queue_cnt_index"]) == (second.offset, 2)
    beyond = ask("GET", "/message/get", "&search_mode=count&search_pos=2")
    assert beyond == (404, message("commit log end of file"))
    modes = "search mode should be one of id/count/virtual_offset"
    assert ask("GET", "/message/get", "&search_mode=x&search_pos=0") == (400, message(modes))
    assert ask("GET", "/message/stats")[1].startswith("topic t channel c \ninflight 0, ")
    assert ask("GET", "/message/historystats") == (200, {"hourly_pub_size": [0] * 22})
    assert ask("GET", "/serverstats")[1]["health"] == "OK"
    (replicas,) = ask("GET", "/coordinator/stats")[1]["topic_coord_stats"]
    assert (replicas["name"], replicas["partition"], len(replicas["isr_stats"])) == ("t", 0, 2)
    for path in ("/message/trace/enable", "/message/trace/disable", "/channel/fixconfirmed"):
        assert ask("POST", path) == (200, "")


def test_deferred_messages_are_released_or_dropped(cluster, connect, ask) -> None:
    leader = cluster.leader("t")
    producer, consumer = connect(leader), connect(leader)
    consumer.subscribe(commands.sub("t", "c", 0), 5)
    for body in (b"short", b"long"):
        producer.ask(commands.pub("t", body, 0))
    held = {received.body: received.id for received in (consumer.message(), consumer.message())}
    consumer.send(commands.req(held[b"short"], 600_000) + commands.req(held[b"long"], 7_000_000))
    eventually(lambda: len(cluster.log.of("REQ")) == 2)
    # A number that is none means one hour.
    assert ask("POST", "/channel/requeuedelayed", "&offset=x") == (200, "")
    again = consumer.message()
    assert (again.body, again.attempts) == (b"short", 2)
    consumer.send(commands.req(again.id, 600_000))
    eventually(lambda: len(cluster.log.of("REQ")) == 3)
    assert ask("POST", "/channel/finishmemdelayed") == (200, "")
    assert ask("POST", "/channel/emptydelayed") == (200, "")
    stats = ask("GET", "/stats?format=json", legacy=False)[1]["topics"][0]["channels"][0]
    assert (stats["deferred_count"], stats["depth"]) == (0, 0)


def test_clients_may_be_limited(cluster, connect, ask) -> None:
    leader = cluster.leader("t")
    assert ask("POST", "/channel/setclientlimit") == (400, message("INVALID_OPTION"))
    assert ask("POST", "/channel/setclientlimit", "&client_prefix=127.0.&ready=1") == (200, "")
    assert ask("POST", "/channel/setclientlimit", "&client_prefix=10.&ready=2") == (200, "")
    consumer, producer = connect(leader), connect(leader)
    consumer.subscribe(commands.sub("t", "c", 0), 5)
    for body in (b"a", b"b"):
        producer.ask(commands.pub("t", body, 0))
    first = consumer.message()
    assert consumer.silent(0.05)
    consumer.finish(first)
    assert consumer.message().body == b"b"
    assert ask("POST", "/channel/ratelimit", "&ratekilobytes=x") == (400, message("INVALID_OPTION"))
    assert ask("POST", "/channel/ratelimit", "&ratekilobytes=1024") == (200, "")


def test_messages_of_tests_are_passed_over(redesigned, connect, ask) -> None:
    assert ask("POST", "/channel/skipZanTest") == (400, message("INVALID_REQUEST"))
    redesigned.create_topic("e", extend_support=True)
    redesigned.create_channel("e", "c")
    leader = redesigned.leader("e")
    target = "?topic=e&partition=0&channel=c"
    assert http("POST", leader.http_address, f"/channel/skipZanTest{target}") == (200, "")
    consumer, producer = connect(leader), connect(leader)
    consumer.identify(extend_support=True)
    consumer.subscribe(commands.sub("e", "c", 0), 5, extended=True)
    producer.ask(commands.pub_ext("e", b"test", b'{"zan_test":"true"}', 0))
    producer.ask(commands.pub_ext("e", b"real", b"{}", 0))
    assert consumer.message().body == b"real"
    assert http("POST", leader.http_address, f"/channel/unskipZanTest{target}") == (200, "")
    producer.ask(commands.pub_ext("e", b"test", b'{"zan_test":true}', 0))
    assert consumer.message().body == b"test"


def test_topics_get_more_partitions_and_never_fewer(cluster, connect, admin) -> None:
    target = "/topic/partition/expand?topic=t&partition_num="
    assert admin(target + "2", 1) == (500, message("Not nsqlookup leader"))
    assert admin(target + "0") == (400, message("INVALID_ARG_TOPIC_PARTITION_NUM"))
    assert admin(target.replace("=t&", "=no&") + "2") == (500, message("topic is not created"))
    no_node = message("ErrType:9 ErrCode:1 : No node is available for topic")
    assert admin(target + "2") == (500, no_node)
    cluster.create_topic("m", partitions=2, multi_part=True)
    cluster.create_channel("m", "c")
    connect(cluster.leader("m", 1)).ask(commands.pub("m", b"x", 1))
    target = target.replace("=t&", "=m&")
    assert admin(target + "3") == (200, "")
    assert admin(target + "2") == (500, message("the partition number can not be reduced"))
    address = cluster.lookupds[0].http_address
    answers = [
        http("GET", address, f"/lookup?topic=m&metainfo=1&access={access}")[1] for access in "rw"
    ]
    assert [answer["meta"]["partition_num"] for answer in answers] == [3, 3]
    # The new one has no channel, until a consumer subscribes.
    assert [set(answer["partitions"]) for answer in answers] == [{"0", "1", "2"}, {"0", "1"}]
    assert connect(cluster.leader("m", 2)).ask(commands.pub("m", b"y", 2)) == b"OK"
    assert {stored.partition for stored in cluster.stored("m")} == {1, 2}


def test_a_topic_becomes_extended_and_plain_consumers_starve(cluster, connect, admin) -> None:
    leader = cluster.leader("t")
    producer, consumer = connect(leader), connect(leader)
    consumer.subscribe(commands.sub("t", "c", 0), 5)
    target = "/topic/meta/update?topic=t&upgradeext=true"
    assert admin(target, 1) == (400, message("Not nsqlookup leader"))
    assert admin(target.replace("=t&", "=no&")) == (400, message("topic is not created"))
    assert admin("/topic/meta/update") == (400, message("MISSING_ARG_TOPIC"))
    assert admin(target) == (200, "")
    meta = http("GET", cluster.lookupds[1].http_address, "/lookup?topic=t&metainfo=1")[1]["meta"]
    assert meta["extend_support"]
    assert producer.ask(commands.pub("t", b"x", 0)) == b"OK"
    assert consumer.silent(0.05)
    assert connect(leader).refused(commands.sub("t", "c", 0)).startswith("E_SUB_EXTEND_NEED")
    consumer.close()
    reader = connect(leader)
    reader.identify(extend_support=True)
    reader.subscribe(commands.sub("t", "c", 0), 5, extended=True)
    assert reader.message().body == b"x"
    assert admin("/topic/meta/update?topic=t&disable_channel_auto_create=true") == (200, "")
    refused = connect(leader)
    refused.identify(extend_support=True)
    text = refused.refused(commands.sub("t", "new", 0))
    assert text.startswith("E_SUB_CHANNEL_NOT_REGISTERED")


def test_a_partition_moves_from_node_to_node(cluster, connect, admin) -> None:
    def identity(nsqd) -> str:
        return f"127.0.0.1:{nsqd.tcp_address[1] + 2}:{nsqd.tcp_address[1]}:{nsqd.options.node_id}"

    target = "/topic/partition/move?topic=t&partition="
    assert admin(target + "x") == (400, message("INVALID_ARG_TOPIC_PARTITION_NUM"))
    same = message("move to and from node can not be the same")
    assert admin(target + "0&move_leader=true") == (400, same)
    assert admin(target + "7&move_from=a&move_to=b") == (400, message("Key not found"))
    old, follower, outsider = cluster.nsqds
    connect(old).ask(commands.pub("t", b"x", 0))
    moving = f"0&move_leader=true&move_from={identity(old)}&move_to={identity(outsider)}"
    assert admin(target + moving) == (200, "")
    assert cluster.leader("t") is outsider
    assert connect(old).refused(commands.pub("t", b"x", 0)) == "E_TOPIC_NOT_EXIST "
    assert connect(follower).refused(commands.pub("t", b"x", 0)) == "E_FAILED_ON_NOT_LEADER "
    moving = f"0&move_from={identity(follower)}&move_to={identity(old)}"
    assert admin(target + moving) == (200, "")
    assert connect(old).refused(commands.pub("t", b"x", 0)) == "E_FAILED_ON_NOT_LEADER "
    assert connect(follower).refused(commands.pub("t", b"x", 0)) == "E_TOPIC_NOT_EXIST "
    consumer = connect(outsider)
    consumer.subscribe(commands.sub("t", "c", 0))
    assert consumer.message().body == b"x"


def test_the_state_of_the_cluster() -> None:
    with Cluster(nsqds=2, lookupds=2, election_delay=60.0) as cluster:
        leading, other = (each.http_address for each in cluster.lookupds)
        # Never stable without a topic.
        assert not http("GET", leading, "/cluster/stats")[1]["stable"]
        cluster.create_topic("t", replicas=2)
        stats = http("GET", leading, "/cluster/stats")[1]
        assert stats["stable"]
        assert {node["tcp_port"] for node in stats["node_stat_list"]} == {
            nsqd.tcp_address[1] for nsqd in cluster.nsqds
        }
        assert http("GET", other, "/cluster/stats") == (400, message("E_FAILED_ON_NOT_LEADER"))
        cluster.kill(cluster.nsqds[1])
        assert not http("GET", leading, "/cluster/stats")[1]["stable"]
        target = "/topic/partition/expand?topic=t&partition_num=2"
        assert http("POST", leading, target) == (500, message("the cluster is unstable"))
        for path in ("/cluster/node/remove?remove_node=x", "/cluster/upgrade/begin"):
            assert http("POST", leading, path) == (200, "")
            assert http("POST", other, path) == (400, message("Not nsqlookup leader"))


def test_a_lookup_daemon_may_be_hidden(redesigned) -> None:
    address = redesigned.lookupds[0].http_address
    known = http("GET", address, "/listlookup")[1]["lookupdnodes"]
    target = "/cluster/lookupd/tombstone?node="
    assert http("POST", address, target) == (400, message("MISSING_ARG_NODE"))
    assert http("POST", address, target + "x") == (404, message("lookup node id not found"))
    assert http("POST", address, target + known[1]["ID"]) == (200, "")
    assert http("GET", address, "/listlookup")[1]["lookupdnodes"] == known[:1]
    assert http("POST", address, target + known[1]["ID"] + "&restore=1") == (200, "")
    assert http("GET", address, "/listlookup")[1]["lookupdnodes"] == known
    assert http("POST", address, "/loglevel/set") == (400, message("MISSING_ARG_LEVEL"))
