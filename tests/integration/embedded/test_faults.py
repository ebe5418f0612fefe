"""Faults on command, and the log of what was asked."""

from __future__ import annotations

import socket
import time

import pytest

from nsqsmart.embedded import Cluster, faults
from nsqsmart.embedded.faults import FRAMES, FaultUnknown, targets
from nsqsmart.wire import commands
from tests.helpers import eventually
from tests.integration.embedded.rawclient import http


@pytest.fixture
def cluster(redesigned):
    redesigned.create_topic("t", replicas=2)
    redesigned.create_channel("t", "c")
    return redesigned


@pytest.fixture
def producer(cluster, connect):
    return connect(cluster.leader("t"))


PUB = commands.pub("t", b"x", 0)


def test_the_nth_command_fails_and_the_others_do_not(cluster, producer) -> None:
    cluster.faults.add(faults.on("PUB", nth=2).reply("E_PUB_FAILED", "boom"))
    assert producer.ask(PUB) == b"OK"
    assert producer.refused(PUB) == "E_PUB_FAILED boom"
    assert producer.ask(PUB) == b"OK"
    assert len(cluster.stored("t")) == 2


def test_a_fault_may_last_and_be_called_off(cluster, producer) -> None:
    cluster.faults.add(faults.on("PUB", times=faults.ALWAYS).reply("E_PUB_FAILED"))
    for _ in range(3):
        assert producer.refused(PUB) == "E_PUB_FAILED "
    cluster.faults.clear()
    assert producer.ask(PUB) == b"OK"


def test_a_fault_counts_what_matches_it_only(cluster, producer, connect) -> None:
    other = next(nsqd for nsqd in cluster.nsqds if nsqd is not cluster.leader("t"))
    cluster.faults.add(faults.on("PUB", nsqd=other).reply("E_PUB_FAILED"))
    cluster.faults.add(faults.on("PUB", topic="else").reply("E_PUB_FAILED"))
    cluster.faults.add(faults.on("PUB", partition=1).reply("E_PUB_FAILED"))
    assert producer.ask(PUB) == b"OK"
    assert connect(other).refused(PUB) == "E_PUB_FAILED "


def test_what_is_stored_may_be_denied(cluster, producer) -> None:
    cluster.faults.add(faults.on("PUB").store_then_reply("E_PUB_FAILED"))
    assert producer.refused(PUB) == "E_PUB_FAILED "
    assert len(cluster.stored("t")) == 1


def test_connections_end_as_they_are_told_to(cluster, connect) -> None:
    leader = cluster.leader("t")
    for fault, stored in (
        (faults.on("PUB").reset(), 0),
        (faults.on("PUB").store_then_reset(), 1),
    ):
        cluster.faults.add(fault)
        connection = connect(leader)
        connection.send(PUB)
        assert connection.reset()
        assert len(cluster.stored("t")) == stored
    for fault, stored in (
        (faults.on("PUB").close(), 1),
        (faults.on("PUB").store_then_close(), 2),
    ):
        cluster.faults.add(fault)
        connection = connect(leader)
        connection.send(PUB)
        assert connection.ended()
        assert len(cluster.stored("t")) == stored


def test_a_stalled_connection_says_nothing_and_closes_with_the_cluster(connect) -> None:
    with Cluster(client_timeout=0.4) as cluster:
        cluster.create_topic("t")
        connection = connect(cluster.leader("t"))
        cluster.faults.add(faults.on("PUB").stall())
        connection.send(PUB)
        assert connection.silent(0.5)
        assert connect(cluster.leader("t")).ask(PUB) == b"OK"


