"""TLS, compression and AUTH, from the URL to the wire."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

import nsqsmart
from nsqsmart.embedded import Cluster
from nsqsmart.errors import (
    DiscoveryError,
    NotAuthorized,
    Outcome,
    PublishError,
    PublishFailed,
    SubscribeError,
    TopicNotExist,
)
from nsqsmart.wire.frames import ERROR, RESPONSE, encode_frame
from tests.helpers import eventually
from tests.integration.consuming import Handled, all_finished, numbered, publish
from tests.peers import Peer, Talk, http_answer

SECRET = "open-sesame-4711"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def folder(authority, tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("tls")
    server = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(made / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(made / "stranger.pem"))
    server.cert_chain_pems[0].write_to_path(str(made / "cert.pem"))
    server.private_key_pem.write_to_path(str(made / "key.pem"))
    return made


@pytest.fixture(params=["original", "redesigned"])
def cluster(request, folder) -> Iterator[Cluster]:
    files = {"tls_cert": folder / "cert.pem", "tls_key": folder / "key.pem"}
    with Cluster(dialect=request.param, nsqds=2, **files) as made:
        made.create_topic("t", **({"partitions": 2} if request.param == "redesigned" else {}))
        made.create_channel("t", "c")
        yield made


def secure(cluster: Cluster) -> str:
    return cluster.url.replace("nsq+lookupd:", "nsqs+lookupd:")


def publish_fails(url: str, kind: type[PublishError], match: str, **options) -> PublishError:
    """The error of one publish, which must be of that kind and say so."""
    producer = nsqsmart.Producer(url, **options)
    with producer, pytest.raises(kind, match=match) as caught:
        producer.publish("t", b"x", timeout=5)
    return caught.value


def round_trip(cluster: Cluster, url: str, **options: object) -> None:
    """Bodies of every size there and back, through TLS alone."""
    bodies = [*numbered(30), b"x" * 300_000, bytes(range(256)) * 500]
    handled = Handled()
    with nsqsmart.Producer(url, **options) as producer:
        for body in bodies:
            assert producer.publish("t", body, timeout=10).attempts == 1
    # A redesigned nsqd would break TLS after 5 s; the embedded one is mended.
    lifetime = {"tls_lifetime": 0} if "tls_root_ca_file" in options else {}
    with nsqsmart.Consumer("t", "c", handled, address=url, **options, **lifetime):
        eventually(lambda: len(handled.messages) == len(bodies))
        all_finished(cluster)
    assert handled.counts() == Counter(bodies)
    with nsqsmart.Producer(url, **options) as producer:
        receipt = producer.publish_many("t", bodies[:30], timeout=10)
    place = {"nsqd": receipt.nsqd, "partition": receipt.partition}
    with nsqsmart.PullSubscription(url, "t", "c", **place, **options, **lifetime) as source:
        pulled = []
        while len(pulled) < 30 and (messages := source.pull(30, timeout=10)):
            pulled += messages
            source.finish(messages)
    assert Counter(message.body for message in pulled) == Counter(bodies[:30])


@pytest.mark.parametrize("option", ["snappy", "deflate"])
def test_compressed(cluster, option):
    round_trip(cluster, cluster.url, **{option: True})


@pytest.mark.parametrize("options", [{}, {"snappy": True}, {"deflate": True}])
def test_encrypted(cluster, folder, options):
    round_trip(cluster, secure(cluster), tls_root_ca_file=str(folder / "ca.pem"), **options)


def test_a_stranger_gets_nothing_and_the_call_fails_at_once(cluster, folder):
    options = {"tls_root_ca_file": str(folder / "stranger.pem")}
    error = publish_fails(secure(cluster), PublishFailed, "certificate", **options)
    assert error.outcome is Outcome.NOT_SENT
    assert len(error.attempts) == 1
    assert not cluster.log.of("PUB")
    with pytest.raises(SubscribeError, match="certificate"):
        nsqsmart.Consumer("t", "c", print, address=secure(cluster), **options).start()
    assert not cluster.log.of("SUB")


def test_a_probe_says_at_which_step_it_ends(cluster, folder):
    nsqd = cluster.nsqds[0].name
    for authority, ok in (("ca.pem", True), ("stranger.pem", False)):
        admin = nsqsmart.Admin(
            secure(cluster), tls_root_ca_file=str(folder / authority), snappy=True
        )
        found = admin.probe(nsqd)
        last = found.steps[-1]
        assert (found.ok, last.name) == (ok, "auth" if ok else "tls")
        if ok:
            names = [step.name for step in found.steps]
            assert names == ["resolve", "connect", "identify", "tls", "snappy", "auth"]
            assert last.detail == "not needed"
        else:
            assert "certificate" in last.detail


def test_a_server_without_tls_gets_nothing_but_the_identify():
    with Cluster() as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        options = {"auth_secret": SECRET}
        error = publish_fails(secure(cluster), PublishFailed, "does not offer TLS", **options)
        assert error.outcome is Outcome.NOT_SENT
        assert not cluster.log.of("PUB")
        assert not cluster.log.of("AUTH")


def test_a_server_that_demands_tls_is_named(folder):
    files = {"tls_cert": folder / "cert.pem", "tls_key": folder / "key.pem"}
    with Cluster(**files, tls_required=True) as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        publish_fails(cluster.url, PublishFailed, "TLS")
        options = {"tls_root_ca_file": str(folder / "ca.pem")}
        with nsqsmart.Producer(secure(cluster), **options) as producer:
            assert producer.publish("t", b"x", timeout=5)


def test_where_tls_breaks_after_seconds_a_consumer_says_so(cluster, folder):
    options = {"tls_root_ca_file": str(folder / "ca.pem"), "tls_lifetime": 4}
    consumer = nsqsmart.Consumer("t", "c", print, address=secure(cluster), **options)
    with pytest.raises(SubscribeError, match="tls_lifetime=0"):
        consumer.start()
    leader = {"nsqd": "{}:{}".format(*cluster.nsqds[0].tcp_address)}
    source = nsqsmart.PullSubscription(secure(cluster), "t", "c", **leader, **options)
    with pytest.raises(SubscribeError, match="tls_lifetime=0"):
        source.open()


def guarded(answer: bytes, heard: list[bytes]):
    """An nsqd that asks for AUTH, and answers it with *answer*."""
    grant = {"version": "1.3.0", "max_rdy_count": 2500, "auth_required": True}

    def script(talk: Talk) -> None:
        talk.greet(json.dumps(grant).encode())
        assert talk.line() == b"AUTH"
        heard.append(talk.body())
        talk.send(answer)
        while True:
            line = talk.line()
            heard.append(line)
            if line.startswith(b"PUB"):
                talk.body()
            talk.ok()

    return script


@pytest.mark.parametrize("where", ["option", "url", "environment"])
def test_the_secret_is_sent_and_never_said(where, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    heard: list[bytes] = []
    accepted = encode_frame(RESPONSE, b'{"identity":"me","identity_url":"","permission_count":1}')
    with Peer(guarded(accepted, heard)) as peer:
        url, options = peer.url, {}
        if where == "option":
            options["auth_secret"] = SECRET
        elif where == "url":
            url += f"?auth_secret={SECRET}"
        else:
            monkeypatch.setenv("NSQSMART_AUTH_SECRET", SECRET)
        with nsqsmart.Producer(url, **options) as producer:
            assert producer.publish("t", b"x", timeout=5)
            said = repr(producer) + repr(producer._config) + repr(producer._endpoint)
    assert heard == [SECRET.encode(), b"PUB t"]
    assert SECRET not in caplog.text + said


def test_a_secret_that_is_refused_ends_both_sides_and_is_not_said(caplog):
    caplog.set_level(logging.DEBUG)
    refusal = encode_frame(ERROR, b"E_UNAUTHORIZED AUTH failed")
    with Peer(guarded(refusal, [])) as peer:
        error = publish_fails(peer.url, NotAuthorized, "E_UNAUTHORIZED", auth_secret=SECRET)
        consumer = nsqsmart.Consumer("t", "c", print, address=peer.url, auth_secret=SECRET)
        with pytest.raises(NotAuthorized) as refused:
            consumer.start()
    assert len(error.attempts) == 1
    everything = caplog.text + str(error) + str(refused.value) + repr(consumer)
    assert SECRET not in everything


def test_a_secret_that_is_echoed_is_not_said_later_either(caplog):
    """The authority is asked again later, and its words come with the answer to a publish."""

    def nsqd(talk: Talk) -> None:
        talk.greet(json.dumps({"version": "1.3.0", "auth_required": True}).encode())
        assert talk.line() == b"AUTH"
        secret = talk.body()
        talk.send(encode_frame(RESPONSE, b'{"identity":"me"}'))
        talk.publish()
        talk.send(encode_frame(ERROR, b"E_AUTH_FAILED " + secret))
        talk.stall()

    with Peer(nsqd) as peer, nsqsmart.Producer(peer.url, auth_secret=SECRET) as producer:
        with pytest.raises(NotAuthorized) as refused:
            producer.publish("t", b"x", timeout=5)
        with pytest.raises(NotAuthorized) as also:
            producer.publish_async("t", b"x", timeout=5).result()
    assert "***" in str(refused.value)
    assert SECRET not in f"{refused.value}{also.value}{refused.value.__cause__}{caplog.text}"


def test_no_lookup_is_told_the_secret():
    """It is for nsqds alone: a lookup is asked in the clear."""
    heard = bytearray()

    def lookup(talk: Talk) -> None:
        while (line := talk.line()).strip():
            heard.extend(line)
        talk.send(http_answer(404, b'{"message":"TOPIC_NOT_FOUND"}'))

    with Peer(lookup) as peer:
        url = "nsq+lookupd://{}:{}".format(*peer.address)
        options = {"auth_secret": SECRET, "lookupd_min_refresh_interval": 0.01}
        with pytest.raises(TopicNotExist):
            nsqsmart.Producer(url, **options).publish("t", b"x", timeout=5)
        with pytest.raises(DiscoveryError):
            nsqsmart.Admin(url, auth_secret=SECRET).topics()
    assert b"GET /lookup?" in heard
    assert SECRET.encode() not in heard


def test_compression_that_a_server_does_not_have_is_an_error_that_says_so():
    with Cluster(snappy=False) as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        publish_fails(cluster.url, PublishFailed, "does not offer snappy", snappy=True)
        publish(cluster, b"x")
