"""A lent connection: one exchange at a time, and spoiled unless it ended clean."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from time import monotonic

import pytest

from nsqsmart.config import ProducerConfig
from nsqsmart.errors import (
    ConnectError,
    ConnectionLost,
    ProtocolError,
    ResponseTimeout,
    ServerError,
)
from nsqsmart.names import Address
from nsqsmart.net.connection import Connection, open_connection, tls_lifetime
from nsqsmart.net.handshake import make_greeting
from nsqsmart.net.sockets import Socket
from nsqsmart.net.transport import Transport
from nsqsmart.wire.frames import (
    ERROR,
    HEARTBEAT_FRAME,
    MESSAGE,
    OK_FRAME,
    RESPONSE,
    encode_frame,
)
from nsqsmart.wire.identify import Grant
from tests.helpers import eventually
from tests.peers import Peer, Talk

PEER = Address("peer", 4150)
COMMAND = b"PUB t\n"


class Layer:
    """Passes everything on, but for bytes that say nothing; counts what it encodes."""

    def __init__(self) -> None:
        self.encoded = 0
        self.error: Exception | None = None

    def outgoing(self, data: bytes) -> bytes:
        if self.error:
            raise self.error
        self.encoded += 1
        return data

    def incoming(self, data: bytes) -> Iterator[bytes]:
        if said := data.replace(b"~", b""):
            yield said


@pytest.fixture
def ends() -> Iterator[tuple[Transport, socket.socket]]:
    here, there = socket.socketpair()
    transport = Transport(Socket(here, PEER))
    with there:
        yield transport, there
    transport.socket.drop()


@pytest.fixture
def connection(ends) -> Connection:
    return Connection(PEER, ends[0], Grant(), 1024)


@pytest.fixture
def peer(ends) -> socket.socket:
    ends[1].settimeout(5)
    return ends[1]


def soon() -> float:
    return monotonic() + 5


def test_an_ok_ends_the_exchange_clean(connection, peer):
    peer.sendall(OK_FRAME)
    assert connection.exchange(COMMAND, soon()) == b"OK"
    assert peer.recv(100) == COMMAND
    assert not connection.spoiled
    assert connection.is_usable()


@pytest.mark.parametrize("pieces", [1, 3, 10])
def test_an_answer_is_put_together(connection, peer, pieces):
    frame = encode_frame(RESPONSE, b"OKreceipt")

    def drip() -> None:
        peer.recv(100)
        for start in range(0, len(frame), pieces):
            peer.sendall(frame[start : start + pieces])

    thread = threading.Thread(target=drip)
    thread.start()
    assert connection.exchange(COMMAND, soon()) == b"OKreceipt"
    thread.join(5)
    assert not connection.spoiled


def test_an_error_frame_is_an_answer_too(connection, peer):
    peer.sendall(encode_frame(ERROR, b"E_PUB_FAILED disk full"))
    with pytest.raises(ServerError) as caught:
        connection.exchange(COMMAND, soon())
    assert (caught.value.code, caught.value.detail) == ("E_PUB_FAILED", "disk full")
    # The original nsqd closes now.
    assert connection.spoiled


@pytest.mark.parametrize("code", [b"E_FAILED_ON_NOT_LEADER ", b"E_FAILED_ON_NOT_WRITABLE "])
def test_an_error_frame_of_one_who_does_not_lead_leaves_it_clean(connection, peer, code):
    peer.sendall(encode_frame(ERROR, code))
    with pytest.raises(ServerError):
        connection.exchange(COMMAND, soon())
    assert not connection.spoiled


def test_heartbeats_on_the_way_are_answered(connection, peer):
    peer.sendall(HEARTBEAT_FRAME + OK_FRAME)
    assert connection.exchange(COMMAND, soon()) == b"OK"
    assert peer.recv(100) == COMMAND + b"NOP\n"


class Slow(Layer):
    """What comes is understood when it is too late, or when nothing can be said any more."""

    def __init__(self, until: float = 0.0, error: Exception | None = None) -> None:
        super().__init__()
        self._until, self._later = until, error

    def incoming(self, data: bytes) -> Iterator[bytes]:
        while monotonic() < self._until:
            pass
        self.error = self._later
        yield data


def test_what_fails_behind_the_command_leaves_it_in_doubt(ends):
    """The command has left: that a heartbeat cannot be answered does not take it back."""
    transport, peer = ends
    deadline = monotonic() + 0.05
    for slow, until, kind in (
        (Slow(deadline), deadline, ResponseTimeout),
        (Slow(error=ConnectionLost("TLS stream broken")), soon(), ConnectionLost),
    ):
        transport.layers = (slow,)
        peer.sendall(HEARTBEAT_FRAME)
        connection = Connection(PEER, transport, Grant(), 1024)
        with pytest.raises(kind) as caught:
            connection.exchange(COMMAND, until)
        assert caught.value.sent
        assert connection.spoiled
        assert peer.recv(100) == COMMAND


@pytest.mark.parametrize(
    "data",
    [
        OK_FRAME + OK_FRAME,
        OK_FRAME + OK_FRAME[:3],
        encode_frame(MESSAGE, b"m" * 30),
        b"\xff" * 20,
        encode_frame(RESPONSE, b"x" * 2000),
    ],
    ids=["two", "one and a bit", "a message", "garbage", "too large"],
)
def test_any_other_answer_spoils_it(connection, peer, data):
    peer.sendall(data)
    with pytest.raises(ProtocolError):
        connection.exchange(COMMAND, soon())
    assert connection.spoiled
    assert not connection.is_usable()


def test_silence_spoils_it(connection):
    with pytest.raises(ResponseTimeout):
        connection.exchange(COMMAND, monotonic() + 0.05)
    assert connection.spoiled


def test_an_interrupt_spoils_it(connection, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Socket, "recv", interrupted)
    with pytest.raises(KeyboardInterrupt):
        connection.exchange(COMMAND, soon())
    assert connection.spoiled


def test_the_end_spoils_it(connection, peer):
    peer.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionLost) as caught:
        connection.exchange(COMMAND, soon())
    assert caught.value.sent
    assert connection.spoiled


def test_the_reason_of_a_failed_write_is_read(connection, peer):
    peer.sendall(encode_frame(ERROR, b"E_BAD_MESSAGE too big"))
    peer.shutdown(socket.SHUT_RD)
    with pytest.raises(ServerError, match="E_BAD_MESSAGE") as caught:
        connection.exchange(b"x" * 1_000_000, soon())
    assert isinstance(caught.value.__cause__, ConnectionLost)
    assert connection.spoiled


@pytest.mark.parametrize("said", [b"", OK_FRAME, b"\xff" * 20])
def test_a_failed_write_without_a_reason_is_a_lost_connection(connection, peer, said):
    peer.sendall(said)
    peer.shutdown(socket.SHUT_RD)
    with pytest.raises(ConnectionLost):
        connection.exchange(b"x" * 1_000_000, soon())


def test_at_checkout_heartbeats_get_one_nop(connection, peer):
    peer.sendall(HEARTBEAT_FRAME * 3)
    assert connection.is_usable()
    peer.setblocking(False)
    assert peer.recv(100) == b"NOP\n"


def test_at_checkout_a_thousand_heartbeats_get_one_nop(connection, peer):
    """Several reads of them, and none ends where a frame does."""
    peer.sendall(HEARTBEAT_FRAME * 1000)
    assert connection.is_usable()
    peer.setblocking(False)
    assert peer.recv(100) == b"NOP\n"
    assert connection.is_usable()


def test_at_checkout_a_flood_is_not_read_to_its_end(connection, peer):
    peer.settimeout(0.1)
    with suppress(TimeoutError):
        peer.sendall(HEARTBEAT_FRAME * 1_000_000)
    assert not connection.is_usable()


@pytest.mark.parametrize(
    "data",
    [
        OK_FRAME,
        HEARTBEAT_FRAME + OK_FRAME,
        HEARTBEAT_FRAME * 1000 + OK_FRAME,
        HEARTBEAT_FRAME[:9],
        HEARTBEAT_FRAME * 1000 + HEARTBEAT_FRAME[:9],
        b"\xff" * 20,
    ],
)
def test_at_checkout_anything_else_is_the_end_of_it(connection, peer, data):
    peer.sendall(data)
    assert not connection.is_usable()


@pytest.mark.parametrize("said", [b"", HEARTBEAT_FRAME])
def test_at_checkout_a_closed_connection_is_seen(connection, peer, said):
    peer.sendall(said)
    peer.close()
    assert not connection.is_usable()


def test_at_checkout_an_old_one_is_passed_over(connection, monkeypatch):
    connection.expires_at = monotonic() + 100
    assert connection.is_usable()
    connection.expires_at = monotonic()
    assert not connection.is_usable()


def test_nothing_is_encoded_that_is_not_sent(ends, peer):
    """A NOP that stays behind would put the peer out of step with TLS and deflate."""
    transport, layer = ends[0], Layer()
    transport.add(layer)
    connection = Connection(PEER, transport, Grant(), 1024)
    peer.sendall(b"~~~")
    assert connection.is_usable()
    assert layer.encoded == 0
    peer.sendall(HEARTBEAT_FRAME)
    assert connection.is_usable()
    assert layer.encoded == 1


def test_a_layer_that_can_encode_no_more_is_a_lost_connection(ends, peer):
    transport, layer = ends[0], Layer()
    layer.error = ConnectionLost("TLS stream broken")
    transport.add(layer)
    connection = Connection(PEER, transport, Grant(), 1024)
    peer.sendall(HEARTBEAT_FRAME)
    assert not connection.is_usable()
    with pytest.raises(ConnectionLost) as caught:
        connection.exchange(COMMAND, soon())
    assert not caught.value.sent
    assert connection.spoiled


def test_close_ends_it_for_both_and_drop_for_one(ends, peer):
    transport, _ = ends
    twin = transport.socket._sock.dup()
    Connection(PEER, transport, Grant(), 1024).drop()
    twin.sendall(b"still there")
    assert peer.recv(100) == b"still there"
    Connection(PEER, Transport(Socket(twin, PEER)), Grant(), 1024).close()
    assert peer.recv(100) == b""


REDESIGNED = Grant(version="0.3.7-HA.1.13.0", tls=True)


@pytest.mark.parametrize(
    ("option", "grant", "seconds"),
    [
        (None, REDESIGNED, 4.0),
        (None, Grant(version="1.3.0", tls=True), 0.0),
        (0, REDESIGNED, 0.0),
        (2.5, Grant(version="1.3.0", tls=True), 2.5),
    ],
)
def test_how_long_a_tls_connection_is_used(option, grant, seconds):
    assert tls_lifetime(ProducerConfig(tls_lifetime=option), grant) == seconds


GREETING = make_greeting(ProducerConfig())


def test_a_handshake_makes_a_connection():
    def nsqd(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        talk.ok()

    with Peer(nsqd) as peer:
        connection = open_connection(Address(*peer.address), GREETING, soon())
        assert connection.grant.version == "1.3.0"
        assert connection.expires_at == math.inf
        assert connection.exchange(b"PUB t\n\0\0\0\1x", soon()) == b"OK"
        connection.close()


def test_a_handshake_that_fails_leaves_no_socket():
    ended = threading.Event()

    def refuses(talk: Talk) -> None:
        talk.greet(b"{}x")
        with pytest.raises(EOFError):
            talk.line()
        ended.set()

    with Peer(refuses) as peer:
        with pytest.raises(ConnectError):
            open_connection(Address(*peer.address), GREETING, soon())
        assert ended.wait(5)


def test_the_handshake_has_a_limit_of_its_own():
    greeting = make_greeting(replace(GREETING.config, handshake_timeout=0.05))
    with Peer(lambda talk: talk.stall()) as peer:
        with pytest.raises(ConnectError, match="in time"):
            open_connection(Address(*peer.address), greeting, monotonic() + 60)
        eventually(lambda: peer.accepted == 1)
