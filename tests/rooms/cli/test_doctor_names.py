"""``doctor`` names what is wrong: what hangs, certificates, pauses, permissions, mixed lookups."""

from __future__ import annotations

import datetime as dt
import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import trustme

from nsqsmart import Admin, Producer
from nsqsmart.embedded import Cluster

HASTE = ("--handshake-timeout", "0.5", "--lookupd-request-timeout", "0.5")
DIALECTS = pytest.mark.parametrize("dialect", ["original", "redesigned"])


@pytest.fixture
def advice(nsqsmart):
    """Exit code and advice for an address."""

    def ask(url, *more):
        code, out, err = nsqsmart("doctor", url, *more, *HASTE, "--json")
        assert err == ""
        return code, json.loads(out)["advice"] or ""

    return ask


@pytest.fixture
def hung():
    """Takes connections, as the kernel does for a process that is stopped, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield "{}:{}".format(*server.getsockname())


# ------------------------------------------------------------------------------------- what hangs


def test_an_nsqd_that_hangs(advice, hung):
    code, said = advice(f"nsq://{hung}")
    assert code == 1
    assert "it hangs: look whether the nsqd is stopped" in said


@pytest.mark.parametrize(
    "options", [{"dialect": "original"}, {"dialect": "redesigned", "election_delay": 60}]
)
def test_an_nsqd_that_hangs_behind_a_lookup(advice, options):
    # The cluster does not miss the hung one before it is asked, however late that is.
    with Cluster(**options) as cluster:
        cluster.hang(cluster.nsqds[0])
        code, said = advice(cluster.url)
        cluster.wake(cluster.nsqds[0])
    assert code == 1
    assert "it hangs: look whether the nsqd is stopped" in said


def test_a_lookup_that_hangs(cluster, advice, hung):
    code, said = advice(f"nsq+lookupd://{hung}")
    assert (code, "it hangs: look whether the nsqlookupd is stopped" in said) == (75, True)
    code, said = advice(f"{cluster.url},{hung}")
    assert (code, "it hangs: look whether the nsqlookupd is stopped" in said) == (1, True)


def test_what_refuses_connections_does_not_hang(advice, hung):
    for scheme in ("nsq", "nsq+lookupd"):
        assert "hangs" not in advice(f"{scheme}://127.0.0.1:1")[1]
    probe = Admin(f"nsq://{hung}", lookupd_request_timeout=0.2).probe_http("127.0.0.1:1")
    assert not probe.silent


# ----------------------------------------------------------------------------------- certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """ca.pem, and certificates of it: good, old and early; one of another authority, alien."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")

    def year(number):
        return dt.datetime(number, 1, 1, tzinfo=dt.UTC)

    issued = {
        "good": authority.issue_cert("127.0.0.1"),
        "old": authority.issue_cert("127.0.0.1", not_before=year(2019), not_after=year(2020)),
        "early": authority.issue_cert("127.0.0.1", not_before=year(2090), not_after=year(2091)),
        "alien": trustme.CA().issue_cert("127.0.0.1"),
    }
    for name, each in issued.items():
        each.private_key_pem.write_to_path(folder / f"{name}.key")
        each.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    return folder


@DIALECTS
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("old", "the certificate of the nsqd has expired"),
        ("early", "the certificate of the nsqd is not valid yet"),
        ("alien", "not trusted"),
    ],
)
def test_the_certificate_of_an_nsqd(advice, certificates, dialect, name, words):
    files = {"tls_cert": certificates / f"{name}.pem", "tls_key": certificates / f"{name}.key"}
    with Cluster(dialect=dialect, **files) as cluster:
        url = cluster.url.replace("nsq+", "nsqs+")
        code, said = advice(url, "--tls-root-ca-file", certificates / "ca.pem")
    assert (code, words in said) == (1, True), said


