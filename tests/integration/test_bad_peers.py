"""Peers that are no nsqd, or a broken one: a typed error within the deadline, and the next call
on a connection of its own.
"""

from __future__ import annotations

import logging
import struct
import threading

import pytest

import nsqsmart
from nsqsmart.errors import (
    ConfigError,
    MessageRejected,
    Outcome,
    ProtocolError,
    PublishError,
    PublishTimeout,
    SubscribeError,
    TurnTimeout,
)
from nsqsmart.wire.frames import ERROR, HEARTBEAT_FRAME, MESSAGE, OK_FRAME, RESPONSE, encode_frame
from tests.helpers import eventually
from tests.integration.publishing import failure, shared
from tests.peers import Peer, Script, Talk, lookup_of, message_frame, subscribed

TIMEOUT = 0.6


def answering(*data: bytes):
    """A peer that takes a PUB and answers with *data*."""

    def script(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        for piece in data:
            talk.send(piece)
        talk.stall()

    return script


def healthy(talk: Talk) -> None:
    talk.greet()
    while True:
        talk.publish()
        talk.ok()


def publish_fails(peer: Peer, **options: object) -> PublishError:
    """The error of one publish, which must come in time."""
    with nsqsmart.Producer(peer.url, publish_attempts=1, **options) as producer:
        return failure(producer, timeout=TIMEOUT)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff" * 64,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x02\x00\x00",
        struct.pack(">II", 0xFFFFFFFF, RESPONSE),
        struct.pack(">II", 6, 9) + b"OK",
        encode_frame(MESSAGE, b"m" * 30),
        encode_frame(RESPONSE, b"NO"),
        encode_frame(RESPONSE, b"OK" + bytes(28)),
        OK_FRAME + OK_FRAME,
        encode_frame(ERROR, b"too much client connections"),
        encode_frame(ERROR, b"\xff\xfe"),
    ],
)
def test_an_answer_that_is_none_fails_in_time_and_is_uncertain(garbage):
    with Peer(answering(garbage)) as peer:
        error = publish_fails(peer)
    assert error.outcome is Outcome.UNCERTAIN
    assert [attempt.nsqd for attempt in error.attempts] == ["{}:{}".format(*peer.address)]


@pytest.mark.parametrize(
    "script",
    [
        lambda talk: talk.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        lambda talk: talk.send(b"\xff" * 100),
        lambda talk: talk.stall(),
        lambda talk: talk.reset(),
        lambda talk: None,
        lambda talk: talk.send(encode_frame(RESPONSE, b"{not json")),
        lambda talk: talk.send(encode_frame(RESPONSE, b"[1, 2]")),
        lambda talk: talk.send(encode_frame(RESPONSE, b'{"max_rdy_count": "many"}')),
        lambda talk: talk.send(encode_frame(RESPONSE, b"{}")[:7]),
    ],
)
def test_a_handshake_that_fails_sends_nothing_of_the_message(script):
    with Peer(script) as peer:
        error = publish_fails(peer)
    assert error.outcome is Outcome.NOT_SENT


