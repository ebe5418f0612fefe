"""Faults on command, and the log of what was asked."""

from __future__ import annotations

import time

import pytest

from nsqsmart.embedded import Cluster, faults
from nsqsmart.embedded.faults import FaultUnknown
from nsqsmart.wire import commands
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