def test_an_answer_may_be_late_or_garbage(cluster, producer) -> None:
    cluster.faults.add(faults.on("PUB").delay(0.2))
    asked = time.monotonic()
    assert producer.ask(PUB) == b"OK"
    assert time.monotonic() - asked >= 0.2
    cluster.faults.add(faults.on("PUB").garbage(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    producer.send(PUB)
    assert producer._sock.recv(100).startswith(b"HTTP/1.1 400")


def test_a_command_may_move_its_leader(cluster, producer) -> None:
    before = cluster.leader("t")
    cluster.faults.add(faults.on("PUB").move_leader())
    assert producer.refused(PUB) == "E_FAILED_ON_NOT_WRITABLE "
    while (text := producer.refused(PUB)) == "E_FAILED_ON_NOT_WRITABLE ":
        pass
    assert text == "E_FAILED_ON_NOT_LEADER "
    assert cluster.leader("t") is not before


def test_a_refused_sub_or_fin_closes(cluster, connect) -> None:
    cluster.faults.add(faults.on("SUB").reply("E_FAILED_ON_NOT_LEADER"))
    connection = connect(cluster.leader("t"))
    assert connection.refused(commands.sub("t", "c", 0)) == "E_FAILED_ON_NOT_LEADER "
    assert connection.ended()


def test_faults_on_frames(cluster, producer, connect) -> None:
    leader = cluster.leader("t")
    consumer = connect(leader)
    cluster.faults.add(faults.on("MESSAGE", nth=2).reset())
    consumer.subscribe(commands.sub("t", "c", 0), 5)
    producer.ask(PUB)
    consumer.message()
    producer.ask(PUB)
    assert consumer.reset()


def test_faults_on_lookups(cluster) -> None:
    first, second = (each.http_address for each in cluster.lookupds)
    cluster.faults.add(faults.on("/lookup", nsqd=cluster.lookupds[0]).reply("503", "no"))
    assert http("GET", second, "/lookup?topic=t")[0] == 200
    assert http("GET", first, "/lookup?topic=t") == (503, "no")
    assert http("GET", first, "/lookup?topic=t")[0] == 200


@pytest.fixture(params=["original", "redesigned"])
def either(request):
    """A cluster of each dialect, with a topic."""
    cluster = request.getfixturevalue(request.param)
    cluster.create_topic("t")
    cluster.create_channel("t", "c")
    return cluster


def publish(cluster, body=b"x"):
    return http("POST", cluster.nsqds[0].http_address, "/pub?topic=t", body=body)


def test_the_known_targets_are_what_the_servers_have(either) -> None:
    nsqd, lookupd = either.nsqds[0], either.lookupds[0]
    verbs = {verb.decode() for verb in nsqd._commands.handlers}
    paths = {*nsqd._router._routes, *lookupd._router._routes}
    assert targets(either.dialect) == verbs | paths | FRAMES


def test_a_path_of_an_nsqd_answers_a_status_once(either) -> None:
    fault = either.faults.add(faults.on("/pub", nsqd=either.nsqds[0], topic="t").reply("503", "no"))
    assert http("GET", either.nsqds[0].http_address, "/ping")[0] == 200
    assert publish(either) == (503, "no")
    assert (fault.acted, either.stored("t")) == (1, [])
    assert publish(either)[0] == 200


def test_a_path_of_an_nsqd_does_it_and_denies_it(either) -> None:
    either.faults.add(faults.on("/pub").store_then_reply("500", "no"))
    assert publish(either) == (500, "no")
    assert [message.body for message in either.stored("t")] == [b"x"]


def test_a_path_of_an_nsqd_is_late_or_answers_garbage(either) -> None:
    either.faults.add(faults.on("/pub").delay(0.2))
    asked = time.monotonic()
    assert publish(either)[0] == 200
    assert time.monotonic() - asked >= 0.2
    either.faults.add(faults.on("/pub").garbage(b"%%%"))
    assert publish(either) == (200, "%%%")
    assert len(either.stored("t")) == 1


@pytest.mark.parametrize("server", ["nsqds", "lookupds"])
def test_http_connections_end_as_they_are_told_to(either, server) -> None:
    address = getattr(either, server)[0].http_address
    for fault, reset in ((faults.on("/ping").close(), False), (faults.on("/ping").reset(), True)):
        either.faults.add(fault)
        with socket.create_connection(address, 5) as sock:
            sock.sendall(b"GET /ping HTTP/1.1\r\n\r\n")
            if reset:
                with pytest.raises(ConnectionResetError):
                    sock.recv(1)
            else:
                assert sock.recv(1) == b""


@pytest.mark.parametrize("server", ["nsqds", "lookupds"])
def test_a_stalled_path_says_nothing_and_ends_with_its_server(either, server) -> None:
    server = getattr(either, server)[0]
    either.faults.add(faults.on("/ping").stall())
    with socket.create_connection(server.http_address, 0.3) as sock:
        sock.sendall(b"GET /ping HTTP/1.1\r\n\r\n")
        with pytest.raises(TimeoutError):
            sock.recv(1)
        assert http("GET", server.http_address, "/ping")[0] == 200
        either.kill(server)
        sock.settimeout(5)
        assert sock.recv(1) == b""
    either.restart(server)
    either.faults.add(faults.on("/ping").delay(0.2))
    asked = time.monotonic()
    assert http("GET", server.http_address, "/ping")[0] == 200
    assert time.monotonic() - asked >= 0.2


def test_a_fault_on_a_path_may_name_the_partition(cluster) -> None:
    leader = cluster.leader("t").http_address
    cluster.faults.add(faults.on("/pub", partition=0).reply("503"))
    assert http("POST", leader, "/pub?topic=t", body=b"x")[0] == 200
    assert http("POST", leader, "/pub?topic=t&partition=0", body=b"x")[0] == 503


def test_faults_on_messages_of_a_topic(cluster, producer, connect) -> None:
    consumer = connect(cluster.leader("t"))
    other = cluster.faults.add(faults.on("MESSAGE", topic="else").reset())
    fault = cluster.faults.add(faults.on("MESSAGE", nth=2, topic="t", partition=0).reset())
    consumer.subscribe(commands.sub("t", "c", 0), 5)
    producer.ask(PUB)
    consumer.message()
    producer.ask(PUB)
    assert consumer.reset()
    assert (fault.acted, other.seen) == (1, 0)


def test_a_leader_that_cannot_move_leaves_the_session_alive(cluster, producer, caplog) -> None:
    cluster.faults.add(faults.on("PUB").move_leader())
    assert producer.refused(commands.pub("unknown", b"x", 0)).startswith("E_")
    assert "a fault cannot move the leader of 'unknown'/0" in caplog.text
    assert cluster.leader("t").listening


def test_what_a_cluster_can_never_do_is_refused(original, redesigned) -> None:
    with pytest.raises(FaultUnknown, match="original cluster have no leader to move"):
        original.faults.add(faults.on("PUB").move_leader())
    with pytest.raises(FaultUnknown, match=r"move_leader\(\) on /lookup"):
        redesigned.faults.add(faults.on("/lookup").move_leader())
    with pytest.raises(FaultUnknown, match="redesigned servers know no 'DPUB'"):
        redesigned.faults.add(faults.on("DPUB").reset())
    assert not original.faults.armed
    assert not redesigned.faults.armed


def test_a_fault_must_do_something(cluster) -> None:
    with pytest.raises(FaultUnknown, match="say what happens on PUB"):
        cluster.faults.add(faults.on("PUB"))


def test_the_log_has_every_command_in_order(cluster, producer, connect) -> None:
    leader = cluster.leader("t")
    cluster.log.clear()
    consumer = connect(leader)
    consumer.subscribe(commands.sub("t", "c", 0), 1)
    producer.ask(PUB)
    consumer.finish(consumer.message())
    producer.ask(commands.pub("t", b"y"))
    http("GET", cluster.lookupds[0].http_address, "/lookup?topic=t")
    # Nothing answers a FIN.
    eventually(lambda: cluster.log.of("FIN"))
    entries = [
        (entry.nsqd, entry.command, entry.topic, entry.partition)
        for entry in cluster.log
        if entry.command != "RDY"
    ]
    assert entries.count((leader.name, "PUB", "t", 0)) == 1
    assert entries.count((leader.name, "PUB", "t", None)) == 1
    assert (leader.name, "SUB", "t", 0) in entries
    assert (leader.name, "FIN", "t", 0) in entries
    assert (cluster.lookupds[0].name, "GET /lookup", "t", None) in entries
    serials = [entry.serial for entry in cluster.log]
    assert serials == sorted(serials)
    assert [entry.connection for entry in cluster.log.of("PUB", "t")] == [1, 1]
