"""Lookups that lie, stall or drip: skipped and counted; the last good topology is used."""

from __future__ import annotations

import json
import time

import pytest

import nsqsmart
from nsqsmart.errors import DiscoveryError
from nsqsmart.names import Address
from nsqsmart.net.http.lookup import WRITE, LookupClient, LookupOptions
from tests.helpers import eventually
from tests.integration.publishing import failure
from tests.peers import Peer, Talk, http_answer, http_script

OPTIONS = LookupOptions(request_timeout=0.4, listlookup_interval=60.0, failure_threshold=3)


def answers(nsqd: tuple[str, int]):
    """A healthy original lookup that knows one nsqd."""
    producer = {"broadcast_address": nsqd[0], "tcp_port": nsqd[1], "http_port": 1}
    found = json.dumps({"channels": [], "producers": [producer]}).encode()

    def answer(path: str) -> bytes:
        if path.startswith("/lookup?"):
            return http_answer(200, found)
        return http_answer(404, b'{"message":"NOT_FOUND"}')

    return http_script(answer)


def drip(talk: Talk) -> None:
    talk.line()
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b" " * 1000:
        talk.send(bytes([byte]))
        if talk.released.wait(0.05):
            return


def flood(talk: Talk) -> None:
    talk.line()
    talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 52428800\r\n\r\n")
    for _ in range(800):
        talk.send(b" " * 65536)


def say(talk: Talk, rest: bytes, status: bytes = b"200 OK") -> None:
    while talk.line().strip():
        pass
    talk.send(b"HTTP/1.1 %s\r\n" % status + rest)


def redirect(talk: Talk, to: bytes) -> None:
    say(talk, b"Location: %s\r\nContent-Length: 0\r\n\r\n" % to, b"302 Found")


def in_chunks(talk: Talk, chunks: bytes) -> None:
    say(talk, b"Transfer-Encoding: chunked\r\n\r\n" + chunks)


BAD = {
    "html": http_script(lambda _path: http_answer(200, b"<html>hello</html>")),
    "html 500": http_script(lambda _path: http_answer(500, b"<html>oops</html>")),
    "redirect": http_script(
        lambda _path: b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"
    ),
    "redirect nowhere": lambda talk: redirect(talk, b"http://[::1/"),
    "redirect to no text": lambda talk: redirect(talk, b"http://h/\xff\xfe"),
    "redirect to no port": lambda talk: redirect(talk, b"http://h:99999999999/"),
    "a chunk of -5": lambda talk: in_chunks(talk, b"-5\r\n"),
    "a chunk of no number": lambda talk: in_chunks(talk, b"\xff\xfe\r\n"),
    "a head without end": lambda talk: say(talk, b"X: y\r\n" * 3000),
    "a list": http_script(lambda _path: http_answer(200, b"[]")),
    "truncated": http_script(lambda _path: http_answer(200, b'{"producers"', length=5000)),
    "garbage": lambda talk: talk.send(b"\xff\x00" * 100),
    "50 MB": flood,
    "a byte now and then": drip,
    "silence": lambda talk: talk.stall(),
    "closes": lambda _talk: None,
    "resets": lambda talk: talk.reset(),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_bad_lookup_is_skipped_within_its_time(bad):
    with Peer(bad) as first, Peer(answers(("127.0.0.1", 4150))) as second:
        client = LookupClient([Address(*first.address), Address(*second.address)], OPTIONS)
        started = time.monotonic()
        found = client.ask("t", WRITE, started + 6)
        assert time.monotonic() - started < 2.5
    assert [node.address for node in found.answers[0].producers] == [("127.0.0.1", 4150)]
    assert [address for address, _ in found.failed] == [first.address]


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_only_bad_lookups_are_an_error_in_time_that_names_each(bad):
    with Peer(bad) as peer:
        client = LookupClient([Address(*peer.address)], OPTIONS)
        started = time.monotonic()
        with pytest.raises(DiscoveryError, match=str(peer.address[1])):
            client.ask("t", WRITE, started + 6)
        assert time.monotonic() - started < 2.5


def test_a_lookup_that_fails_too_often_is_asked_less_often_and_comes_back():
    broken = BAD["closes"]
    with Peer(broken) as first, Peer(answers(("127.0.0.1", 4150))) as second:
        options = OPTIONS._replace(failure_threshold=2, listlookup_interval=0)
        client = LookupClient([Address(*first.address), Address(*second.address)], options)
        for _ in range(5):
            client.ask("t", WRITE, time.monotonic() + 5)
        assert first.accepted == 2
        assert second.accepted == 5


def test_the_last_good_picture_serves_when_every_lookup_fails():
    def nsqd(talk: Talk) -> None:
        talk.greet()
        while True:
            talk.publish()
            talk.ok()

    with Peer(nsqd) as server:
        good = answers(server.address)
        with Peer(good, good, BAD["html"]) as lookup:
            url = "nsq+lookupd://{}:{}".format(*lookup.address)
            options = {"lookupd_poll_interval": 0.01, "lookupd_min_refresh_interval": 0.01}
            with nsqsmart.Producer(url, **options) as producer:

                def publishes_although_lookups_fail() -> bool:
                    assert producer.publish("t", b"x", timeout=5).attempts == 1
                    return lookup.accepted > 4

                eventually(publishes_although_lookups_fail)


def test_no_lookup_at_all_fails_at_the_deadline_with_nothing_sent():
    with nsqsmart.Producer("nsq+lookupd://127.0.0.1:1") as producer:
        started = time.monotonic()
        error = failure(producer, timeout=0.5)
        assert time.monotonic() - started > 0.4
    assert error.outcome == "not_sent"
    assert "127.0.0.1:1" in str(error)
