"""The scripts of a cluster in trouble, one test each: ordered channels and lookups.

See protocol#scripts.
"""

from __future__ import annotations

import threading
import time

import pytest

from nsqsmart.embedded import Cluster, faults
from nsqsmart.embedded.faults import FaultUnknown
from nsqsmart.wire import commands
from tests.helpers import eventually
from tests.integration.embedded.rawclient import RawClient, http
from tests.integration.embedded.test_scripts import NO_LEADER, led_by, lookup, publish

NOT_WRITABLE = "E_FAILED_ON_NOT_WRITABLE "
SUB_ORDERED = commands.sub_ordered("t", "c", 0)
NO_ETCD = '{"message":"client: etcd cluster is unavailable or misconfigured"}'


def next_message(client: RawClient, failures: list[str]):
    """The next message; error frames before it are noted."""
    while True:
        frame = client.frame()
        assert frame is not None, "the connection ended"
        if frame.type == 2:
            return frame.data
        failures.append(frame.data.decode())


@pytest.mark.parametrize("copies", [1, 2])
def test_ordered_doubles(connect, copies) -> None:
    with Cluster(nsqds=2, ordered_copies=copies) as cluster:
        cluster.create_topic("t", replicas=2, ordered=True)
        cluster.create_channel("t", "c")
        for leader in (cluster.leader("t"), cluster.nsqds[1]):
            if leader is not cluster.leader("t"):
                cluster.move_leader("t", 0)
            publish(connect(leader), b"first", b"second")
            consumer = connect(leader)
            consumer.subscribe(SUB_ORDERED, 5)
            failures: list[str] = []
            first = next_message(consumer, failures)
            message_id = first[10:26]
            consumer.send(commands.fin(message_id))
            for _ in range(copies):
                # Every copy is the same to the byte, and none counts as another attempt.
                assert next_message(consumer, failures) == first
            # A FIN of a copy that was too early has failed; one of the last one has not.
            consumer.send(commands.fin(message_id))
            second = next_message(consumer, failures)
            assert second.endswith(b"second")
            consumer.send(commands.fin(second[10:26]))
            # No other message is doubled; a refused FIN may be heard of late.
            while not consumer.silent(0.05):
                failures.append(consumer.error())
            for text in failures:
                assert text.startswith("E_FIN_FAILED FIN [0 0 ")
                assert text.endswith("Message ID not in flight")


@pytest.mark.parametrize("ordered", [True, False])
def test_a_channel_without_fin_is_lost_at_a_switch(connect, ordered) -> None:
    with Cluster(nsqds=3, lookupds=1, young_channels_lost=True) as cluster:
        cluster.create_topic("t", replicas=3, ordered=ordered)
        leader = cluster.leader("t")
        line = SUB_ORDERED if ordered else commands.sub_advanced("t", "c", 0)
        connect(leader).subscribe(line, 0)
        publish(connect(leader), b"a", b"b")
        cluster.kill(leader)
        eventually(lambda: lookup(cluster, "r") != NO_LEADER)
        new = cluster.leader("t")
        if not ordered:
            assert lookup(cluster, "w")[0] == 404
        consumer = connect(new)
        consumer.subscribe(line, 1)
        assert consumer.silent(0.05)
        stats = http("GET", new.http_address, "/stats?format=json&topic=t")[1]["topics"][0]
        assert (stats["message_count"], stats["channels"][0]["depth"]) == (2, 0)
        # They can be had back, on the connection that is there (protocol#ordered-cluster).
        target = "/channel/setoffset?topic=t&partition=0&channel=c"
        assert http("POST", new.http_address, target, body=b"virtual_queue:0")[0] == 200
        message = consumer.message()
        assert (message.body, message.offset, message.attempts) == (b"a", 0, 1)


def test_a_channel_with_a_fin_is_not_lost(connect) -> None:
    with Cluster(nsqds=2, young_channels_lost=True) as cluster:
        cluster.create_topic("t", replicas=2, ordered=True)
        consumer = connect(cluster.leader("t"))
        consumer.subscribe(SUB_ORDERED)
        publish(connect(cluster.leader("t")), b"a", b"b")
        consumer.finish(consumer.message())
        consumer.message()
        successor = connect(cluster.move_leader("t"))
        successor.subscribe(SUB_ORDERED)
        assert successor.message().body == b"b"


def test_fin_without_quorum(connect) -> None:
    with Cluster(nsqds=2, lookupds=1) as cluster:
        cluster.create_topic("t", replicas=2, ordered=True)
        cluster.create_channel("t", "c")
        leader, follower = cluster.leader("t"), cluster.nsqds[1]
        publish(connect(leader), b"a", b"b")
        cluster.kill(follower)
        slot = cluster._backend._topology.slot("t", 0)
        eventually(lambda: slot.in_sync == {leader})
        for _ in range(5):
            consumer = connect(leader)
            consumer.subscribe(SUB_ORDERED)
            message = consumer.message()
            assert (message.body, message.attempts) == (b"a", 1)
            assert consumer.refused(commands.fin(message.id)) == NOT_WRITABLE
            assert consumer.ended()
        cluster.restart(follower)
        consumer = connect(leader)
        consumer.subscribe(SUB_ORDERED)
        consumer.finish(consumer.message())
        assert consumer.message().body == b"b"


