"""No bytes that a client may send end a server, make it hang, or cost it more than its limits."""

from __future__ import annotations

import logging
import socket
from random import Random

import pytest

from nsqsmart.embedded import Cluster
from tests.integration.embedded import noise
from tests.integration.vectors import Bench

STREAMS = 200
PORTS = {
    "nsqd tcp": (noise.NSQD, b"  V2", noise.identify(), b"max_rdy_count"),
    "nsqd http": (noise.HTTP, b"", b"GET /ping HTTP/1.0\r\n\r\n", b"OK"),
    "nsqlookupd tcp": (noise.LOOKUPD, b"  V1", b"PING\n", b"OK"),
    "nsqlookupd http": (noise.HTTP, b"", b"GET /ping HTTP/1.0\r\n\r\n", b"OK"),
}


def talk(address: tuple[str, int], data: bytes, *, shut: bool = True) -> bytes:
    """What comes back until the server ends the connection; fails if it does not end it."""
    answer = b""
    with socket.create_connection(address, 5) as sock:
        try:
            sock.sendall(data)
            if shut:
                sock.shutdown(socket.SHUT_WR)
            while piece := sock.recv(65536):
                answer += piece
        except ConnectionError:
            pass
    return answer


def address_of(server: object, port: str) -> tuple[str, int]:
    return server.tcp_address if port.endswith("tcp") else server.http_address


def check(bench: Bench, port: str, caplog: pytest.LogCaptureFixture) -> None:
    """Throw noise at a port, then ask it something sensible."""
    pieces, magic, question, answer = PORTS[port]
    server = bench.nsqd if port.startswith("nsqd") else bench.lookupd
    random = Random(f"{port} of {bench.dialect}")
    with caplog.at_level(logging.WARNING):
        for _ in range(STREAMS):
            data = noise.stream(random, pieces, magic)
            talk(address_of(server, port), data)
            assert not caplog.records, data
    assert answer in talk(address_of(server, port), magic + question)


@pytest.mark.parametrize("dialect", ["original", "redesigned"])
@pytest.mark.parametrize("port", PORTS)
def test_noise_harms_no_cluster(dialect, port, tmp_path, caplog) -> None:
    with Bench({"server": "cluster", "given": []}, dialect, tmp_path) as bench:
        cluster = bench.start_cluster(nsqds=1, lookupds=1)
        cluster.create_topic("t")
        cluster.create_channel("t", "ch")
        if dialect == "redesigned":
            cluster.create_topic("te", extend_support=True)
            cluster.create_topic("to", ordered=True)
        check(bench, port, caplog)


@pytest.mark.parametrize("dialect", ["original", "redesigned"])
@pytest.mark.parametrize("port", PORTS)
def test_noise_harms_no_stand_in(dialect, port, tmp_path, caplog) -> None:
    topics = [{"topic": "t", "ordered": False}, {"topic": "te", "ordered": False, "ext": True}]
    with Bench({"server": port.split()[0]}, dialect, tmp_path) as bench:
        bench.start(topics)
        check(bench, port, caplog)


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("port", "data"),
    [
        ("nsqd tcp", b"  V2PUB " + b"x" * 5000),
        ("nsqd tcp", b"  V2IDENTIFY\n\x7f\xff\xff\xff"),
        ("nsqd tcp", b"  V2PUB t\n\x7f\xff\xff\xff"),
        ("nsqd tcp", b"  V2MPUB t\n\0\0\1\0\x7f\xff\xff\xff"),
        ("nsqd http", b"GET /ping HTTP/1.1\r\nX: " + b"x" * MIB),
        ("nsqd http", b"POST /pub?topic=t HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"),
        ("nsqd http", b"POST /pub?topic=t HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
        (
            "nsqd http",
            b"POST /pub?topic=t HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
            + (b"100000\r\n" + b"x" * MIB + b"\r\n") * 7,
        ),
        (
            "nsqd http",
            b"POST /pub?topic=t HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * MIB,
        ),
        ("nsqlookupd tcp", b"  V1REGISTER " + b"x" * 2 * MIB),
        ("nsqlookupd tcp", b"  V1IDENTIFY\n\x7f\xff\xff\xff"),
    ],
)
def test_what_exceeds_a_limit_is_not_waited_for(port, data) -> None:
    with Cluster(nsqds=1, lookupds=1) as cluster:
        cluster.create_topic("t")
        server = cluster.nsqds[0] if port.startswith("nsqd") else cluster.lookupds[0]
        # The client keeps its side open: it is the server that has had enough.
        talk(address_of(server, port), data, shut=False)
        assert cluster.stored("t") == []
