"""Servers that do what a healthy one rarely or never does, seen from a Consumer and a Producer."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter

import pytest

import nsqsmart
from nsqsmart.client.shared import arguments
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import NotAuthorized, Outcome, PublishError, PublishFailed
from nsqsmart.wire.frames import ERROR, RESPONSE, encode_frame
from tests.helpers import eventually
from tests.integration.consuming import Handled, all_finished, publish
from tests.peers import Peer, Talk, message_frame, subscribed

QUICK = {"lookupd_poll_interval": 0.1, "lookupd_min_refresh_interval": 0.05}


def consume(url: str, handler, **options):
    return nsqsmart.Consumer("t", "c", handler, address=url, **(QUICK | options))


def hang_up(talk: Talk) -> None:
    talk.sock.shutdown(socket.SHUT_RDWR)


# ---------------------------------------------------------------------------------------- consuming


def test_a_stream_that_ends_anywhere_gives_whole_messages_and_nothing_of_the_others():
    """Each cut of three frames: what was whole is handled, and the connection is made again."""
    frames = [message_frame(number, b"body %d" % number) for number in range(3)]
    stream = b"".join(frames)
    ends = [sum(map(len, frames[:count])) for count in range(1, 4)]
    cut = [0]
    whole = {b"body %d" % number for number in range(3)}

    def script(talk: Talk) -> None:
        at = cut[0]
        subscribed(lambda _line: None, stream[:at], speak=hang_up)(talk)

    with Peer(script) as nsqd:
        for at in range(0, len(stream) + 1, 7):
            cut[0] = at
            before = nsqd.accepted
            handled = Handled()
            with consume(nsqd.url, handled):
                count = sum(at >= end for end in ends)
                eventually(lambda count=count, handled=handled: len(handled.messages) >= count)
                eventually(lambda before=before: nsqd.accepted > before + 1)
            assert set(handled.bodies()) <= whole


def test_a_server_that_stops_within_a_frame_is_left():
    """Silence in the middle of a message: after 2.5 heartbeat intervals it is dialled again."""
    half = message_frame(1, b"x" * 100)[:60]
    handled = Handled()
    scripts = [
        subscribed(lambda _line: None, half, speak=Talk.stall),
        subscribed(lambda _line: None, message_frame(2, b"whole")),
    ]
    with Peer(*scripts) as nsqd, consume(nsqd.url, handled, heartbeat_interval=1.0):
        eventually(lambda: handled.bodies() == [b"whole"], timeout=15)
        assert nsqd.accepted == 2


def test_messages_behind_close_wait_go_back_or_are_forgotten():
    """They were on their way; nothing breaks, and no handler begins."""
    said: list[bytes] = []

    def script(talk: Talk) -> None:
        talk.greet()
        while True:
            line = talk.line()
            said.append(line)
            if line.startswith(b"SUB"):
                talk.ok()
            elif line == b"CLS":
                talk.send(encode_frame(RESPONSE, b"CLOSE_WAIT") + message_frame(7, b"late"))

    handled = Handled()
    with Peer(script) as nsqd:
        with consume(nsqd.url, handled) as consumer:
            eventually(lambda: any(line.startswith(b"RDY") for line in said))
        assert consumer.stats().failed == 0
    assert handled.messages == []


@pytest.mark.parametrize("attempts", [0, 65535])
def test_a_count_of_attempts_is_taken_as_it_is(attempts):
    handled = Handled()
    given_up: list[nsqsmart.Message] = []
    frames = [message_frame(1, b"x", attempts=attempts)]
    options = {"max_attempts": 5, "on_giving_up": given_up.append}
    with (
        Peer(subscribed(lambda _line: None, *frames)) as nsqd,
        consume(nsqd.url, handled, **options),
    ):
        eventually(lambda: handled.messages or given_up)
    found = given_up if attempts else handled.messages
    assert [message.attempts for message in found] == [attempts]


def test_what_comes_twice_on_one_connection_is_handled_and_answered_twice():
    """At least once: the library drops no copy that the server counts as in flight."""
    said: list[bytes] = []
    handled = Handled()
    frames = [message_frame(1, b"x"), message_frame(1, b"x", attempts=2)]
    with Peer(subscribed(said.append, *frames)) as nsqd, consume(nsqd.url, handled, workers=1):
        eventually(lambda: sum(line.startswith(b"FIN ") for line in said) == 2)
    assert [message.attempts for message in handled.messages] == [1, 2]


def test_a_topic_that_is_deleted_while_it_is_consumed_is_found_again():
    with Cluster(dialect="original") as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        handled = Handled()
        with consume(cluster.url, handled) as consumer:
            publish(cluster, b"before")
            eventually(lambda: handled.bodies() == [b"before"])
            nsqsmart.Admin(cluster.url).delete_topic("t")
            eventually(lambda: not any(each.live for each in consumer._runtime.snapshot()))
            publish(cluster, b"after")
            eventually(lambda: handled.bodies() == [b"before", b"after"], timeout=15)


def test_a_server_that_comes_back_as_another_one_is_asked_for_everything_anew():
    """Nothing of the last handshake is kept: here the message timeout and the largest RDY."""
    grants = [
        {"max_rdy_count": 2500, "version": "1.3.0", "msg_timeout": 60000},
        {"max_rdy_count": 7, "version": "1.2.1", "msg_timeout": 5000},
    ]
    said: list[list[bytes]] = [[], []]

    def life(number: int):
        def script(talk: Talk) -> None:
            talk.greet(json.dumps(grants[number]).encode())
            while True:
                line = talk.line()
                said[number].append(line)
                if line.startswith(b"SUB"):
                    talk.ok()
                elif line.startswith(b"RDY") and not number:
                    return

        return script

    with (
        Peer(life(0), life(1)) as nsqd,
        consume(nsqd.url, print, rdy_mode="level", max_in_flight=100) as consumer,
    ):
        eventually(lambda: b"RDY 7" in said[1])
        (subscription,) = consumer._runtime.snapshot()
        assert (subscription.msg_timeout, subscription.max_rdy) == (5.0, 7)
    assert b"RDY 100" in said[0]


def test_a_consumer_that_is_closed_by_its_server_again_and_again_stays():
    """A redesigned nsqd closes connections that look stuck; each is made again, without growth."""
    handled = Handled()

    def close(talk: Talk) -> None:
        assert talk.line().startswith(b"FIN ")
        hang_up(talk)

    frame = message_frame(1)
    with (
        Peer(subscribed(lambda _line: None, frame, speak=close)) as nsqd,
        consume(nsqd.url, handled),
    ):
        eventually(lambda: len(handled.messages) >= 5, timeout=15)


def test_a_refused_answer_of_one_who_no_longer_leads_ends_the_connection():
    """The message comes again, and is handled again: its first answer was never taken."""
    with Cluster() as cluster:
        cluster.create_topic("t", partitions=1)
        cluster.create_channel("t", "c")
        cluster.faults.add(faults.on("FIN").reply("E_FAILED_ON_NOT_LEADER"))
        handled = Handled()
        with consume(cluster.url, handled) as consumer:
            publish(cluster, b"x")
            eventually(lambda: len(handled.messages) == 2, timeout=15)
            all_finished(cluster)
            assert consumer.stats().finished >= 1
    assert handled.bodies() == [b"x", b"x"]


def test_message_headers_that_claim_a_compression_are_passed_on_as_they_are(monkeypatch):
    """No codec is run, and nothing is allocated, by what the publisher of a message claims."""
    monkeypatch.setattr(arguments, "RESERVED", "another prefix")  # as other clients write them
    claims = {"##compress": "gzip", "##original_size": str(2 << 30)}
    with Cluster() as cluster:
        cluster.create_topic("t", partitions=1, extend_support=True)
        cluster.create_channel("t", "c")
        handled = Handled()
        with (
            consume(cluster.url, handled),
            nsqsmart.Producer(cluster.url) as producer,
        ):
            producer.publish("t", b"\x1f\x8bnot gzip", headers=claims, timeout=10)
            eventually(lambda: handled.messages)
    (message,) = handled.messages
    assert message.body == b"\x1f\x8bnot gzip"
    assert claims.items() <= dict(message.headers).items()


# --------------------------------------------------------------------------------------- publishing


def test_where_too_much_waits_another_nsqd_takes_the_message():
    with Cluster(nsqds=2) as cluster:
        cluster.create_topic("t", partitions=2)
        cluster.create_channel("t", "c")
        cluster.faults.add(faults.on("PUB", partition=0, times=50).reply("E_PUB_TOO_MUCH_WAITING"))
        with nsqsmart.Producer(cluster.url) as producer:
            receipts = [producer.publish("t", b"%d" % number, timeout=10) for number in range(10)]
    assert Counter(receipt.partition for receipt in receipts) == {1: 10}


def test_where_too_much_waits_everywhere_the_error_says_rejected():
    with Cluster() as cluster:
        cluster.create_topic("t", partitions=1)
        cluster.create_channel("t", "c")
        cluster.faults.add(faults.on("PUB", times=500).reply("E_PUB_TOO_MUCH_WAITING"))
        with (
            nsqsmart.Producer(cluster.url, publish_attempts=2) as producer,
            pytest.raises(PublishFailed, match="E_PUB_TOO_MUCH_WAITING") as caught,
        ):
            producer.publish("t", b"x", timeout=5)
    assert caught.value.outcome is Outcome.REJECTED


@pytest.mark.parametrize("code", [b"E_UNAUTHORIZED AUTH expired", b"E_AUTH_FAILED AUTH expired"])
def test_an_authorisation_that_expires_is_told_and_the_next_call_presents_the_secret_again(code):
    """nsqd closes nothing by itself: the connection is left, and AUTH is said on a new one."""
    secrets: list[bytes] = []

    def nsqd(talk: Talk) -> None:
        talk.greet(json.dumps({"version": "1.3.0", "auth_required": True}).encode())
        assert talk.line() == b"AUTH"
        secrets.append(talk.body())
        talk.send(encode_frame(RESPONSE, b'{"identity":"me"}'))
        talk.publish()
        if len(secrets) == 1:
            talk.send(encode_frame(ERROR, code))
            talk.stall()
        talk.ok()
        talk.stall()

    with Peer(nsqd) as peer, nsqsmart.Producer(peer.url, auth_secret="s3cret") as producer:
        with pytest.raises(NotAuthorized) as caught:
            producer.publish("t", b"x", timeout=5)
        assert caught.value.outcome is Outcome.REJECTED
        assert producer.publish("t", b"y", timeout=5).attempts == 1
    assert secrets == [b"s3cret", b"s3cret"]


def test_a_server_that_grants_nothing_is_no_reason_to_go_without_what_was_asked_for():
    """A plain OK to IDENTIFY grants nothing: TLS and compression are not silently left out."""

    def nsqd(talk: Talk) -> None:
        talk.greet(b"OK")
        talk.stall()

    with Peer(nsqd) as peer:
        for options in ({"snappy": True}, {"deflate": True}, {"tls_v1": True}):
            with (
                nsqsmart.Producer(peer.url, publish_attempts=1, **options) as producer,
                pytest.raises(PublishFailed) as caught,
            ):
                producer.publish("t", b"secret", timeout=5)
            assert caught.value.outcome is Outcome.NOT_SENT


def test_answers_in_the_wrong_order_are_counted_by_their_place_and_end_the_connection():
    """Which message an error is about cannot be told; what comes later goes elsewhere."""
    submitted = threading.Event()

    def nsqd(talk: Talk) -> None:
        # Or the second one would wait for the answer to the first.
        assert submitted.wait(10)
        talk.greet()
        for _ in range(2):
            talk.publish()
        # For the second one, before the OK of the first.
        talk.send(encode_frame(ERROR, b"E_BAD_MESSAGE second"))
        talk.ok()
        talk.stall()

    def healthy(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        talk.ok()
        talk.stall()

    with Peer(nsqd, healthy) as peer, nsqsmart.Producer(peer.url, publish_attempts=1) as producer:
        first, second = (producer.publish_async("t", body, timeout=5) for body in (b"1", b"2"))
        pipelines = producer._running().asynchronous()._pipes._pipelines
        eventually(lambda: [len(each._gathered) for each in list(pipelines.values())] == [2])
        submitted.set()
        with pytest.raises(PublishError, match="E_BAD_MESSAGE"):
            first.result(10)
        second.result(10)
        producer.publish_async("t", b"3", timeout=5).result(10)
        assert peer.accepted == 2


def test_a_large_body_through_compression_to_a_slow_reader_arrives_whole():
    """Incompressible: the frames are larger than what was put in."""
    body = bytes(range(256)) * 3500
    for option in ("snappy", "deflate"):
        with Cluster() as cluster:
            cluster.create_topic("t", partitions=1)
            cluster.create_channel("t", "c")
            with nsqsmart.Producer(cluster.url, **{option: True}) as producer:
                producer.publish("t", body, timeout=20)
            handled = Handled()
            with consume(cluster.url, handled, **{option: True}):
                eventually(lambda handled=handled: handled.bodies() == [body])