@pytest.fixture(scope="module", params=["original", "redesigned"])
def particular(request, certificates):
    """It wants a certificate of every client: by TLS 1.3, and by 1.2."""
    with Cluster(
        dialect=request.param,
        tls_cert=certificates / "good.pem",
        tls_key=certificates / "good.key",
        tls_root_ca=certificates / "ca.pem",
        tls_client_policy="require-verify",
    ) as cluster:
        yield cluster.url.replace("nsq+", "nsqs+")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (None, "certificate of this client"),
        ("alien", "does not trust the certificate of this client"),
        ("old", "the certificate of this client, tls_cert, has expired"),
        ("good", ""),
    ],
)
def test_the_certificate_of_the_client(advice, certificates, particular, name, words):
    own = ("--tls-cert", certificates / f"{name}.pem", "--tls-key", certificates / f"{name}.key")
    ca = ("--tls-root-ca-file", certificates / "ca.pem")
    code, said = advice(particular, *ca, *(own if name else ()))
    assert code == (1 if words else 0), said
    assert words in said
    assert name or "tls_cert and tls_key" in said


# ------------------------------------------------------------------- pauses, permissions, lookups


def test_a_paused_channel(cluster, advice):
    for topic in ("orders", "bills"):
        cluster.create_topic(topic)
        cluster.create_channel(topic, "billing")
    admin = Admin(cluster.url)
    assert advice(cluster.url)[0] == 0
    admin.pause_channel("orders", "billing")
    code, said = advice(cluster.url)
    assert (code, "nsqsmart channel unpause orders billing" in said) == (1, True)
    assert advice(cluster.url, "--topic", "bills")[0] == 0
    admin.unpause_channel("orders", "billing")
    assert advice(cluster.url) == (0, "")


def test_a_paused_topic_of_a_lone_nsqd(advice):
    with Cluster(dialect="original") as cluster:
        cluster.create_topic("orders")
        Admin(cluster.url).pause_topic("orders")
        nsqd = cluster.nsqds[0]
        address = f"nsq://{nsqd.name}"
        assert advice(address)[0] == 0
        http = "{}:{}".format(*nsqd.http_address)
        code, said = advice(address, "--nsqd-http-addresses", http)
    assert (code, "nsqsmart topic unpause orders" in said) == (1, True)


@contextmanager
def authority(*topics):
    """Permits everybody to publish to *topics*."""
    granted = [
        {"topic": f"^{topic}$", "channels": [".*"], "permissions": ["publish", "subscribe"]}
        for topic in topics
    ]
    answer = {"ttl": 60, "identity": "shop", "identity_url": "", "authorizations": granted}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@DIALECTS
def test_a_topic_that_the_secret_does_not_permit(advice, nsqsmart, dialect):
    with authority("orders") as server, Cluster(dialect=dialect, auth_addresses=(server,)) as made:
        for topic in ("orders", "bills"):
            made.create_topic(topic)
            made.create_channel(topic, "c")
        secret = ("--auth-secret", "s3cret")
        assert advice(made.url, *secret, "--topic", "orders") == (0, "")
        code, said = advice(made.url, *secret)
        assert (code, "does not permit to publish to bills" in said) == (1, True)
        with Producer(made.url, auth_secret="s3cret") as producer:
            producer.publish("orders", b"x")
        # To ask has stored nothing.
        assert [len(made.stored(topic)) for topic in ("orders", "bills")] == [1, 0]
        code, out, _ = nsqsmart("doctor", made.url, *secret, *HASTE)
        assert "s3cret" not in out


def test_a_probe_of_a_topic_says_that_it_may_be_published_to(cluster):
    cluster.create_topic("orders")
    nsqd = cluster.nsqds[0].name
    partition = 0 if cluster.dialect == "redesigned" else None
    probe = Admin(cluster.url).probe(nsqd, "orders", partition)
    assert probe.ok
    assert probe.steps[-1].name == "publish"
    assert cluster.stored("orders") == []


def test_lookups_of_both_kinds(advice):
    with Cluster(dialect="original") as one, Cluster(dialect="redesigned") as other:
        code, said = advice(f"{one.url},{other.lookupds[0].name}")
        names = one.lookupds[0].name, other.lookupds[0].name
    assert code == 1
    assert "the lookups of one cluster alone" in said
    assert "{} is of an original one and {} of a redesigned one".format(*names) in said
