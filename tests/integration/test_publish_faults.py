"""What servers and the network do to a publish: named faults, one after the other.

In all of them the deadline is kept, the outcome is true, the next publish on the same producer
succeeds, and nothing is left behind. How a call ends when its producer is closed, what crowds do
to each other, lookups, interrupts and processes have files of their own.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
import termios
import threading
from collections.abc import Callable, Iterator
from time import monotonic

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import MessageRejected, Outcome, PublishTimeout
from nsqsmart.net.connection import Connection
from nsqsmart.net.sockets import Socket
from nsqsmart.testing.proxy import Proxy
from nsqsmart.wire.frames import ERROR, HEARTBEAT_FRAME, OK_FRAME, RESPONSE, encode_frame
from tests.helpers import eventually
from tests.integration.publishing import (
    answered_failure,
    bodies,
    check_free,
    codes,
    failure,
    in_time,
    shared,
)
from tests.peers import GRANT, Peer, Script, Talk, message_frame

KEYED = pytest.mark.parametrize("arguments", [{}, {"key": "k"}], ids=["unkeyed", "keyed"])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nsqds=2, lookupds=1) as made:
        made.create_topic("t", replicas=2)
        made.create_channel("t", "c")
        yield made


@pytest.fixture
def producer(cluster) -> Iterator[nsqsmart.Producer]:
    with nsqsmart.Producer(cluster.url, lookupd_min_refresh_interval=0.1) as made:
        made.publish("t", b"warm")
        yield made


@pytest.fixture(params=["original", "redesigned"])
def either(request) -> Iterator[Cluster]:
    with Cluster(dialect=request.param) as made:
        made.create_topic("t")
        made.create_channel("t", "c")
        yield made


def healthy(talk: Talk) -> None:
    talk.greet()
    while True:
        talk.publish()
        talk.ok()


def publish(producer: nsqsmart.Producer, body: bytes = b"x", timeout: float = 5, **arguments):
    """A publish that succeeds, in time and without holding anything."""
    with in_time(timeout):
        receipt = producer.publish("t", body, timeout=timeout, **arguments)
    check_free(producer)
    return receipt


# ---------------------------------------------------------------------------------- leaders move


@KEYED
def test_the_leader_moved_before(cluster, producer, arguments):
    leader = cluster.move_leader("t", 0)
    assert publish(producer, **arguments).nsqd == leader.name
    assert bodies(cluster) == {b"warm": 1, b"x": 1}


@KEYED
def test_the_leader_moves_during(cluster, producer, arguments):
    before = cluster.leader("t", 0)
    cluster.faults.add(faults.on("PUB").move_leader())
    publish(producer, **arguments)
    eventually(lambda: cluster.leader("t", 0) is not before)
    assert publish(producer, b"y", **arguments).nsqd == cluster.leader("t", 0).name
    assert bodies(cluster) == {b"warm": 1, b"x": 1, b"y": 1}


@KEYED
@pytest.mark.parametrize("code", ["E_FAILED_ON_NOT_LEADER", "E_FAILED_ON_NOT_WRITABLE"])
def test_it_was_stored_and_then_refused(cluster, producer, arguments, code):
    cluster.faults.add(faults.on("PUB").store_then_reply(code))
    assert publish(producer, **arguments).attempts == 2
    publish(producer, b"y", **arguments)
    # Neighbours: nothing is stored between the two.
    assert [each.body for each in cluster.stored("t")] == [b"warm", b"x", b"x", b"y"]


def test_the_leader_moves_after_each(cluster, producer):
    for number in range(5):
        publish(producer, b"%d" % number, key="k")
        cluster.move_leader("t", 0)
    assert [each.body for each in cluster.stored("t")][1:] == [b"%d" % n for n in range(5)]


@KEYED
def test_writing_is_disabled_for_two_seconds(cluster, producer, arguments):
    cluster.set_writable("t", 0, False)
    asked = len(cluster.log.of("GET /lookup"))
    over = threading.Timer(2, lambda: cluster.set_writable("t", 0, True))
    over.start()
    publish(producer, timeout=8, **arguments)
    over.join()
    assert bodies(cluster) == {b"warm": 1, b"x": 1}
    # It waits; it does not hammer.
    assert len(cluster.log.of("PUB")) < 20
    assert len(cluster.log.of("GET /lookup")) - asked < 40


# -------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("dialect", "key"), [("original", None), ("redesigned", None), ("redesigned", "k")]
)
def test_it_fails_three_times(dialect, key):
    with Cluster(dialect=dialect) as cluster, nsqsmart.Producer(cluster.url) as producer:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        cluster.faults.add(faults.on("PUB", times=3).reply("E_PUB_FAILED", "disk trouble"))
        assert publish(producer, key=key).attempts == 4
        assert publish(producer, b"y", key=key).attempts == 1
        assert bodies(cluster) == {b"x": 1, b"y": 1}


def test_it_fails_until_the_deadline(either):
    either.faults.add(faults.on("PUB", times=faults.ALWAYS).reply("E_PUB_FAILED"))
    with nsqsmart.Producer(either.url) as producer:
        error = answered_failure(producer)
        assert isinstance(error, PublishTimeout)
        assert (error.outcome, error.answered) == (Outcome.UNCERTAIN, True)
        assert 2 < len(error.attempts) < 60
        # The last one may find that no time is left to send anything.
        assert set(codes(error)[:-1]) == {"E_PUB_FAILED"}
        either.faults.clear()
        publish(producer, b"y")
    assert bodies(either) == {b"y": 1}


def test_a_body_that_is_too_large_by_far(either):
    """The server says why and resets, with most of the body unread."""
    with nsqsmart.Producer(either.url) as producer:
        for _ in range(10):
            error = failure(producer, b"x" * 8_000_000, timeout=2)
            assert isinstance(error, MessageRejected)
            assert (error.outcome, codes(error)) == (Outcome.REJECTED, ["E_BAD_MESSAGE"])
        publish(producer)
    assert bodies(either) == {b"x": 1}


def test_too_many_connections():
    """An error frame without a code, right at the connect."""
    with Cluster(nsqds=1, lookupds=1, max_connections=1) as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        with nsqsmart.Producer(cluster.url) as late:
            with nsqsmart.Producer(cluster.url) as occupant:
                publish(occupant)
                error = failure(late, timeout=0.8)
                assert error.outcome is Outcome.NOT_SENT
                assert "too much client connections" in str(error)
                assert len(error.attempts) < 40
                publish(occupant)
            publish(late, b"y")
        assert bodies(cluster) == {b"x": 2, b"y": 1}


def test_a_batch_that_is_refused_in_the_middle():
    """The server leaves the rest unread, and the connection open: the client closes it."""
    closed = threading.Event()

    def refuse(talk: Talk) -> None:
        talk.greet()
        assert talk.line() == b"MPUB t"
        talk.read(4 + 4 + 4 + 2)
        talk.send(encode_frame(ERROR, b"E_BAD_MESSAGE MPUB invalid message(0) body size 9"))
        with contextlib.suppress(OSError):
            while talk.sock.recv(4096):
                pass
        closed.set()

    with Peer(refuse, healthy) as peer, nsqsmart.Producer(peer.url) as producer:
        with in_time(2), pytest.raises(MessageRejected) as caught:
            producer.publish_many("t", [b"PUB t\n", b"NOP\nNOP\n"], timeout=2)
        assert caught.value.outcome is Outcome.REJECTED
        assert closed.wait(5)
        assert publish(producer).attempts == 1
        assert peer.accepted == 2


@pytest.mark.parametrize("dialect", ["original", "redesigned"])
def test_a_batch_with_a_message_in_the_middle_that_is_too_large(dialect):
    with Cluster(dialect=dialect, max_msg_size=1000) as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        with nsqsmart.Producer(cluster.url) as producer:
            with in_time(2), pytest.raises(MessageRejected) as caught:
                producer.publish_many("t", [b"a", b"x" * 1001, b"PUB t\n"], timeout=2)
            assert (caught.value.outcome, codes(caught.value)) == (
                Outcome.REJECTED,
                ["E_BAD_MESSAGE"],
            )
            assert publish(producer).attempts == 1
        assert bodies(cluster) == {b"x": 1}


def test_no_local_port_is_free(either, monkeypatch):
    """FN29: calls with a connection go on; the others send nothing, and take their time."""

    def connect(_sock: socket.socket, _address: object) -> None:
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))

    with nsqsmart.Producer(either.url) as warm, nsqsmart.Producer(either.url) as cold:
        publish(warm)
        cold._running().publishing.directory.get("t", monotonic() + 5)
        with monkeypatch.context() as patch:
            patch.setattr(socket.socket, "connect", connect)
            error = failure(cold, timeout=0.8)
            assert publish(warm, b"y").attempts == 1
        assert error.outcome is Outcome.NOT_SENT
        assert os.strerror(errno.EADDRNOTAVAIL) in str(error)
        assert len(error.attempts) < 20
        publish(cold, b"z")
    assert bodies(either) == {b"x": 1, b"y": 1, b"z": 1}


# -------------------------------------------------------------------------- answers that are late


def test_a_late_ok_is_not_the_answer_to_what_is_refused(cluster):
    """FN20: the second one must see its own refusal, wherever the OK of the first has gone."""
    cluster.faults.add(faults.on("PUB").delay(1.2))
    cluster.faults.add(faults.on("PUB", nth=2).reply("E_BAD_MESSAGE"))
    with nsqsmart.Producer(cluster.url, response_timeout=0.5) as hasty:
        assert failure(hasty, b"late", key="k").outcome is Outcome.UNCERTAIN
        eventually(lambda: bodies(cluster) == {b"late": 1})
        assert failure(hasty, b"refused", key="k").outcome is Outcome.REJECTED
        assert publish(hasty, b"next", key="k").attempts == 1
    assert bodies(cluster) == {b"late": 1, b"next": 1}


def answering(*pieces: bytes, every: float = 0.0) -> Script:
    """Takes a PUB, and answers in pieces."""

    def script(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        for piece in pieces:
            talk.send(piece)
            if talk.released.wait(every):
                return
        talk.stall()

    return script


def bytewise(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


@pytest.mark.parametrize(
    "script",
    [
        answering(*bytewise(OK_FRAME), every=0.1),
        answering(*[HEARTBEAT_FRAME] * 100, every=0.05),
        answering(OK_FRAME[:2]),
        answering(OK_FRAME[:9]),
        answering(),
    ],
    ids=["in drips", "heartbeats without end", "half a size", "all but a byte", "nothing"],
)
def test_an_answer_that_does_not_come_in_time(script):
    with Peer(script, healthy) as peer, nsqsmart.Producer(peer.url) as producer:
        error = failure(producer, timeout=0.5)
        assert isinstance(error, PublishTimeout)
        assert (error.outcome, error.answered) == (Outcome.UNCERTAIN, False)
        assert publish(producer).attempts == 1
        assert peer.accepted == 2


def test_a_connection_of_the_pool_is_half_open(cluster):
    """Its peer is gone, and no packet has said so."""
    with (
        Cluster(dialect="original", nsqds=2, lookupds=0) as pair,
        nsqsmart.Producer(pair.url, response_timeout=0.3) as producer,
    ):
        for _ in range(2):
            publish(producer)
        pair.hang(pair.nsqds[0])
        attempts = [publish(producer, timeout=2).attempts for _ in range(4)]
        assert sorted(attempts) == [1, 1, 1, 2]
        pair.wake(pair.nsqds[0])


def test_all_connections_of_the_pool_are_half_open():
    """The first that is found so is the last: the rest of that node is not even tried."""
    together = threading.Barrier(3)

    def once(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        together.wait(5)
        talk.ok()
        talk.stall()

    with (
        Peer(once, once, once, healthy) as peer,
        nsqsmart.Producer(peer.url, response_timeout=0.3) as producer,
    ):
        threads = [threading.Thread(target=producer.publish, args=("t", b"x")) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert publish(producer, timeout=2).attempts == 2
        assert peer.accepted == 4


# ---------------------------------------------------------------------- answers without a command


def waiting(connection: Connection) -> int:
    """How many bytes have come and are not read."""
    return struct.unpack("i", fcntl.ioctl(connection._socket._sock, termios.FIONREAD, b"1234"))[0]


SURPLUS = {
    "OK": OK_FRAME,
    "an error": encode_frame(ERROR, b"E_BAD_TOPIC"),
    "a message": message_frame(1),
    "garbage": b"\xff" * 20,
    "half a heartbeat": HEARTBEAT_FRAME[:9],
}


@pytest.mark.parametrize(
    ("options", "attempts"),
    [({}, 2), ({"publish_attempts": 1}, 1)],
    ids=["plain", "one attempt"],
)
def test_the_nsqd_ends_a_connection_that_was_used_a_moment_ago(options, attempts):
    """An only attempt is not spent on it."""

    def brief(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        talk.ok()

    with Peer(brief, healthy) as peer, nsqsmart.Producer(peer.url, **options) as producer:
        publish(producer)
        (place,) = shared(producer).pool._hosts.values()
        eventually(lambda: place.idle[0]._socket.poll(0))
        place.idle[0].seen_alive = monotonic() + 60
        assert publish(producer).attempts == attempts
        assert peer.accepted == 2


def test_a_keyed_message_is_not_sent_to_a_connection_that_has_ended(cluster, producer):
    """However recently it was used: it could not be sent again."""
    publish(producer, key="k")
    for place in shared(producer).pool._hosts.values():
        for connection in place.idle:
            connection._socket._sock.shutdown(socket.SHUT_RDWR)
            connection.seen_alive = monotonic() + 60
    assert publish(producer, b"y", key="k").attempts == 1
    assert bodies(cluster) == {b"warm": 1, b"x": 1, b"y": 1}


@pytest.mark.parametrize("surplus", SURPLUS.values(), ids=SURPLUS)
def test_what_comes_between_two_publishes(surplus):
    idle = threading.Event()

    def talkative(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        talk.ok()
        assert idle.wait(5)
        talk.send(surplus)
        talk.stall()

    with Peer(talkative, healthy) as peer, nsqsmart.Producer(peer.url) as producer:
        assert publish(producer).attempts == 1
        idle.set()
        (place,) = shared(producer).pool._hosts.values()
        eventually(lambda: waiting(place.idle[0]) == len(surplus))
        place.idle[0].seen_alive = 0.0
        assert publish(producer).attempts == 1
        assert peer.accepted == 2


@pytest.mark.parametrize("surplus", SURPLUS.values(), ids=SURPLUS)
@pytest.mark.parametrize("together", [True, False], ids=["in the handshake", "behind it"])
def test_what_comes_before_any_command(monkeypatch, surplus, together):
    """It would be taken for the answer to the first one."""
    taken, shaken = [], threading.Event()

    def eager(talk: Talk) -> None:
        if together:
            talk.greet(GRANT, surplus)
        else:
            talk.greet()
            assert shaken.wait(5)
            talk.send(surplus)
        taken.append(talk.publish())
        talk.stall()

    def come(sock: Socket) -> None:
        shaken.set()
        eventually(lambda: sock.poll(0))

    if not together:
        after_the_handshake(monkeypatch, come)
    with Peer(eager, healthy) as peer, nsqsmart.Producer(peer.url, publish_attempts=1) as producer:
        assert failure(producer, b"first").outcome is Outcome.NOT_SENT
        monkeypatch.undo()
        publish(producer, b"second")
        assert peer.accepted == 2
    assert taken == []


def after_the_handshake(monkeypatch, what: Callable[..., object]) -> None:
    """Have *what* done with the socket before a call publishes on it."""
    from nsqsmart.net import connection

    real = connection.shake_hands

    def shake_hands(sock, greeting, deadline):
        done = real(sock, greeting, deadline)
        what(sock)
        return done

    monkeypatch.setattr(connection, "shake_hands", shake_hands)


@pytest.mark.parametrize("count", [1, 1000])
def test_heartbeats_wait_on_an_idle_connection(count):
    lines, idle = [], threading.Event()

    def beating(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        talk.ok()
        assert idle.wait(5)
        talk.send(HEARTBEAT_FRAME * count)
        while not lines or lines[-1] == b"NOP":
            lines.append(talk.line())
        talk.body()
        talk.ok()

    with Peer(beating) as peer, nsqsmart.Producer(peer.url) as producer:
        publish(producer)
        idle.set()
        (place,) = shared(producer).pool._hosts.values()
        eventually(lambda: waiting(place.idle[0]) == count * len(HEARTBEAT_FRAME))
        place.idle[0].seen_alive = 0.0
        assert publish(producer).attempts == 1
        assert peer.accepted == 1
    assert lines == [b"NOP", b"PUB t"]


def test_heartbeats_come_before_the_answer():
    def beating(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        talk.send(HEARTBEAT_FRAME * 1000)
        assert talk.line() == b"NOP"
        talk.ok()
        talk.stall()

    with Peer(beating) as peer, nsqsmart.Producer(peer.url) as producer:
        assert publish(producer).attempts == 1


# ------------------------------------------------------------------------------ slices and resets


@pytest.mark.parametrize("options", [{}, {"snappy": True}, {"deflate": True}])
def test_every_byte_comes_in_a_segment_of_its_own(either, options):
    traced = str(either.dialect) == "redesigned"
    with Proxy(either.nsqds[0].name, segment=1) as proxy:
        through = {"address_map": proxy.address_map}
        with nsqsmart.Producer(either.url, **through, **options) as producer:
            for number in range(3):
                assert publish(producer, b"%d" % number).attempts == 1
            assert producer.publish_many("t", [b"a", b"b"], timeout=5).count == 2
            if traced:
                assert publish(producer, b"traced", trace_id=7).trace_id == 7
            either.faults.add(faults.on("PUB").reply("E_PUB_FAILED", "disk trouble"))
            assert publish(producer, b"again").attempts == 2
    assert set(bodies(either).values()) == {1}


@KEYED
@pytest.mark.parametrize("fault", ["reset", "store_then_reset", "close", "store_then_close"])
def test_the_connection_ends_after_it_was_sent(cluster, arguments, fault):
    cluster.faults.add(getattr(faults.on("PUB"), fault)())
    with nsqsmart.Producer(cluster.url) as producer:
        if arguments:
            error = failure(producer, timeout=3, **arguments)
            assert (error.outcome, error.answered) == (Outcome.UNCERTAIN, False)
            assert codes(error) == ["ConnectionLost"]
        else:
            assert publish(producer).attempts == 2
        publish(producer, b"y", **arguments)
    copies = (not arguments) + ("store" in fault)
    assert bodies(cluster) == {b"y": 1} | ({b"x": copies} if copies else {})


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        (lambda talk: talk.reset(), Outcome.NOT_SENT),
        (lambda talk: talk.stall(), Outcome.NOT_SENT),
        (lambda talk: talk.send(encode_frame(RESPONSE, b"{}x")), Outcome.NOT_SENT),
        (lambda talk: (talk.greet(), talk.line(), talk.reset()), Outcome.UNCERTAIN),
        (lambda talk: (talk.greet(), talk.stall()), Outcome.UNCERTAIN),
    ],
    ids=["at the connect", "deaf", "no handshake", "in the middle of the body", "not reading"],
)
def test_large_bodies_and_broken_peers(script, outcome):
    with (
        Peer(script, healthy) as peer,
        nsqsmart.Producer(peer.url, publish_attempts=1) as producer,
    ):
        assert failure(producer, b"x" * 20_000_000, timeout=2).outcome is outcome
        assert publish(producer).attempts == 1
        assert peer.accepted == 2