def test_the_http_port_is_named_for_what_it_is():
    with Peer(lambda talk: talk.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as peer:
        error = publish_fails(peer)
    assert "speaks HTTP" in str(error)


def test_silence_ends_at_the_deadline_and_names_it():
    with Peer(answering()) as peer:
        error = publish_fails(peer)
    assert isinstance(error, PublishTimeout)
    assert error.outcome is Outcome.UNCERTAIN
    assert not error.answered


def test_an_answer_in_drips_is_put_together():
    drips = [OK_FRAME[i : i + 1] for i in range(len(OK_FRAME))]
    with Peer(answering(*drips)) as peer, nsqsmart.Producer(peer.url) as producer:
        assert producer.publish("t", b"x", timeout=5).attempts == 1


def test_heartbeats_before_the_answer_are_answered_by_nop():
    nops = []

    def script(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        talk.send(HEARTBEAT_FRAME)
        nops.append(talk.line())
        talk.send(HEARTBEAT_FRAME + OK_FRAME)
        nops.append(talk.line())

    with Peer(script) as peer, nsqsmart.Producer(peer.url) as producer:
        producer.publish("t", b"x", timeout=5)
    assert nops == [b"NOP", b"NOP"]


def test_a_late_answer_is_never_taken_for_the_next_one():
    bodies = []

    def late(talk: Talk) -> None:
        talk.greet()
        bodies.append(talk.publish())
        talk.stall()

    with Peer(late, healthy) as peer, nsqsmart.Producer(peer.url, publish_attempts=1) as producer:
        with pytest.raises(PublishTimeout):
            producer.publish("t", b"first", timeout=0.2)
        producer.publish("t", b"second", timeout=5)
        assert peer.accepted == 2
    assert bodies == [b"first"]


def test_a_surplus_frame_retires_the_connection_before_the_next_call():
    """At the latest when it was not looked at for 5 ms (decisions#84)."""
    surplus_sent = threading.Event()

    def generous(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        talk.ok()
        talk.send(OK_FRAME)
        surplus_sent.set()
        talk.stall()

    with Peer(generous, healthy) as peer, nsqsmart.Producer(peer.url) as producer:
        producer.publish("t", b"first", timeout=5)
        assert surplus_sent.wait(5)
        (host,) = shared(producer).pool._hosts.values()
        host.idle[0].seen_alive = 0.0
        producer.publish("t", b"second", timeout=5)
        assert peer.accepted == 2


def test_a_connection_closed_while_idle_is_replaced_unnoticed():
    def once(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        talk.ok()

    with Peer(once) as peer, nsqsmart.Producer(peer.url) as producer:
        for _ in range(5):
            assert producer.publish("t", b"x", timeout=5)


def test_an_error_written_before_a_reset_is_read():
    def refuse_unread(talk: Talk) -> None:
        talk.greet()
        talk.line()
        talk.send(encode_frame(ERROR, b"E_BAD_MESSAGE PUB message too big 9 > 8"))
        talk.sock.close()

    with Peer(refuse_unread) as peer:
        error = publish_fails(peer)
    assert isinstance(error, MessageRejected)
    assert error.outcome is Outcome.REJECTED
    assert error.code == "E_BAD_MESSAGE"


@pytest.mark.parametrize(
    "code",
    ["E_PUB_FAILED", "E_TOPIC_NOT_EXIST", "E_PUB_TOO_MUCH_WAITING", "E_INVALID", "E_WHATEVER"],
)
def test_nothing_is_sent_where_the_server_may_be_hanging_up(code):
    """It closes behind these, but not yet: what is sent into that has no answer."""

    def refuse(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        talk.send(encode_frame(ERROR, code.encode()))
        try:
            talk.line()
        finally:
            talk.reset()

    with Peer(refuse, healthy) as peer, nsqsmart.Producer(peer.url) as producer:
        assert producer.publish("t", b"x", timeout=5).attempts == 2
        assert peer.accepted == 2


@pytest.mark.parametrize("code", ["E_FAILED_ON_NOT_LEADER", "E_FAILED_ON_NOT_WRITABLE"])
def test_who_no_longer_leads_keeps_the_connection(code):
    def refuse_once(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        talk.send(encode_frame(ERROR, code.encode() + b" "))
        talk.publish()
        talk.ok()

    with Peer(refuse_once) as peer, nsqsmart.Producer(peer.url) as producer:
        assert producer.publish("t", b"x", timeout=5).attempts == 2
        assert peer.accepted == 1


def test_an_unanswered_publish_is_retried_and_the_receipt_says_so():
    def lose(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        talk.reset()

    with Peer(lose, healthy) as peer, nsqsmart.Producer(peer.url) as producer:
        assert producer.publish("t", b"x", timeout=5).attempts == 2


def test_nothing_is_allocated_for_a_giant_frame():
    giant = struct.pack(">II", 0x7FFFFFFF, RESPONSE) + b"x" * 1000
    with Peer(answering(giant)) as peer:
        error = publish_fails(peer, max_frame_size=4096)
    assert "max_frame_size=4096" in str(error)


@pytest.mark.parametrize("topic", ["", "a b", "a\n", "ü", "a" * 65, "a#b", "PUB x\nPUB"])
def test_an_illegal_name_is_refused_before_anything_is_dialled(topic):
    with Peer(healthy) as peer:
        with nsqsmart.Producer(peer.url) as producer, pytest.raises(ConfigError, match="topic"):
            producer.publish(topic, b"x")
        with pytest.raises(ConfigError, match="channel"):
            nsqsmart.Consumer("t", topic, print, address=peer.url)
        assert peer.accepted == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"body": b""}, ConfigError),
        ({"body": "text"}, TypeError),
        ({"body": b"x", "key": True}, TypeError),
        ({"body": b"x", "key": 1.5}, TypeError),
        ({"body": b"x", "key": "a", "partition": 1}, TypeError),
        ({"body": b"x", "partition": -1}, ConfigError),
        ({"body": b"x", "partition": 1024}, ConfigError),
        ({"body": b"x", "trace_id": -1}, ConfigError),
        ({"body": b"x", "trace_id": "1"}, TypeError),
        ({"body": b"x", "timeout": -1}, ConfigError),
        ({"body": b"x", "timeout": float("nan")}, ConfigError),
        ({"body": b"x", "timeout": "5"}, TypeError),
    ],
)
def test_a_bad_argument_is_refused_before_anything_is_dialled(arguments, error):
    with Peer(healthy) as peer, nsqsmart.Producer(peer.url) as producer:
        with pytest.raises(error):
            producer.publish("t", **arguments)
        assert peer.accepted == 0


@pytest.mark.parametrize("options", [{}, {"key": "k"}], ids=["plain", "keyed"])
def test_heartbeats_until_the_deadline_leave_it_in_doubt(options):
    """Each comes as late as can be: the NOP for the last one is behind the deadline."""
    stored = []

    def script(talk: Talk) -> None:
        talk.greet()
        stored.append(talk.publish())
        while not talk.released.is_set():
            talk.send(HEARTBEAT_FRAME)

    leaders: dict[int, tuple[str, int]] = {}
    with Peer(script) as peer, Peer(lookup_of(leaders)) as lookup:
        leaders[0] = peer.address
        url = "nsq+lookupd://{}:{}".format(*lookup.address)
        with nsqsmart.Producer(url, retry_unanswered=False) as producer:
            error = failure(producer, timeout=TIMEOUT, **options)
    assert error.outcome is Outcome.UNCERTAIN
    assert not error.answered
    if options:
        assert len(stored) == 1


def test_a_receipt_that_nobody_asked_for_is_no_success_of_publish_async_either():
    receipt = encode_frame(RESPONSE, b"OK" + bytes(28))
    with Peer(answering(receipt)) as peer, nsqsmart.Producer(peer.url, publish_attempts=1) as one:
        pending = one.publish_async("t", b"x", timeout=TIMEOUT)
        with pytest.raises(PublishError) as caught:
            pending.result()
    assert caught.value.outcome is Outcome.UNCERTAIN


@pytest.mark.parametrize("options", [{}, {"uncertain_fence": 30}], ids=["turn", "fence"])
def test_a_keyed_call_that_waited_for_its_turn_says_so(options):
    """It is no matter of the pool."""
    taken, leaders = threading.Event(), {}

    def silent(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        taken.set()
        talk.stall()

    with Peer(silent) as peer, Peer(lookup_of(leaders)) as lookup:
        leaders[0] = peer.address
        url = "nsq+lookupd://{}:{}".format(*lookup.address)
        with nsqsmart.Producer(url, close_timeout=0, **options) as producer:
            patience = 0.2 if options else 30
            first = producer.publish_async("t", b"first", key="k", timeout=patience)
            assert taken.wait(5)
            if options:
                with pytest.raises(PublishError):
                    first.result()
            with pytest.raises(PublishTimeout if not options else PublishError) as caught:
                producer.publish("t", b"second", key="k", timeout=0.2)
            assert (caught.value.code, caught.value.outcome) == ("TurnTimeout", Outcome.NOT_SENT)
            assert isinstance(caught.value.__cause__, TurnTimeout)


FLOOD = b"".join(message_frame(number, bytes(10_000)) for number in range(1000))


def flooding() -> tuple[list[int], Script]:
    """An nsqd that sends for ever once it is asked for something, and how many bytes it got rid of
    on each connection.
    """
    sent: list[int] = []

    def flood(talk: Talk) -> None:
        mine = len(sent)
        sent.append(0)
        while not talk.released.is_set():
            talk.send(FLOOD[: 1 << 20])
            sent[mine] += 1 << 20

    return sent, subscribed(lambda _line: None, speak=flood)


def test_a_server_that_ignores_rdy_is_left_and_told_of(caplog):
    caplog.set_level(logging.WARNING, "nsqsmart")
    stuck = threading.Event()
    sent, script = flooding()
    with Peer(script) as peer:
        options = {"address": peer.url, "max_in_flight": 10, "workers": 1}
        with nsqsmart.Consumer("t", "c", lambda _message: stuck.wait(5), **options) as consumer:
            eventually(lambda: len(sent) > 3, what="three connections are left")
            assert consumer._runtime.dispatcher.inbox.qsize() < 150
            assert consumer._runtime.received < 200 * len(sent)
            # Between the end of one connection and the beginning of the next.
            eventually(lambda: "ignores RDY" in " ".join(consumer.health().reasons), every=0.001)
            stuck.set()
    told = [
        record.getMessage() for record in caplog.records if "ignores RDY" in record.getMessage()
    ]
    assert told
    assert "messages at a time at most" in told[0]


@pytest.mark.parametrize("draining", [False, True])
def test_so_is_one_that_is_pulled_from(draining):
    _, script = flooding()
    options = {"max_in_flight": 3, "close_timeout": 5}
    with Peer(script) as peer, nsqsmart.PullSubscription(peer.url, "t", "c", **options) as own:
        assert own.pull(1, 5)
        if draining:
            assert not own.drain().confirmed
            return

        def pull_on() -> None:
            while own.pull(100, 5):
                assert own.in_flight < 200

        with pytest.raises(ProtocolError, match="ignores RDY"):
            pull_on()


def pull(url: str) -> None:
    with nsqsmart.PullSubscription(url, "t", "c") as subscription:
        subscription.open(5)


def consume(url: str) -> None:
    with nsqsmart.Consumer("t", "c", print, address=url) as consumer:
        consumer.start()


@pytest.mark.parametrize("subscribe", [pull, consume])
def test_an_nsqd_that_lets_nobody_ask_for_messages_is_told_of(subscribe):
    """It is no consumer that is ready, and waits for ever."""

    def script(talk: Talk) -> None:
        talk.greet(b'{"version":"1.3.0","max_rdy_count":0}')
        while talk.line():
            talk.ok()

    with Peer(script) as peer, pytest.raises(SubscribeError, match="max-rdy-count"):
        subscribe(peer.url)
