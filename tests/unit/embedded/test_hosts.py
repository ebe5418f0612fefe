"""Servers of ours are for this machine: another host only where it is asked for by name."""

from __future__ import annotations

import socket

import pytest

from nsqsmart.cli.commands import dash
from nsqsmart.embedded import Cluster
from nsqsmart.embedded.nsqd import program as nsqd
from nsqsmart.embedded.nsqlookupd import program as nsqlookupd
from nsqsmart.embedded.serving.program import read_flags
from nsqsmart.testing.proxy import Proxy

PROGRAMS = {"nsqd": nsqd.FLAGS, "nsqlookupd": nsqlookupd.FLAGS}
LISTENING = [
    ("nsqd", "tcp-address"),
    ("nsqd", "http-address"),
    ("nsqd", "https-address"),
    ("nsqlookupd", "tcp-address"),
    ("nsqlookupd", "http-address"),
]


@pytest.mark.parametrize(("program", "flag"), LISTENING)
@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.7", "127.example.com", "*"])
def test_another_host_is_refused_unless_it_is_meant(program, flag, host, capsys):
    given = [f"--{flag}={host}:0"]
    assert read_flags(program, given, PROGRAMS[program]) == 1
    said = capsys.readouterr().err
    assert f"{program}: -{flag} {host.strip('[]')}: other machines could connect" in said
    assert said.count("\n") == 1
    values = read_flags(program, ["--expose", *given], PROGRAMS[program])
    assert values[flag] == (host.strip("[]"), 0)
    assert "WARNING: other machines can connect" in capsys.readouterr().err
    assert read_flags(program, ["--expose=false", *given], PROGRAMS[program]) == 1


@pytest.mark.parametrize(("program", "flag"), LISTENING)
@pytest.mark.parametrize("host", ["", "127.0.0.1", "127.9.9.9", "[::1]", "localhost"])
def test_this_machine_needs_no_leave(program, flag, host, capsys):
    assert read_flags(program, [f"--{flag}={host}:0"], PROGRAMS[program])
    assert capsys.readouterr().err == ""


@pytest.fixture
def bound(monkeypatch) -> list[str]:
    """The hosts that anything is bound to."""
    hosts: list[str] = []
    bind = socket.socket.bind

    def note(sock: socket.socket, address: tuple[str, int]) -> None:
        hosts.append(address[0])
        bind(sock, address)

    monkeypatch.setattr(socket.socket, "bind", note)
    return hosts


@pytest.mark.parametrize("dialect", ["original", "redesigned"])
def test_a_cluster_listens_on_this_machine_alone(dialect, bound):
    with Cluster(dialect=dialect, nsqds=2, lookupds=2) as cluster:
        told = {each.tcp_address[0] for each in cluster.nsqds}
        told |= {each.http_address[0] for each in (*cluster.nsqds, *cluster.lookupds)}
    assert set(bound) == told == {"127.0.0.1"}
    assert len(bound) >= 6


def test_the_dash_and_the_proxy_listen_on_this_machine_alone(bound):
    dash.listen(None, [0]).server_close()
    with Proxy("127.0.0.1:1"):
        pass
    assert bound == ["127.0.0.1"] * 2