def test_fin_while_a_follower_is_silent(connect) -> None:
    with Cluster(nsqds=2, lookupds=1, election_delay=60.0, replication_timeout=0.3) as cluster:
        cluster.create_topic("t", replicas=2, ordered=True)
        cluster.create_channel("t", "c")
        leader, follower = cluster.leader("t"), cluster.nsqds[1]
        publish(connect(leader), b"a", b"b")
        consumer = connect(leader)
        consumer.subscribe(SUB_ORDERED)
        first = consumer.message()
        cluster.kill(follower)
        asked = time.monotonic()
        consumer.finish(first)
        # The leader has it, and goes on; only then it learns that no follower has it.
        assert consumer.message().body == b"b"
        assert consumer.error() == NOT_WRITABLE
        assert time.monotonic() - asked >= 0.25
        assert consumer.ended()
        # Nothing was published: the leader has not resigned, and does not repeat the first.
        consumer = connect(leader)
        consumer.subscribe(SUB_ORDERED)
        second = consumer.message()
        assert (second.body, second.attempts) == (b"b", 1)
        consumer.finish(second)
        cluster.restart(follower)
        publish(connect(leader), b"c")
        assert consumer.message().body == b"c"


@pytest.fixture
def noisy(redesigned):
    redesigned.create_topic("t", replicas=2)
    redesigned.create_channel("t", "c")
    return redesigned


def test_lookups_without_partitions(noisy) -> None:
    leader = noisy.leader("t")
    noise = faults.on("/lookup", nsqd=noisy.lookupds[0], times=faults.ALWAYS).no_partitions()
    noisy.faults.add(noise)
    address = noisy.lookupds[0].http_address
    for _ in range(3):
        assert lookup(noisy, "r") == lookup(noisy, "w") == NO_LEADER
        status, known = http("GET", address, "/lookup?topic=t&metainfo=true", legacy=True)
        assert (status, known["status_txt"]) == (200, "OK")
        assert known["data"]["producers"] == []
        assert known["data"]["meta"]["partition_num"] == 1
        assert lookup(noisy, "w", 1) == led_by(leader)
    noisy.faults.remove(noise)
    assert lookup(noisy, "w") == led_by(leader)
    with pytest.raises(FaultUnknown, match="only /lookup"):
        noisy.faults.add(faults.on("/nodes").no_partitions())


def test_listlookup_without_etcd(noisy) -> None:
    noisy.faults.add(faults.on("/listlookup", times=2).reply("500", NO_ETCD))
    for lookupd, status in zip(noisy.lookupds + noisy.lookupds, (500, 500, 200, 200), strict=True):
        assert http("GET", lookupd.http_address, "/listlookup")[0] == status
        assert lookup(noisy, "w") == led_by(noisy.leader("t"))


def test_a_stale_leader_of_the_lookups(connect) -> None:
    with Cluster(nsqds=1, lookupds=2, election_delay=1.5) as cluster:
        dead, left = cluster.lookupds

        def listed() -> tuple[str, set[str]]:
            known = http("GET", left.http_address, "/listlookup")[1]
            nodes = {node["HttpPort"] for node in known["lookupdnodes"]}
            return known["lookupdleader"]["HttpPort"], nodes

        ports = [str(each.http_address[1]) for each in (dead, left)]
        cluster.kill(dead)
        assert listed() == (ports[0], set(ports))
        target = "/topic/create?topic=t&partition_num=1&replicator=1"
        refused = 400, {"message": "E_FAILED_ON_NOT_LEADER"}
        assert http("POST", left.http_address, target) == refused
        seen = []
        eventually(lambda: seen.append(listed()) or seen[-1] == (ports[1], {ports[1]}))
        # For a while it is listed, although another leads.
        assert (ports[1], set(ports)) in seen
        assert http("POST", left.http_address, target) == (200, "")


def test_lookups_out_of_step(noisy) -> None:
    old = noisy.leader("t")
    stale = noisy.lookupds[1]
    noisy.freeze(stale)
    new = noisy.move_leader("t", 0)
    noisy.create_topic("other")
    assert lookup(noisy, "w", 0) == led_by(new)
    assert lookup(noisy, "w", 1) == lookup(noisy, "r", 1) == led_by(old)
    assert http("GET", stale.http_address, "/topics")[1] == {"topics": ["t"]}
    producers = http("GET", stale.http_address, "/nodes")[1]["producers"]
    assert [each["tcp_port"] for each in producers if each["topics"]] == [old.tcp_address[1]]
    noisy.thaw(stale)
    assert lookup(noisy, "w", 1) == led_by(new)


def test_lookups_of_an_original_cluster_are_told_by_nsqds(original) -> None:
    with pytest.raises(ValueError, match="cannot be frozen"):
        original.freeze(original.lookupds[0])


def test_a_leader_may_be_asked_for_while_it_moves(noisy) -> None:
    mover = threading.Thread(target=noisy.move_leader, args=("t", 0))
    mover.start()
    eventually(lambda: noisy.leader("t") is not noisy.nsqds[0])
    mover.join()
