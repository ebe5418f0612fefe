"""TLS, snappy and deflate, alone and together."""

from __future__ import annotations

import ssl

import pytest
import trustme

from nsqsmart.embedded import Cluster
from nsqsmart.wire import commands


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(params=["original", "redesigned"])
def cluster(request, authority, tmp_path):
    certificate = authority.issue_cert("localhost")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(cert, append=True)
    certificate.private_key_pem.write_to_path(key)
    with Cluster(dialect=request.param, tls_cert=cert, tls_key=key) as made:
        made.create_topic("t")
        made.create_channel("t", "c")
        yield made


@pytest.fixture
def context(authority):
    made = ssl.create_default_context()
    authority.configure_trust(made)
    return made


def round_trip(cluster, producer, consumer) -> None:
    consumer.subscribe(commands.sub("t", "c"), 5)
    bodies = [b"small", b"x" * 300_000, bytes(range(256)) * 500]
    for body in bodies:
        assert producer.ask(commands.pub("t", body)) == b"OK"
    for body in bodies:
        message = consumer.message()
        assert message.body == body
        consumer.finish(message)
    assert consumer.silent()


@pytest.mark.parametrize(
    "options", [{"snappy": True}, {"deflate": True, "deflate_level": 6}, {"deflate": True}, {}]
)
def test_compressed_connections(cluster, connect, options) -> None:
    producer, consumer = connect(cluster.nsqds[0]), connect(cluster.nsqds[0])
    for connection in (producer, consumer):
        connection.identify(**options)
    round_trip(cluster, producer, consumer)


@pytest.mark.parametrize("options", [{"snappy": True}, {}])
def test_tls_connections(cluster, connect, context, options) -> None:
    producer, consumer = connect(cluster.nsqds[0]), connect(cluster.nsqds[0])
    for connection in (producer, consumer):
        connection.identify_tls(context, **options)
    round_trip(cluster, producer, consumer)


def test_a_broken_handshake_ends_the_connection(cluster, connect) -> None:
    connection = connect(cluster.nsqds[0])
    connection.ask(commands.identify(b'{"feature_negotiation":true,"tls_v1":true}'))
    connection.send(b"this is no client hello" * 10)
    assert b"IDENTIFY failed" in (connection.frame() or (0, b""))[1]
    assert connection.ended()


def test_tls_may_be_demanded(connect, authority, context, tmp_path) -> None:
    certificate = authority.issue_cert("localhost")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.cert_chain_pems[0].write_to_path(cert)
    certificate.private_key_pem.write_to_path(key)
    with Cluster(tls_cert=cert, tls_key=key, tls_required=True) as cluster:
        plain = connect(cluster.nsqds[0])
        text = plain.refused(commands.NOP)
        assert text == "E_INVALID cannot NOP in current state (TLS required)"
        assert plain.ended()
        cluster.create_topic("t")
        secured = connect(cluster.nsqds[0])
        secured.identify_tls(context)
        assert secured.ask(commands.pub("t", b"x")) == b"OK"
