"""Answers of nsqds and lookups that are rare: receipts of others, full servers, nodes that flap."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from collections import Counter

import pytest

import nsqsmart
from nsqsmart.errors import NotAuthorized, Outcome, PublishError
from nsqsmart.net import resolving
from nsqsmart.wire.frames import ERROR, MAX_ANSWER, RESPONSE, encode_frame
from nsqsmart.wire.receipts import TracedReceipt, encode_receipt
from tests.helpers import eventually
from tests.integration.consuming import Handled
from tests.integration.publishing import codes, failure, published, shared
from tests.peers import (
    Peer,
    Script,
    Talk,
    http_answer,
    http_script,
    lookup_of,
    message_frame,
    subscribed,
)

QUICK = {"lookupd_poll_interval": 0.05, "lookupd_min_refresh_interval": 0.01}


def url_of(*lookups: Peer) -> str:
    return "nsq+lookupd://" + ",".join("{}:{}".format(*each.address) for each in lookups)


def healthy(talk: Talk) -> None:
    talk.greet()
    while True:
        talk.line()
        talk.body()
        talk.ok()


# ----------------------------------------------------------------------------- answers to a PUB

BAD_RECEIPTS = {
    "plain": b"OK",
    "another": encode_receipt(TracedReceipt(1, 8, 0, 10)),
    "long": encode_receipt(TracedReceipt(1, 7, 0, 10)) + b"\0",
    "short": encode_receipt(TracedReceipt(1, 7, 0, 10))[:-1],
    "zeros": b"OK" + bytes(28),
}


def rounds(way: str) -> int:
    """How often a call goes wrong: a second one each on a connection of its own.

    In publish_async it may meet the first one's before that has ended, and come back unsent.
    """
    return 1 if way == "publish_async" else 2


def answering(data: bytes) -> Script:
    def script(talk: Talk) -> None:
        talk.greet(b'{"version":"0.3.7-HA.1.13.0"}')
        while True:
            talk.line()
            talk.body()
            talk.send(encode_frame(RESPONSE, data))

    return script


@pytest.mark.parametrize("way", ["publish", "publish_async"])
@pytest.mark.parametrize("data", BAD_RECEIPTS.values(), ids=BAD_RECEIPTS)
def test_a_receipt_that_is_not_that_of_the_message_is_no_success(data, way):
    """It may be another's, or a server that has lost count: its connection is used no more."""
    with Peer(answering(data)) as nsqd, Peer(lookup_of({0: nsqd.address})) as lookup:
        with nsqsmart.Producer(url_of(lookup), publish_attempts=1) as producer:
            for _ in range(rounds(way)):
                with pytest.raises(PublishError) as caught:
                    published(producer, way, b"x", trace_id=7)
                assert caught.value.outcome is Outcome.UNCERTAIN
                assert codes(caught.value) == ["ProtocolError"]
        assert nsqd.accepted == rounds(way)


@pytest.mark.parametrize("data", [b"OK\0", b"OK ", b"OKOK", b"OK" + bytes(28), b"ok", b"O"])
@pytest.mark.parametrize("way", ["publish", "publish_async", "publish_many"])
def test_only_ok_is_ok_and_its_connection_is_left(data, way):
    with Peer(answering(data)) as nsqd:
        with nsqsmart.Producer(nsqd.url, publish_attempts=1) as producer:
            for _ in range(rounds(way)):
                with pytest.raises(PublishError) as caught:
                    published(producer, way, b"x")
                assert caught.value.outcome is Outcome.UNCERTAIN
        assert nsqd.accepted == rounds(way)


@pytest.mark.parametrize("way", ["publish", "publish_async", "publish_many"])
def test_an_answer_of_more_than_a_mebibyte_is_not_waited_for(way):
    """Its head is enough: no message can come here, however large messages may be."""

    def script(talk: Talk) -> None:
        talk.greet()
        talk.line()
        talk.body()
        talk.send(struct.pack(">II", MAX_ANSWER + 1, RESPONSE))
        talk.stall()

    options = {"publish_attempts": 1, "max_frame_size": 64 << 20}
    with (
        Peer(script) as nsqd,
        nsqsmart.Producer(nsqd.url, **options) as producer,
        pytest.raises(PublishError) as caught,
    ):
        published(producer, way, b"x", timeout=5)
    assert caught.value.outcome is Outcome.UNCERTAIN
    assert codes(caught.value) == ["ProtocolError"]


# --------------------------------------------------------------- servers that refuse every client


def full(talk: Talk) -> None:
    talk.send(encode_frame(ERROR, b"too much client connections"))


