"""The scripts of a cluster in trouble, one test each: nodes and leaders (protocol#scripts)."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from nsqsmart.embedded import REAL_TIMES, Cluster
from nsqsmart.wire import commands
from tests.helpers import eventually
from tests.integration.embedded.rawclient import RawClient, http

NOT_LEADER = "E_FAILED_ON_NOT_LEADER "
NOT_WRITABLE = "E_FAILED_ON_NOT_WRITABLE "
QUEUED = "pub timeout while pop wait queue"

PUB = commands.pub("t", b"single", 0)
MPUB = commands.mpub("t", [b"one", b"two"], 0)
TRACED = commands.pub_trace("t", b"traced", 1, 0)


def lookup(cluster: Cluster, access: str, which: int = 0):
    """Status, and who leads each partition (or what is said instead)."""
    address = cluster.lookupds[which].http_address
    status, answer = http("GET", address, f"/lookup?topic=t&access={access}&metainfo=true")
    if status != 200:
        return status, answer["message"]
    return status, {number: peer["tcp_port"] for number, peer in answer["partitions"].items()}


def led_by(nsqd):
    return 200, {"0": nsqd.tcp_address[1]}


NO_LEADER = 200, {}


def refuses(nsqd) -> bool:
    """Whether its port is closed."""
    try:
        socket.create_connection(nsqd.tcp_address).close()
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    return False


def publish(client: RawClient, *bodies: bytes) -> None:
    for body in bodies:
        assert client.ask(commands.pub("t", body, 0)) == b"OK"


def answer(client: RawClient, command: bytes) -> str:
    client.send(command)
    frame = client.frame()
    assert frame is not None, "the connection ended"
    return frame.data.decode("latin-1")


def answers_until_ok(client: RawClient, command: bytes) -> list[str]:
    """The different answers, in order, the last one OK."""
    seen: list[str] = []
    while "OK" not in seen:
        text = answer(client, command)
        if text not in seen:
            seen.append(text)
    return seen


def test_create_slow(connect) -> None:
    with Cluster(nsqds=2, lookupds=2, create_delay=3.0) as cluster:
        address = cluster.lookupds[0].http_address
        target = "/topic/create?topic=t&partition_num=1&replicator=1"
        assert http("POST", address, target) == (200, "")
        assert lookup(cluster, "w") == lookup(cluster, "r") == NO_LEADER
        meta = http("GET", address, "/lookup?topic=t&access=w&metainfo=true")[1]["meta"]
        assert meta["partition_num"] == 1
        eventually(lambda: lookup(cluster, "r") != NO_LEADER)
        (node,) = [each for each in cluster.nsqds if led_by(each) == lookup(cluster, "r")]
        assert lookup(cluster, "w") == NO_LEADER
        assert answers_until_ok(connect(node), PUB) == [NOT_LEADER, NOT_WRITABLE, "OK"]
        status, text = lookup(cluster, "w")
        assert (status, text.startswith("Topic has no channel")) == (404, True)
        connect(node).subscribe(commands.sub("t", "c", 0))
        assert lookup(cluster, "w") == led_by(node)


def test_a_leader_that_is_not_ready_refuses_sub_too(connect) -> None:
    # Each answer is given for seconds: a busy machine may ask only once in one.
    with Cluster(nsqds=1, create_delay=2.5) as cluster:
        cluster.create_topic("t")
        seen = set()

        def is_ready() -> bool:
            seen.add(answer(connect(cluster.nsqds[0]), commands.sub("t", "c", 0)))
            return "OK" in seen

        eventually(is_ready, timeout=30, every=0.05)
        assert seen == {NOT_LEADER, NOT_WRITABLE, "OK"}


def test_move(connect) -> None:
    options = {"move_delay": 1.5, "redeliver_at_move": True, "positions_lost": 1}
    with Cluster(nsqds=2, lookupds=2, **options) as cluster:
        cluster.create_topic("t", replicas=2)
        cluster.create_channel("t", "c")
        old, new = cluster.leader("t"), cluster.nsqds[1]
        producer, consumer = connect(old), connect(old)
        consumer.subscribe(commands.sub_advanced("t", "c", 0), 2)
        publish(producer, b"finished", b"in hand")
        first, held = consumer.message(), consumer.message()
        consumer.finish(first)
        eventually(lambda: len(cluster.log.of("FIN")) == 1)
        mover = threading.Thread(target=cluster.move_leader, args=("t", 0, new))
        mover.start()
        eventually(lambda: lookup(cluster, "w") == NO_LEADER)
        assert producer.refused(PUB) == producer.refused(MPUB) == NOT_WRITABLE
        assert lookup(cluster, "r") == led_by(old)
        again = consumer.message()
        assert (again.id, again.attempts) == (held.id, 1)
        assert consumer.ended()
        assert producer.refused(PUB) == NOT_LEADER
        assert lookup(cluster, "r") == led_by(new)
        mover.join()
        assert lookup(cluster, "w") == led_by(new)
        successor = connect(new)
        successor.subscribe(commands.sub_advanced("t", "c", 0), 2)
        assert [successor.message().id for _ in range(2)] == [first.id, held.id]


def test_term(connect) -> None:
    with Cluster(nsqds=3, lookupds=2, exit_delay=1.5) as cluster:
        cluster.create_topic("t", replicas=3)
        cluster.create_channel("t", "c")
        leader = cluster.leader("t")
        producer, consumer = connect(leader), connect(leader)
        consumer.subscribe(commands.sub("t", "c", 0))
        ending = threading.Thread(target=cluster.terminate, args=(leader,))
        ending.start()
        eventually(lambda: refuses(leader))
        eventually(lambda: answer(producer, PUB) == NOT_WRITABLE)
        eventually(lambda: answer(producer, PUB) == "E_PUB_FAILED exiting")
        assert producer.refused(MPUB) == "E_MPUB_FAILED exiting"
        assert consumer.ended()
        # The others lead before the old process is gone.
        eventually(lambda: lookup(cluster, "w") not in (NO_LEADER, led_by(leader)))
        assert producer.refused(PUB) == "E_PUB_FAILED exiting"
        assert producer.ended()
        ending.join()
        assert connect(cluster.leader("t")).ask(PUB) == b"OK"


def test_crash(connect) -> None:
    with Cluster(nsqds=3, lookupds=2, election_delay=1.5, positions_lost=2) as cluster:
        cluster.create_topic("t", replicas=3)
        cluster.create_channel("t", "c")
        leader = cluster.leader("t")
        producer, consumer = connect(leader), connect(leader)
        consumer.subscribe(commands.sub_advanced("t", "c", 0), 10)
        publish(producer, b"a", b"b", b"c", b"d")
        before = [consumer.message() for _ in range(4)]
        for message in before[:3]:
            consumer.finish(message)
        eventually(lambda: len(cluster.log.of("FIN")) == 3)
        killed = time.monotonic()
        cluster.kill(leader)
        assert producer.reset()
        assert consumer.reset()
        for which, access in ((0, "r"), (1, "r"), (0, "w"), (1, "w")):
            assert lookup(cluster, access, which) == NO_LEADER
        eventually(lambda: lookup(cluster, "w") != NO_LEADER)
        assert time.monotonic() - killed >= 1.5
        new = cluster.leader("t")
        assert connect(new).ask(PUB) == b"OK"
        successor = connect(new)
        successor.subscribe(commands.sub_advanced("t", "c", 0), 10)
        after = [successor.message() for _ in range(4)]
        # From a position two messages back, and nothing of them has changed.
        assert after[:3] == before[1:]
        assert {message.attempts for message in after} == {1}
        last, next_one = (int.from_bytes(message.id[:8]) for message in after[2:])
        assert next_one == last + 2
        assert after[3].offset == after[2].offset + after[2].size


def losing_a_follower(connect, replicas: int, end: str, commands_sent: list[bytes]):
    """Publishes sent one after another when a follower is gone, their answers and the wait."""
    options = {"election_delay": 60.0, "replication_timeout": 1.0}
    cluster = Cluster(nsqds=replicas, lookupds=2, **options)
    cluster.create_topic("t", replicas=replicas)
    cluster.create_channel("t", "c")
    leader = cluster.leader("t")
    consumer = connect(leader)
    consumer.subscribe(commands.sub("t", "c", 0))
    getattr(cluster, end)(next(nsqd for nsqd in cluster.nsqds if nsqd is not leader))
    producers = [connect(leader) for _ in commands_sent]
    began = time.monotonic()
    for producer, command in zip(producers, commands_sent, strict=True):
        producer.send(command)
        verb = command.split(b" ")[0].decode()
        eventually(lambda verb=verb: cluster.log.of(verb))
    texts = [producer.error() for producer in producers]
    return cluster, consumer, texts, time.monotonic() - began


def test_follower_loss(connect) -> None:
    sent = [PUB, TRACED, MPUB]
    cluster, consumer, texts, waited = losing_a_follower(connect, 3, "kill", sent)
    with cluster:
        assert texts == [NOT_WRITABLE, NOT_WRITABLE, f"E_MPUB_FAILED {QUEUED}"]
        assert 0.9 < waited < 8
        asked = time.monotonic()
        assert connect(cluster.leader("t")).refused(PUB) == NOT_WRITABLE
        assert time.monotonic() - asked < 0.9
        assert lookup(cluster, "w") == NO_LEADER
        assert lookup(cluster, "r") == led_by(cluster.leader("t"))
        assert consumer.silent(0.05)
        assert cluster.stored("t") == []


@pytest.mark.parametrize(("end", "least", "most"), [("kill", 0.9, 8.0), ("terminate", 0.0, 0.8)])
def test_follower_loss_without_a_majority(connect, end, least, most) -> None:
    cluster, consumer, texts, waited = losing_a_follower(connect, 2, end, [PUB])
    with cluster:
        assert texts == [NOT_LEADER]
        assert least < waited < most
        assert consumer.ended()
        leader = cluster.nsqds[0]
        refused = connect(leader)
        assert refused.refused(commands.sub("t", "c", 0)) == NOT_LEADER
        assert refused.ended()
        assert connect(leader).refused(MPUB) == NOT_LEADER
        assert lookup(cluster, "r") == led_by(leader)
        assert lookup(cluster, "w") == NO_LEADER
        cluster.restart(cluster.nsqds[1])
        connect(leader).subscribe(commands.sub("t", "c", 0))
        assert connect(leader).ask(PUB) == b"OK"


def test_hang_and_wake(connect) -> None:
    with Cluster(nsqds=3, lookupds=2, election_delay=1.5, client_timeout=0.4) as cluster:
        cluster.create_topic("t", replicas=3)
        cluster.create_channel("t", "c")
        leader = cluster.leader("t")
        single, traced, batch, consumer = (connect(leader) for _ in range(4))
        consumer.subscribe(commands.sub("t", "c", 0))
        for client in (single, traced, batch):
            # Without heartbeats: a server that wakes may end a silent client before it answers.
            client.identify(heartbeat_interval=-1)
        cluster.hang(leader)
        for client, command in ((single, PUB), (traced, TRACED), (batch, MPUB)):
            client.send(command)
        # It listens, and is listed for a while; nothing comes from it, not even a heartbeat.
        connect(leader).send(PUB)
        assert lookup(cluster, "r") == led_by(leader)
        with pytest.raises(TimeoutError):
            consumer.any_frame(0.5)
        eventually(lambda: lookup(cluster, "w") not in (NO_LEADER, led_by(leader)))
        cluster.wake(leader)
        assert [client.error() for client in (single, traced)] == [NOT_LEADER] * 2
        assert batch.error() == NOT_WRITABLE
        assert consumer.ended()
        assert cluster.stored("t") == []


def test_the_real_times_are_an_argument_away() -> None:
    with Cluster(nsqds=3, **REAL_TIMES) as cluster:
        cluster.create_topic("t", replicas=3)
        assert lookup(cluster, "w") == NO_LEADER
