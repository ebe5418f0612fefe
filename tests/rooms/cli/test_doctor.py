"""``doctor``: every broken set-up gets the advice that mends it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import trustme

from nsqsmart.cli.commands.doctor import odd_clock, old
from nsqsmart.embedded import Cluster

CLOSED = "127.0.0.1:1"
HASTE = ("--handshake-timeout", "0.5")


def host_port(address: tuple[str, int]) -> str:
    return "{}:{}".format(*address)


@pytest.fixture
def advice(nsqsmart):
    """Exit code and advice for an address."""

    def ask(url: str, *more: object) -> tuple[int, str]:
        code, out, err = nsqsmart("doctor", url, *more, "--json")
        assert err == ""
        return code, json.loads(out)["advice"] or ""

    return ask


@contextmanager
def lookupd(*, broadcast: str = "", port: int = 0, date: float | None = None) -> Iterator[str]:
    """An nsqlookupd that names one nsqd, or none."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            node = {"broadcast_address": broadcast, "tcp_port": port, "http_port": 1}
            answers = {
                "/info": {"version": "1.3.0"},
                "/nodes": {"producers": [node | {"version": "1.3.0"}] if broadcast else []},
                "/topics": {"topics": []},
            }
            found = answers.get(self.path.partition("?")[0])
            body = json.dumps(found or {"message": "NOT_FOUND"}).encode()
            self.send_response_only(200 if found else 404)
            if date is not None:
                self.send_header("Date", formatdate(date, usegmt=True))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"nsq+lookupd://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_all_is_well(cluster, nsqsmart):
    cluster.create_topic("orders")
    code, out, err = nsqsmart("doctor", cluster.url)
    assert (code, err) == (0, "")
    assert "all is well" in out
    assert "ok     topic orders" in out
    assert nsqsmart("doctor", "--url", f"nsq://{cluster.nsqds[0].name}")[0] == 0


def test_no_lookupd(advice):
    code, said = advice(f"nsq+lookupd://{CLOSED}")
    assert (code, "start nsqlookupd" in said) == (75, True)


def test_no_nsqd(advice):
    code, said = advice(f"nsq://{CLOSED}")
    assert (code, "start nsqd" in said) == (75, True)


def test_the_http_port_of_an_nsqd_as_its_tcp_port(cluster, advice):
    nsqd = cluster.nsqds[0]
    code, said = advice(f"nsq://{host_port(nsqd.http_address)}", *HASTE)
    assert code == 1
    assert f"nsq://{nsqd.name}" in said


def test_the_tcp_port_of_an_nsqd_as_a_lookupd(cluster, advice):
    code, said = advice(f"nsq+lookupd://{cluster.nsqds[0].name}", "--lookupd-request-timeout", "1")
    assert code in (1, 75)
    assert "HTTP port is 4161" in said


def test_an_nsqd_as_a_lookupd(cluster, advice):
    nsqd = cluster.nsqds[0]
    code, said = advice(f"nsq+lookupd://{host_port(nsqd.http_address)}")
    assert code == 1
    assert f"nsq://{nsqd.name}" in said


def test_a_lookupd_as_an_nsqd(cluster, advice):
    name = cluster.lookupds[0].name
    code, said = advice(f"nsq://{name}", *HASTE)
    assert (code, f"nsq+lookupd://{name}" in said) == (1, True)


@pytest.mark.parametrize("broadcast", ["127.0.0.1", "nsqd.invalid"])
def test_an_address_that_only_containers_know(advice, broadcast):
    with lookupd(broadcast=broadcast, port=1) as url:
        code, said = advice(url)
    assert code == 1
    assert "--broadcast-address" in said
    assert "address_map" in said


def test_no_nsqd_has_registered(advice):
    with lookupd() as url:
        code, said = advice(url)
    assert (code, "--lookupd-tcp-address" in said) == (1, True)


def test_a_clock_that_is_wrong(advice):
    with Cluster(dialect="original") as cluster, lookupd(date=1e9) as url:
        address = f"{url},{cluster.lookupds[0].name}"
        code, said = advice(address)
    assert (code, "NTP" in said) == (1, True)


@pytest.fixture
def certificates(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    return tmp_path


@pytest.mark.parametrize("dialect", ["original", "redesigned"])
def test_tls_is_required(advice, certificates, dialect):
    files = {"tls_cert": certificates / "cert.pem", "tls_key": certificates / "key.pem"}
    with Cluster(dialect=dialect, tls_required=True, **files) as cluster:
        code, said = advice(cluster.url)
        assert (code, "nsqs+lookupd://" in said) == (1, True)
        secure = cluster.url.replace("nsq+", "nsqs+")
        code, said = advice(secure)
        assert (code, "tls_root_ca_file" in said) == (1, True)
        assert advice(secure, "--tls-root-ca-file", certificates / "ca.pem") == (0, "")


def test_tls_is_not_offered(cluster, advice):
    code, said = advice(f"nsqs://{cluster.nsqds[0].name}")
    assert (code, "--tls-cert" in said) == (1, True)


def test_auth_is_required(advice):
    with Cluster(auth_addresses=("127.0.0.1:1",)) as cluster:
        code, said = advice(cluster.url)
        assert (code, "give auth_secret" in said) == (1, True)
        code, said = advice(cluster.url, "--auth-secret", "wrong")
        assert (code, "secret is refused" in said) == (1, True)


def test_a_topic_that_nobody_knows(advice):
    with Cluster() as cluster:
        code, said = advice(cluster.url, "--topic", "missing")
    assert (code, "create it" in said) == (1, True)


def test_compression_that_is_not_offered(advice):
    with Cluster(snappy=False) as cluster:
        code, said = advice(cluster.url, "--snappy")
    assert (code, "option snappy" in said) == (1, True)


def test_old_servers_and_odd_clocks():
    assert "older than 1.0" in old("0.3.8")
    assert [old(version) for version in ("1.3.0", "1.0.0-compat", "0.3.7-HA.1.9.8", "")] == [""] * 4
    assert "100 s behind" in odd_clock(-100.0)
    assert odd_clock(29.0) == ""
    assert odd_clock(None) == ""