def test_an_nsqd_that_is_full_is_left_alone_where_there_is_another():
    """For a second at first: one call finds out, and the others do not pay for it."""
    with Peer(full) as crowded, Peer(healthy) as nsqd:
        url = f"{crowded.url},{nsqd.url.removeprefix('nsq://')}"
        with nsqsmart.Producer(url) as producer:
            receipts = [producer.publish("t", b"x", timeout=5) for _ in range(40)]
            (outage,) = shared(producer).outages.nodes.values()
        assert {receipt.nsqd for receipt in receipts} == {"{}:{}".format(*nsqd.address)}
        # Who found out went on to the other at once.
        assert sum(receipt.attempts - 1 for receipt in receipts) == crowded.accepted == 1
        assert outage.failures == 1


def test_where_every_nsqd_is_full_nothing_was_sent_and_the_pauses_grow():
    with Peer(full) as crowded, nsqsmart.Producer(crowded.url) as producer:
        error = failure(producer, timeout=0.5)
        assert error.outcome is Outcome.NOT_SENT
        assert "too much client connections" in str(error)
        assert len(error.attempts) == crowded.accepted < 30


def asks_for_auth(talk: Talk) -> None:
    talk.greet(json.dumps({"version": "1.3.0", "auth_required": True}).encode())
    talk.stall()


def test_a_secret_that_is_asked_for_and_not_there_is_said_once_and_not_tried_again():
    with Peer(asks_for_auth) as nsqd:
        with nsqsmart.Producer(nsqd.url) as producer:
            for way in (
                producer.publish,
                lambda *args: producer.publish_async(*args).result(5),
            ):
                with pytest.raises(NotAuthorized, match="auth_secret") as caught:
                    way("t", b"x")
                assert caught.value.code == "E_AUTH_FIRST"
                assert caught.value.outcome is not Outcome.UNCERTAIN
        # publish_async tries it a second time, outside its pipeline, and then it is over.
        assert (before := nsqd.accepted) <= 3
        consumer = nsqsmart.Consumer("t", "c", print, address=nsqd.url)
        with pytest.raises(NotAuthorized, match="auth_secret"):
            consumer.start()
        consumer.close()
        host = "{}:{}".format(*nsqd.address)
        with pytest.raises(NotAuthorized, match="auth_secret"):
            nsqsmart.PullSubscription(nsqd.url, "t", "c", nsqd=host).pull(1, timeout=5)
        assert nsqd.accepted == before + 2


# ------------------------------------------------------------------------- nodes that come and go


def flapping(nodes: list[tuple[str, int]], asked: Counter[str]) -> Script:
    """A lookup that lists all of *nodes*, and in every other round the last one alone."""

    def answer(path: str) -> bytes:
        if not path.startswith("/lookup?"):
            return http_answer(404, b"{}")
        asked["rounds"] += 1
        listed = nodes if asked["rounds"] % 2 else nodes[-1:]
        producers = [
            {"broadcast_address": host, "tcp_port": port, "http_port": 1, "version": "1.3.0"}
            for host, port in listed
        ]
        return http_answer(200, json.dumps({"channels": ["c"], "producers": producers}).encode())

    return http_script(answer)


def test_the_connection_to_a_node_that_flaps_is_kept():
    """It appears and vanishes with every round; what it sends comes all the while."""
    asked: Counter[str] = Counter()
    quiet = subscribed(lambda _line: None)
    with Peer(subscribed(lambda _line: None, message_frame(1))) as one, Peer(quiet) as other:
        handled = Handled()
        with (
            Peer(flapping([one.address, other.address], asked)) as lookup,
            nsqsmart.Consumer("t", "c", handled, address=url_of(lookup), **QUICK) as consumer,
        ):
            eventually(lambda: asked["rounds"] >= 9)
            assert handled.bodies() == [b"x"]
            assert sum(each.live for each in consumer._runtime.snapshot()) == 2
        assert (one.accepted, other.accepted) == (1, 1)


# ------------------------------------------------------------------------- lookups that move house


def test_the_name_of_a_lookup_is_resolved_again(monkeypatch):
    """A seed whose DNS entry changes is asked where it is now, a minute later at most."""
    monkeypatch.setattr(resolving, "_known", {})
    real = socket.getaddrinfo
    houses: list[str] = ["127.0.0.1"]

    def getaddrinfo(host, port, *args, **options):
        named = host == "lookup.example" and not options.get("flags", 0) & socket.AI_NUMERICHOST
        return real(houses[-1] if named else host, port, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with Peer(healthy) as nsqd, Peer(lookup_of({0: nsqd.address})) as old:
        port = old.address[1]
        with (
            socket.create_server(("127.0.0.2", port)) as elsewhere,
            nsqsmart.Producer(f"nsq+lookupd://lookup.example:{port}", **QUICK) as producer,
        ):
            elsewhere.settimeout(3)
            producer.publish("t", b"x", timeout=5)
            asked = old.accepted
            houses.append("127.0.0.2")
            producer.warm("u")
            assert old.accepted > asked
            for name, (at, found) in list(resolving._known.items()):
                resolving._known[name] = at - 61, found  # as if that long had passed
            with contextlib.suppress(nsqsmart.errors.NsqError):
                producer.warm("v", timeout=0.5)
            elsewhere.accept()[0].close()
