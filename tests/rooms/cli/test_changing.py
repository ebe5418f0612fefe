"""``topic`` and ``channel``, and the HTTP addresses of lone nsqds."""

from __future__ import annotations

import pytest

from nsqsmart import Admin, Producer
from nsqsmart.embedded import Cluster
from nsqsmart.errors import ConfigError, DiscoveryError, NotSupported
from tests.helpers import eventually
from tests.programs import free_ports


def lone(cluster):
    """The flags for every nsqd of *cluster* without its lookups."""
    tcp = ",".join(nsqd.name for nsqd in cluster.nsqds)
    http = ",".join("{}:{}".format(*nsqd.http_address) for nsqd in cluster.nsqds)
    return ("--url", f"nsq://{tcp}", "--nsqd-http-addresses", http)


@pytest.fixture
def original():
    with Cluster(dialect="original", nsqds=2) as cluster:
        yield cluster


def channels(cluster):
    """What is in each channel, and whether it is paused, over all nsqds."""
    found = {}
    for entry in Admin(cluster.url).stats("orders").topics:
        for each in entry.channels:
            depth, _ = found.get(each.channel, (0, False))
            found[each.channel] = depth + each.depth, each.paused
    return found


@pytest.mark.parametrize("direct", [False, True])
def test_topics_and_channels_of_an_original_cluster(original, nsqsmart, direct):
    where = lone(original) if direct else ("--url", original.url)

    def run(*words):
        code, out, err = nsqsmart(*words, *where)
        assert (code, err) == (0, "")
        return out

    assert (
        run("topic", "create", "orders", "bills") == "topic orders: created\ntopic bills: created\n"
    )
    assert run("channel", "create", "orders", "a", "b").count("created") == 2
    with Producer(original.url) as producer:
        producer.publish_many("orders", [b"x"] * 4)
    eventually(lambda: channels(original)["a"] == (4, False))
    assert run("channel", "pause", "orders", "a") == "channel orders/a: paused\n"
    assert channels(original)["a"] == (4, True)
    run("channel", "unpause", "orders", "a")
    assert channels(original)["a"] == (4, False)
    assert run("channel", "empty", "orders", "a") == "channel orders/a: emptied\n"
    assert channels(original) == {"a": (0, False), "b": (4, False)}
    for verb in ("pause", "unpause", "empty"):
        run("topic", verb, "orders")
    run("channel", "delete", "orders", "a")
    assert set(channels(original)) == {"b"}
    assert run("topic", "delete", "orders", "bills").count("deleted") == 2
    assert Admin(original.url).stats().topics == ()


def test_a_redesigned_topic_with_its_settings(redesigned, nsqsmart):
    words = ("--partitions", 2, "--replicas", 2, "--ordered", "--extend-support")
    (told,) = nsqsmart.records("topic", "create", "bills", *words, "--url", redesigned.url)
    assert told == {"topic": "bills", "done": "created"}
    found = Admin(redesigned.url).topology("bills")
    assert (found.partition_num, found.meta.replicas) == (2, 2)
    assert (found.meta.ordered, found.meta.extended) == (True, True)
    (told,) = nsqsmart.records("channel", "create", "bills", "c", "--url", redesigned.url)
    assert told == {"topic": "bills", "channel": "c", "done": "created"}
    code, _, err = nsqsmart("topic", "pause", "bills", "--url", redesigned.url)
    assert (code, "pause its channels" in err) == (1, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("topic", "delete", "nowhere"), 1, "there is no topic 'nowhere'"),
        (("channel", "create", "nowhere", "c"), 1, "there is no topic 'nowhere'"),
        (("topic", "crate", "orders"), 2, "choose from 'create'"),
        (("topic", "create", "or ders"), 1, "or ders"),
        (("topic", "delete", "orders", "--partitions", "2"), 2, "--partitions goes with create"),
        (("channel", "create", "orders"), 2, "CHANNEL"),
    ],
)
def test_mistakes(original, nsqsmart, words, code, said):
    found, _, err = nsqsmart(*words, "--url", original.url)
    assert (found, said in err) == (code, True), err


@pytest.mark.parametrize("command", ["stat", "lookup"])
def test_commands_that_look_work_with_lone_nsqds(cluster, nsqsmart, command):
    cluster.create_topic("orders")
    cluster.create_channel("orders", "c")
    code, out, err = nsqsmart(command, *lone(cluster))
    assert (code, err) == (0, "")
    assert "orders" in out


def test_the_dash_works_with_lone_nsqds(cluster):
    from nsqsmart.cli.commands.dash import ClusterFigures

    cluster.create_topic("orders")
    nsqd = cluster.nsqds[0]
    address = f"nsq://{nsqd.name}?nsqd_http_addresses={'{}:{}'.format(*nsqd.http_address)}"
    found = ClusterFigures(Admin(address), 0).now()
    assert found["error"] is None
    assert [each["topic"] for each in found["topics"]] == ["orders"]
    assert [each["nsqd"] for each in found["nodes"]] == [nsqd.name]


def test_a_lone_redesigned_nsqd_is_looked_at_and_not_changed(redesigned):
    redesigned.create_topic("orders")
    nsqd = redesigned.nsqds[0]
    admin = Admin(f"nsq://{nsqd.name}", nsqd_http_addresses="{}:{}".format(*nsqd.http_address))
    assert [node.dialect for node in admin.nodes()] == ["redesigned"]
    for change in (admin.create_topic, admin.delete_topic):
        with pytest.raises(NotSupported, match="takes that from its nsqlookupd"):
            change("orders")


def test_an_nsqd_that_does_not_answer_is_named(original):
    up, (tcp, http) = original.nsqds[0], free_ports(2)
    admin = Admin(
        f"nsq://{up.name},127.0.0.1:{tcp}",
        nsqd_http_addresses="{}:{},127.0.0.1:{}".format(*up.http_address, http),
    )
    assert [each.nsqd for each in admin.stats().unreachable] == [f"127.0.0.1:{tcp}"]
    silent = Admin(f"nsq://127.0.0.1:{tcp}", nsqd_http_addresses=f"127.0.0.1:{http}")
    with pytest.raises(DiscoveryError, match=f"no nsqd answers over HTTP .*:{http}"):
        silent.create_topic("orders")


@pytest.mark.parametrize(
    ("address", "given", "said"),
    [
        ("nsq+lookupd://h:4161", "h:4151", "lookups tell"),
        ("nsq+embedded://any", "h:4151", "lookups tell"),
        ("nsq://h:4150,i:4150", "h:4151", "one for each nsqd"),
        ("nsq://h:4150", "h:no", "port"),
    ],
)
def test_http_addresses_that_cannot_be(address, given, said):
    with pytest.raises(ConfigError, match=said):
        Admin(address, nsqd_http_addresses=given)


def test_without_them_the_error_names_the_option(original):
    with pytest.raises(ConfigError, match="nsqd_http_addresses=HOST:4151"):
        Admin(f"nsq://{original.nsqds[0].name}").stats()
