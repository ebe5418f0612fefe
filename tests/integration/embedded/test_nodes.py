"""Leaders that move, nodes that die, hang and come back."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from nsqsmart.embedded import Cluster
from nsqsmart.wire import commands
from tests.helpers import eventually
from tests.integration.embedded.rawclient import http

NOT_LEADER = "E_FAILED_ON_NOT_LEADER "
NOT_WRITABLE = "E_FAILED_ON_NOT_WRITABLE "
NOT_EXIST = "E_TOPIC_NOT_EXIST "


@pytest.fixture
def cluster(redesigned):
    redesigned.create_topic("t", replicas=3)
    redesigned.create_channel("t", "c")
    return redesigned


def lookup(cluster: Cluster, access: str, which: int = 1) -> dict:
    address = cluster.lookupds[which].http_address
    status, answer = http("GET", address, f"/lookup?topic=t&access={access}&metainfo=true")
    assert status == 200, answer
    return {number: peer["tcp_port"] for number, peer in answer["partitions"].items()}


def port(nsqd) -> int:
    return nsqd.tcp_address[1]


def test_follower_and_outsider_refuse_each_in_its_way(redesigned, connect) -> None:
    redesigned.create_topic("t", replicas=2)
    leader = redesigned.leader("t")
    slot = redesigned._backend._topology.slot("t", 0)
    follower = next(nsqd for nsqd in slot.replicas if nsqd is not leader)
    outsider = next(nsqd for nsqd in redesigned.nsqds if nsqd not in slot.replicas)
    connection = connect(follower)
    for command in (
        commands.pub("t", b"x", 0),
        commands.mpub("t", [b"x"], 0),
        commands.pub_trace("t", b"x", 1, 0),
    ):
        assert connection.refused(command) == NOT_LEADER
    assert connection.refused(commands.pub("t", b"x")) == NOT_EXIST
    assert connection.ended()
    for line in (commands.pub("t", b"x", 0), commands.sub("t", "c", 0)):
        connection = connect(outsider)
        assert connection.refused(line) == NOT_EXIST
        assert connection.ended()
    connection = connect(follower)
    assert connection.refused(commands.sub("t", "c", 0)) == NOT_LEADER
    assert connection.ended()


def test_a_move_refuses_writes_ends_consumers_and_keeps_messages(cluster, connect) -> None:
    old = cluster.leader("t")
    producer, consumer = connect(old), connect(old)
    consumer.subscribe(commands.sub_advanced("t", "c", 0), 5)
    producer.ask(commands.pub("t", b"finished", 0))
    producer.ask(commands.pub("t", b"in hand", 0))
    consumer.finish(consumer.message())
    held = consumer.message()
    new = cluster.move_leader("t", 0)
    assert new is not old
    assert consumer.ended()
    assert producer.refused(commands.pub("t", b"x", 0)) == NOT_LEADER
    assert lookup(cluster, "r") == lookup(cluster, "w") == {"0": port(new)}
    successor = connect(new)
    successor.subscribe(commands.sub_advanced("t", "c", 0), 5)
    again = successor.message()
    assert (again.id, again.offset, again.attempts) == (held.id, held.offset, 1)
    # One id is left out at a switch, no offset.
    connect(new).ask(commands.pub("t", b"next", 0))
    message = successor.message()
    assert message.offset == again.offset + again.size
    assert int.from_bytes(message.id[:8]) == int.from_bytes(again.id[:8]) + 2


def test_while_a_leader_moves_writes_are_refused_and_kept_open(connect) -> None:
    with Cluster(nsqds=2, lookupds=2, move_delay=1) as cluster:
        cluster.create_topic("t", replicas=2)
        cluster.create_channel("t", "c")
        producer = connect(cluster.leader("t"))
        mover = threading.Thread(target=cluster.move_leader, args=("t", 0))
        mover.start()
        try:
            eventually(lambda: lookup(cluster, "w") == {})
            assert producer.refused(commands.pub("t", b"x", 0)) == NOT_WRITABLE
            assert producer.refused(commands.mpub("t", [b"x"], 0)) == NOT_WRITABLE
            assert lookup(cluster, "r") != {}
        finally:
            mover.join()
        assert cluster.stored("t") == []


def test_a_partition_that_takes_no_writes_still_serves_consumers(cluster, connect) -> None:
    producer = connect(cluster.leader("t"))
    producer.ask(commands.pub("t", b"x", 0))
    cluster.set_writable("t", 0, False)
    assert producer.refused(commands.pub_trace("t", b"y", 1, 0)) == NOT_WRITABLE
    assert lookup(cluster, "w") == {}
    assert lookup(cluster, "r") == {"0": port(cluster.leader("t"))}
    consumer = connect(cluster.leader("t"))
    consumer.subscribe(commands.sub("t", "c", 0))
    consumer.finish(consumer.message())
    cluster.set_writable("t", 0, True)
    assert producer.ask(commands.pub("t", b"y", 0)) == b"OK"


def test_a_killed_leader_resets_is_missed_and_followed(connect) -> None:
    with Cluster(nsqds=3, lookupds=2, election_delay=1.5) as cluster:
        cluster.create_topic("t", replicas=3)
        cluster.create_channel("t", "c")
        leader = cluster.leader("t")
        producer, consumer = connect(leader), connect(leader)
        consumer.subscribe(commands.sub("t", "c", 0))
        producer.ask(commands.pub("t", b"x", 0))
        held = consumer.message()
        cluster.kill(leader)
        assert producer.reset()
        assert consumer.reset()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(leader.tcp_address)
        assert lookup(cluster, "r") == lookup(cluster, "w") == {}
        with pytest.raises(LookupError):
            cluster.leader("t")
        eventually(lambda: lookup(cluster, "w") != {})
        new = cluster.leader("t")
        successor = connect(new)
        successor.subscribe(commands.sub("t", "c", 0))
        again = successor.message()
        assert (again.id, again.attempts) == (held.id, 1)
        assert connect(new).ask(commands.pub("t", b"y", 0)) == b"OK"


def test_a_restarted_node_has_its_old_ports_and_its_data(redesigned, connect) -> None:
    redesigned.create_topic("t")
    redesigned.create_channel("t", "c")
    leader = redesigned.leader("t")
    connect(leader).ask(commands.pub("t", b"x", 0))
    address = leader.tcp_address
    redesigned.kill(leader)
    assert lookup(redesigned, "r") == {}
    redesigned.restart(leader)
    assert leader.tcp_address == address
    assert redesigned.leader("t") is leader
    consumer = connect(leader)
    consumer.subscribe(commands.sub("t", "c", 0))
    assert consumer.message().body == b"x"
    with pytest.raises(ValueError, match="is running"):
        redesigned.restart(leader)


@pytest.mark.parametrize("kind", ["nsqds", "lookupds"])
def test_nobody_gets_the_ports_of_a_server_that_is_down(cluster, kind) -> None:
    server = getattr(cluster, kind)[0]
    cluster.kill(server)
    for address in (server.tcp_address, server.http_address):
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(address)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, 5)
    cluster.restart(server)
    cluster.kill(server)
    cluster.close()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(server.tcp_address)


def test_a_dead_follower_hangs_writes_then_refuses_then_is_left_out(cluster, connect) -> None:
    with Cluster(nsqds=3, lookupds=2, election_delay=2.5, replication_timeout=0.8) as cluster:
        cluster.create_topic("t", replicas=3)
        cluster.create_channel("t", "c")
        leader = cluster.leader("t")
        producer, consumer = connect(leader), connect(leader)
        consumer.subscribe(commands.sub("t", "c", 0))
        cluster.kill(next(nsqd for nsqd in cluster.nsqds if nsqd is not leader))
        asked = time.monotonic()
        assert producer.refused(commands.pub("t", b"x", 0)) == NOT_WRITABLE
        assert time.monotonic() - asked >= 0.8
        asked = time.monotonic()
        assert producer.refused(commands.pub("t", b"x", 0)) == NOT_WRITABLE
        assert time.monotonic() - asked < 0.8
        assert lookup(cluster, "w") == {}
        eventually(lambda: lookup(cluster, "w") != {})
        assert producer.ask(commands.pub("t", b"x", 0)) == b"OK"
        assert consumer.message().body == b"x"


def test_without_a_majority_the_leader_resigns(connect) -> None:
    with Cluster(nsqds=2, lookupds=2, election_delay=5, replication_timeout=0.1) as cluster:
        cluster.create_topic("t", replicas=2)
        cluster.create_channel("t", "c")
        leader = cluster.leader("t")
        follower = next(nsqd for nsqd in cluster.nsqds if nsqd is not leader)
        producer, consumer = connect(leader), connect(leader)
        consumer.subscribe(commands.sub("t", "c", 0))
        cluster.kill(follower)
        assert producer.refused(commands.pub("t", b"x", 0)) == NOT_LEADER
        assert consumer.ended()
        refused = connect(leader)
        assert refused.refused(commands.sub("t", "c", 0)) == NOT_LEADER
        assert lookup(cluster, "r") == {"0": port(leader)}
        assert lookup(cluster, "w") == {}
        cluster.restart(follower)
        assert producer.ask(commands.pub("t", b"x", 0)) == b"OK"


def test_a_terminated_leader_hands_over(connect) -> None:
    with Cluster(nsqds=3, lookupds=2, move_delay=1) as cluster:
        cluster.create_topic("t", replicas=3)
        cluster.create_channel("t", "c")
        leader = cluster.leader("t")
        producer, consumer = connect(leader), connect(leader)
        consumer.subscribe(commands.sub("t", "c", 0))
        producer.ask(commands.pub("t", b"x", 0))
        ending = threading.Thread(target=cluster.terminate, args=(leader,))
        ending.start()
        try:
            consumer.message()
            assert consumer.ended()
            text = producer.refused(commands.pub("t", b"x", 0))
            assert text == "E_PUB_FAILED exiting"
            assert producer.refused(commands.mpub("t", [b"x"], 0)) == "E_MPUB_FAILED exiting"
            assert producer.ended()
        finally:
            ending.join()
        assert cluster.leader("t") is not leader
        assert lookup(cluster, "w") == {"0": port(cluster.leader("t"))}


def test_a_hung_leader_says_nothing_and_learns_on_waking(connect) -> None:
    with Cluster(nsqds=3, lookupds=2, election_delay=0.2) as cluster:
        cluster.create_topic("t", replicas=3)
        cluster.create_channel("t", "c")
        leader = cluster.leader("t")
        producer, consumer = connect(leader), connect(leader)
        consumer.subscribe(commands.sub("t", "c", 0))
        producer.ask(commands.pub("t", b"x", 0))
        consumer.message()
        cluster.hang(leader)
        producer.send(commands.pub("t", b"late", 0))
        assert producer.silent(0.1)
        eventually(lambda: lookup(cluster, "w") not in ({}, {"0": port(leader)}))
        late = connect(leader)
        late.send(commands.pub("t", b"later", 0))
        assert producer.silent(0.05)
        cluster.wake(leader)
        assert producer.error() == NOT_LEADER
        assert late.error() == NOT_LEADER
        assert consumer.ended()
        assert [stored.body for stored in cluster.stored("t")] == [b"x"]


def test_an_original_node_that_is_killed_forgets_and_one_that_ends_keeps(original, connect) -> None:
    original.create_topic("t")
    original.create_channel("t", "c")
    node = original.nsqds[0]
    for end, kept in ((original.terminate, 1), (original.kill, 0)):
        connect(node).ask(commands.pub("t", b"x"))
        end(node)
        known = http("GET", original.lookupds[0].http_address, "/lookup?topic=t")[1]
        assert [peer["tcp_port"] for peer in known["producers"]] == [port(original.nsqds[1])]
        original.restart(node)
        assert sum(1 for each in original.stored("t") if each.nsqd == node.name) == kept
        known = http("GET", original.lookupds[1].http_address, "/lookup?topic=t")[1]
        assert len(known["producers"]) == 2


def test_a_lookup_daemon_comes_and_goes(redesigned, original) -> None:
    for cluster in (redesigned, original):
        cluster.create_topic("t")
        lookupd = cluster.lookupds[0]
        cluster.kill(lookupd)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(lookupd.http_address)
        assert http("GET", cluster.lookupds[1].http_address, "/ping") == (200, "OK")
        cluster.restart(lookupd)
        status, answer = http("GET", lookupd.http_address, "/lookup?topic=t")
        assert (status, bool(answer["producers"])) == (200, True)


def test_closing_takes_little_time_whatever_the_nodes_do(connect) -> None:
    cluster = Cluster(nsqds=3, lookupds=2)
    cluster.create_topic("t", replicas=3)
    cluster.create_channel("t", "deaf")
    leader = cluster.leader("t")
    deaf = connect(leader)
    deaf.subscribe(commands.sub("t", "deaf", 0), 2500)
    producer = connect(leader)
    for _ in range(20):
        producer.ask(commands.pub("t", b"x" * 500_000, 0))
    cluster.hang(cluster.nsqds[1])
    connect(cluster.nsqds[1]).send(commands.pub("t", b"x", 0))
    began = time.monotonic()
    cluster.close()
    cluster.close()
    assert time.monotonic() - began < 2
