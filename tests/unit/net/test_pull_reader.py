"""A subscribed connection that its user reads: every wait ends, and every end is told."""

from __future__ import annotations

from time import monotonic

import pytest

from nsqsmart.config import ConsumerConfig
from nsqsmart.errors import ConnectionLost, ProtocolError, ServerError
from nsqsmart.names import Address
from nsqsmart.net.connection import open_connection
from nsqsmart.net.handshake import make_greeting
from nsqsmart.net.pull_reader import PullReader
from nsqsmart.wire.deliveries import DeliveryDecoder
from nsqsmart.wire.frames import ERROR, HEARTBEAT_FRAME, RESPONSE, encode_frame
from nsqsmart.wire.messages import PLAIN
from tests.helpers import eventually
from tests.peers import Peer, message_frame


class Listener:
    def __init__(self) -> None:
        self.heard_at = 0.0
        self.refused: list[ServerError] = []
        self.confirmed = False

    def on_refusal(self, error: ServerError) -> None:
        self.refused.append(error)

    def on_close_wait(self) -> None:
        self.confirmed = True


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def begin(listener):
    opened = []

    def start(script) -> PullReader[bytes]:
        peer = Peer(script)
        config = ConsumerConfig()
        connection = open_connection(Address(*peer.address), make_greeting(config), soon())
        make = lambda *fields: fields[-1]  # noqa: E731 - a message is its body here
        decoder = DeliveryDecoder(PLAIN, object, make, make, 2048)
        pull_reader = PullReader(connection, decoder, listener, 5.0)
        pull_reader.send(b"SUB t c\n")
        opened.append((pull_reader, peer))
        return pull_reader

    yield start
    for pull_reader, peer in opened:
        pull_reader.close()
        peer.__exit__()


def soon(seconds: float = 5.0) -> float:
    return monotonic() + seconds


def on_and_on(call) -> None:
    while True:
        call()


def test_what_has_come_is_there_at_once_and_nothing_ends_at_the_deadline(begin, listener):
    def script(talk):
        talk.greet()
        talk.line()
        talk.line()
        talk.send(message_frame(1, b"a") + message_frame(2, b"b"))
        talk.line()

    pull_reader = begin(script)
    assert pull_reader.receive(soon(0.02)) is None
    pull_reader.send(b"NOP\n")
    before = monotonic()
    assert pull_reader.receive(soon()) == [b"a", b"b"]
    assert listener.heard_at >= before
    assert pull_reader.receive(0.0) is None


def test_heartbeats_are_answered_while_somebody_reads(begin):
    said = []

    def script(talk):
        talk.greet()
        talk.line()
        talk.send(HEARTBEAT_FRAME)
        said.append(talk.line())
        talk.send(message_frame(1, b"a"))
        talk.line()

    pull_reader = begin(script)
    assert pull_reader.receive(soon()) == []
    assert pull_reader.receive(soon()) == [b"a"]
    assert said == [b"NOP"]


def test_late_answers_are_told_and_other_errors_end_it(begin, listener):
    def script(talk):
        talk.greet()
        talk.line()
        talk.send(encode_frame(ERROR, b"E_FIN_FAILED FIN x failed"))
        talk.send(encode_frame(RESPONSE, b"CLOSE_WAIT") + encode_frame(ERROR, b"E_INVALID no"))
        talk.line()

    pull_reader = begin(script)
    with pytest.raises(ServerError, match="E_INVALID no"):
        on_and_on(lambda: pull_reader.receive(soon()))
    assert [each.code for each in listener.refused] == ["E_FIN_FAILED"]
    assert listener.confirmed


def test_a_giant_frame_is_refused_before_it_is_there(begin):
    def script(talk):
        talk.greet()
        talk.line()
        talk.send(message_frame(1, b"x" * 4000))
        talk.line()

    with pytest.raises(ProtocolError, match="max_frame_size"):
        begin(script).receive(soon())


@pytest.mark.parametrize("reset", [False, True])
def test_the_end_is_told(begin, reset):
    def script(talk):
        talk.greet()
        talk.line()
        talk.line()
        if reset:
            talk.reset()

    pull_reader = begin(script)
    pull_reader.send(b"NOP\n")
    with pytest.raises(ConnectionLost, match="lost|closed"):
        pull_reader.receive(soon())


def test_it_knows_whether_the_server_has_read_to_the_end(begin):
    heard = []

    def script(talk):
        talk.greet()
        talk.line()
        heard.append(talk.line())
        talk.send(HEARTBEAT_FRAME)
        talk.line()  # the end of the stream

    pull_reader = begin(script)
    pull_reader.send(b"REQ something\n")
    assert pull_reader.read_to_end(soon())
    assert heard == [b"REQ something"]


def test_a_server_that_does_not_close_is_not_waited_for(begin):
    def script(talk):
        talk.greet()
        talk.line()
        talk.stall()

    assert not begin(script).read_to_end(soon(0.02))


def test_nothing_follows_what_an_interrupt_cut_off(begin, monkeypatch):
    came = []

    def script(talk):
        talk.greet()
        talk.line()
        came.append(talk.read(7))
        with pytest.raises(EOFError):
            came.append(talk.read(1))
        came.append(b"")

    pull_reader = begin(script)
    real = pull_reader._transport.send

    def cut(data: bytes, deadline: float) -> None:
        real(data[:7], deadline)
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(type(pull_reader._transport), "send", lambda _, *given: cut(*given))
        with pytest.raises(KeyboardInterrupt):
            pull_reader.send(b"FIN 0123456789abcdef\n")
    with pytest.raises(ConnectionLost):
        on_and_on(lambda: pull_reader.send(b"FIN fedcba9876543210\n"))
    eventually(lambda: len(came) == 2)
    assert came == [b"FIN 012", b""]


def test_nothing_can_be_sent_to_who_is_gone(begin):
    def script(talk):
        talk.greet()
        talk.line()
        talk.reset()

    pull_reader = begin(script)
    with pytest.raises(ConnectionLost):
        on_and_on(lambda: pull_reader.send(b"NOP\n" * 1000))


def test_a_forked_child_sends_nothing_and_ends_nothing(begin):
    heard: list[bytes] = []

    def script(talk):
        talk.greet()
        while True:
            heard.append(talk.line())

    pull_reader = begin(script)
    pull_reader._socket._process += 1  # as if this were the child
    with pytest.raises(ConnectionLost, match="parent process"):
        pull_reader.send(b"FIN 0123456789abcdef\n")
    pull_reader._socket.hang_up()
    pull_reader._socket._process -= 1
    pull_reader.send(b"NOP\n")
    eventually(lambda: len(heard) == 2)
    assert heard == [b"SUB t c", b"NOP"]
