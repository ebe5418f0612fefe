"""What operators do every day, on every server: embedded and real, original and redesigned."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from itertools import count

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster, stop
from nsqsmart.errors import (
    AdminError,
    NotSupported,
    OrderingNotSupported,
    PublishError,
    TopicNotExist,
)
from nsqsmart.names import Dialect
from nsqsmart.policy.answers.lookup import TopicState
from tests.helpers import eventually
from tests.integration.consuming import Handled
from tests.sites import Site, Start, running_sites, sites

# Real redesigned clusters take up to two minutes to open a topic.
pytestmark = pytest.mark.timeout(400)
_PATIENCE = 180
_numbers = count(1)


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> Iterator[Start]:
    with running_sites(tmp_path_factory.mktemp) as find:
        yield find


@pytest.fixture(scope="module", params=sites("original", "redesigned"))
def site(request, start) -> Site:
    return start(request.param)


@pytest.fixture(scope="module", params=sites("original"))
def original(request, start) -> Site:
    return start(request.param)


@pytest.fixture(scope="module", params=sites("redesigned"))
def redesigned(request, start) -> Site:
    return start(request.param)


def admin_of(site: Site, **options: object) -> nsqsmart.Admin:
    return nsqsmart.Admin(site.url, **({"admin_timeout": _PATIENCE} | options))


def new_topic() -> str:
    return f"admin{next(_numbers)}"


def unfinished(admin: nsqsmart.Admin, topic: str, channel: str = "c") -> int:
    """Messages that wait in a channel, wherever it is."""
    found = admin.stats(topic, channel).topics
    return sum(each.unfinished for topic in found for each in topic.channels)


def paused(admin: nsqsmart.Admin, topic: str) -> set[bool]:
    return {each.paused for found in admin.stats(topic).topics for each in found.channels}


def publish(site: Site, topic: str, number: int, **options: object) -> None:
    with nsqsmart.Producer(site.url) as producer:
        for serial in range(number):
            producer.publish(topic, b"%d" % serial, timeout=_PATIENCE, **options)


def test_the_life_of_a_topic_and_a_channel(site):
    admin, topic = admin_of(site), new_topic()
    admin.create_topic(topic)
    admin.create_channel(topic, "c")
    # Both are fine when they are there.
    admin.create_topic(topic)
    admin.create_channel(topic, "c")
    eventually(lambda: topic in admin.topics(), _PATIENCE, every=0.1)

    publish(site, topic, 6)
    eventually(lambda: unfinished(admin, topic) == 6, 20, every=0.05)
    (message_counts,) = {sum(each.message_count for each in admin.stats(topic).topics)}
    assert message_counts == 6
    assert admin.stats().unreachable == ()

    admin.pause_channel(topic, "c")
    assert paused(admin, topic) == {True}
    admin.unpause_channel(topic, "c")
    assert paused(admin, topic) == {False}
    admin.empty_channel(topic, "c")
    assert unfinished(admin, topic) == 0

    with pytest.raises(AdminError, match="CHANNEL_NOT_FOUND"):
        admin.pause_channel(topic, "none")
    admin.delete_channel(topic, "none")
    admin.delete_channel(topic, "c")
    assert all(each.channels == () for each in admin.stats(topic).topics)
    assert admin.stats(topic, "c").topics == ()
    admin.delete_topic(topic)
    eventually(lambda: topic not in admin.topics(), 20, every=0.1)
    # A real lookup may name the last leader for a moment longer.
    unknown = TopicState.UNKNOWN
    eventually(lambda: admin.topology(topic).state is unknown, 20, every=0.1)
    eventually(lambda: admin.stats(topic).topics == (), 20, every=0.1)
    for change in (admin.delete_topic, lambda name: admin.pause_channel(name, "c")):
        with pytest.raises(TopicNotExist):
            change(topic)


def test_nodes_are_listed_and_can_be_probed(site):
    admin = admin_of(site)
    nodes = admin.nodes()
    assert len(nodes) == (2 if site.dialect == "original" else 3)
    for node in nodes:
        assert node.dialect is Dialect(site.dialect)
        assert node.http.startswith("127.0.0.1:")
        found = admin.probe(node.nsqd)
        assert found.ok
        assert (found.version, found.dialect) == (node.version, node.dialect)
        assert [step.name for step in found.steps][:3] == ["resolve", "connect", "identify"]
    direct = nsqsmart.Admin("nsq://" + ",".join(node.nsqd for node in nodes))
    assert [(each.nsqd, each.version) for each in direct.nodes()] == [
        (each.nsqd, each.version) for each in nodes
    ]
    assert not admin.probe("127.0.0.1:1").ok


def test_what_an_original_cluster_has_alone(original):
    admin, topic = admin_of(original), new_topic()
    for settings in ({"partitions": 2}, {"ordered": True}, {"extend_support": True}):
        with pytest.raises(NotSupported):
            admin.create_topic(topic, **settings)
    admin.create_topic(topic)
    publish(original, topic, 3)
    waiting = admin.stats(topic).topics
    assert (sum(each.depth for each in waiting), len(waiting)) == (3, 2)
    admin.pause_topic(topic)
    assert {each.paused for each in admin.stats(topic).topics} == {True}
    admin.unpause_topic(topic)
    assert {each.paused for each in admin.stats(topic).topics} == {False}
    admin.empty_topic(topic)
    assert sum(each.depth for each in admin.stats(topic).topics) == 0
    eventually(lambda: len(admin.topology(topic).nodes) == 2, 20, every=0.1)
    with pytest.raises(NotSupported):
        admin.set_offset(topic, "c", 0, "start")
    with pytest.raises(NotSupported):
        admin.set_order(topic, "c", True)
    admin.delete_topic(topic)


def test_what_a_redesigned_cluster_has_alone(redesigned):
    admin, topic = admin_of(redesigned), new_topic()
    admin.create_topic(topic, partitions=2, replicas=2, ordered=True)
    with pytest.raises(AdminError, match="is there already, with other settings: partitions=2"):
        admin.create_topic(topic, partitions=3, replicas=2, ordered=True)
    admin.create_channel(topic, "c")
    topology = admin.topology(topic)
    assert topology.partition_num == len(topology.leaders) == 2
    assert topology.meta.ordered
    with pytest.raises(NotSupported):
        admin.pause_topic(topic)
    # An empty partition has nothing to choose from.
    admin.set_offset(topic, "c", 1, "start")

    publish(redesigned, topic, 4, partition=1)
    eventually(lambda: unfinished(admin, topic) == 4, 20, every=0.05)
    found = admin.stats(topic).topics
    assert [(each.partition, each.leader, each.message_count) for each in found] == [
        (0, True, 0),
        (1, True, 4),
    ]
    assert [each.stored_bytes for each in found] == [0, 124]
    for position, left in (("end", 0), ("start", 4), (31, 3), ("special:-1", 0)):
        admin.set_offset(topic, "c", 1, position)
        assert unfinished(admin, topic) == left
    admin.set_order(topic, "c", True)
    admin.set_order(topic, "c", False)
    admin.delete_topic(topic)


def test_what_was_rewound_is_what_a_consumer_gets(redesigned):
    admin, topic, handled = admin_of(redesigned), new_topic(), Handled()
    admin.create_topic(topic, partitions=2)
    admin.create_channel(topic, "c")
    publish(redesigned, topic, 4, partition=0)
    admin.empty_channel(topic, "c")
    admin.set_offset(topic, "c", 0, 62)
    with nsqsmart.Consumer(topic, "c", handled, address=redesigned.url):
        eventually(lambda: {b"2", b"3"} <= set(handled.bodies()), 30)
    # A real nsqd had the first message in its hand when it was told, and gives it away.
    assert set(handled.bodies()) <= {b"0", b"2", b"3"}
    admin.delete_topic(topic)


# ------------------------------------------------------------------------- trouble, embedded only


def test_a_topic_that_takes_its_time_gets_its_channel_all_the_same():
    with Cluster(nsqds=3, lookupds=2, create_delay=0.4) as cluster:
        admin = nsqsmart.Admin(cluster.url, lookupd_min_refresh_interval=0.05)
        admin.create_topic("t", partitions=2)
        admin.create_channel("t", "c")
        with nsqsmart.Producer(cluster.url) as producer:
            assert producer.publish("t", b"x", partition=1, timeout=20).partition == 1


def test_a_channel_is_made_while_leaders_move_and_die():
    with Cluster(nsqds=3, lookupds=2, election_delay=0.3) as cluster:
        cluster.create_topic("t", partitions=2, replicas=3)
        cluster.kill(cluster.leader("t", 0))
        admin = nsqsmart.Admin(cluster.url, lookupd_min_refresh_interval=0.05)
        admin.create_channel("t", "c")
        assert all(each.channels for each in admin.stats("t").topics)
        cluster.kill(cluster.lookupds[0])
        admin.create_topic("u", replicas=2)
        admin.create_channel("u", "c")


def test_a_hung_nsqd_is_named_and_the_others_have_done_it():
    with Cluster(dialect="original", nsqds=2, lookupds=1) as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        admin = nsqsmart.Admin(cluster.url, response_timeout=0.5)
        eventually(lambda: all("t" in node.topics for node in admin.nodes()))
        hung, other = cluster.nsqds
        cluster.hang(hung)
        try:
            with pytest.raises(AdminError) as caught:
                admin.pause_channel("t", "c")
            stats = admin.stats("t")
        finally:
            cluster.wake(hung)
        assert [each.node for each in caught.value.failed] == [hung.name]
        assert [each.node for each in caught.value.done] == [other.name]
        assert [each.nsqd for each in stats.unreachable] == [hung.name]
        assert [each.nsqd for each in stats.topics] == [other.name]


def test_channels_that_only_lookups_may_make():
    with Cluster(nsqds=3, lookupds=2) as cluster:
        cluster.create_topic("t", partitions=2, disable_channel_auto_create=True)
        admin = nsqsmart.Admin(cluster.url)
        admin.create_channel("t", "c")
        admin.create_channel("t", "c")
        assert [len(each.channels) for each in admin.stats("t").topics] == [1, 1]
        admin.delete_channel("t", "c")
        assert [len(each.channels) for each in admin.stats("t").topics] == [0, 0]


def test_names_that_need_care_in_an_address():
    with Cluster(nsqds=1, lookupds=1, dialect="original") as cluster:
        admin = nsqsmart.Admin(cluster.url)
        admin.create_topic("t#ephemeral")
        admin.create_channel("t#ephemeral", "c#ephemeral")
        (found,) = admin.stats("t#ephemeral", "c#ephemeral").topics
        assert (found.topic, found.channels[0].channel) == ("t#ephemeral", "c#ephemeral")
        eventually(lambda: admin.topology("t#ephemeral").nodes)


def test_the_embedded_cluster_of_first_steps():
    admin = nsqsmart.Admin("nsq+embedded://admin")
    try:
        admin.create_topic("orders", partitions=3, ordered=True)
        admin.create_channel("orders", "billing")
        assert admin.topics() == ["orders"]
        assert admin.topology("orders").partition_num == 3
        admin.delete_topic("orders")
        assert admin.topics() == []
    finally:
        stop("admin")


def test_threads_share_an_admin_and_so_do_forks():
    with Cluster(nsqds=2, lookupds=2) as cluster:
        cluster.create_topic("t", partitions=2)
        admin = nsqsmart.Admin(cluster.url)
        threads = [
            threading.Thread(target=admin.create_channel, args=("t", f"c{number}"))
            for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        child = os.fork()
        if not child:
            try:
                admin.create_channel("t", "child")
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        for found in admin.stats("t").topics:
            assert {each.channel for each in found.channels} == {
                "child",
                *(f"c{number}" for number in range(8)),
            }


def test_where_nothing_is_published_no_error_is_a_publish_error():
    with Cluster(dialect="original", lookupds=1) as cluster:
        cluster.create_topic("t")
        admin = nsqsmart.Admin(cluster.url)
        ordered = nsqsmart.Consumer("t", "c", print, address=cluster.url, ordered=True)
        calls = {
            TopicNotExist: lambda: admin.delete_topic("missing"),
            NotSupported: lambda: admin.set_order("t", "c", True),
            OrderingNotSupported: ordered.start,
        }
        for kind, call in calls.items():
            with pytest.raises(kind) as caught:
                call()
            assert not isinstance(caught.value, PublishError)
        with nsqsmart.Producer(cluster.url) as producer:
            with pytest.raises(OrderingNotSupported) as caught:
                producer.publish("t", b"x", key="k")
            assert isinstance(caught.value, PublishError)
