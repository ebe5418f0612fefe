"""How far one gets with an nsqd, and what is said of it."""

from __future__ import annotations

import json

import pytest

from nsqsmart.client.admin.probe import Probe, ProbeStep, probe_nsqd
from nsqsmart.config import AdminConfig
from nsqsmart.errors import ConnectError
from nsqsmart.names import Address, Dialect
from nsqsmart.net import resolving
from nsqsmart.net.handshake import make_greeting
from nsqsmart.wire.frames import ERROR, RESPONSE, encode_frame
from tests.peers import Peer, Talk


def probe(script, **options: object) -> Probe:
    with Peer(script) as peer:
        return probe_nsqd(Address(*peer.address), make_greeting(AdminConfig(**options)))


def steps(found: Probe) -> list[tuple[str, bool]]:
    return [(step.name, step.ok) for step in found.steps]


def greet(**granted: object):
    grant = json.dumps({"version": "1.3.0"} | granted).encode()
    return lambda talk: talk.greet(grant)


def test_all_went_well():
    found = probe(greet())
    assert found.ok
    assert steps(found) == [
        (name, True) for name in ("resolve", "connect", "identify", "tls", "auth")
    ]
    assert (found.version, found.dialect) == ("1.3.0", Dialect.ORIGINAL)
    details = {step.name: step.detail for step in found.steps}
    assert details["resolve"] == "127.0.0.1"
    assert details["identify"] == "nsqd 1.3.0"
    assert details["tls"] == details["auth"] == "not needed"
    assert all(step.elapsed >= 0 for step in found.steps)


def test_what_an_nsqd_says_of_itself_is_shown_without_its_escapes():
    found = probe(greet(version="0.3.7-HA.1\x1b[2J"))
    assert found.version == "0.3.7-HA.1\\x1b[2J"
    assert found.dialect is Dialect.REDESIGNED
    assert probe(greet(version="")).dialect is None


def test_auth_is_a_step_where_it_is_asked_for():
    def script(talk: Talk) -> None:
        talk.greet(json.dumps({"version": "1.3.0", "auth_required": True}).encode())
        assert talk.line() == b"AUTH"
        talk.body()
        talk.send(encode_frame(*answers.pop()))

    answers = [(ERROR, b"E_UNAUTHORIZED sorry"), (RESPONSE, b"{}")]
    assert steps(probe(script, auth_secret="sesame"))[-1] == ("auth", True)
    refused = probe(script, auth_secret="sesame")
    assert not refused.ok
    assert refused.steps[-1][:2] == ("auth", False)
    assert refused.steps[-1].detail == "E_UNAUTHORIZED sorry"
    assert "give auth_secret" in probe(script).steps[-1].detail


@pytest.mark.parametrize(
    ("script", "options", "step", "detail"),
    [
        (lambda talk: (talk.read(4), talk.reset()), {}, "identify", "handshake with 127.0.0.1"),
        (lambda talk: talk.stall(), {"handshake_timeout": 0.05}, "identify", "in time"),
        (lambda talk: talk.send(b"HTTP/1.1 400 Bad"), {}, "identify", "127.0.0.1"),
        (greet(), {"tls_v1": True}, "tls", "does not offer TLS"),
        (greet(tls_v1=True), {}, "tls", "insists on TLS"),
        (greet(), {"snappy": True}, "snappy", "does not offer snappy"),
    ],
)
def test_the_step_that_failed_is_the_last_one(script, options, step, detail):
    found = probe(script, **options)
    assert not found.ok
    assert [each.ok for each in found.steps] == [True] * (len(found.steps) - 1) + [False]
    assert found.steps[-1].name == step
    assert detail in found.steps[-1].detail


def test_nobody_listens():
    with Peer(lambda talk: None) as peer:
        address = Address(*peer.address)
    found = probe_nsqd(address, make_greeting(AdminConfig()))
    assert steps(found) == [("resolve", True), ("connect", False)]
    assert (found.nsqd, found.version, found.dialect) == (str(address), "", None)


def test_a_name_that_nobody_knows(monkeypatch):
    def resolve(address: Address, deadline: float) -> list[object]:
        raise ConnectError("name 'nowhere' cannot be resolved")

    monkeypatch.setattr("nsqsmart.client.admin.probe.resolve", resolve)
    found = probe_nsqd(Address("nowhere", 4150), make_greeting(AdminConfig()))
    (step,) = found.steps
    assert step[:2] == ("resolve", False)
    assert isinstance(step, ProbeStep)
    assert "nowhere" in step.detail


def test_every_address_of_a_name_is_shown_once(monkeypatch):
    known = [resolving.Resolved(2, (host, 1)) for host in ("127.0.0.1", "127.0.0.2", "127.0.0.1")]
    monkeypatch.setattr("nsqsmart.client.admin.probe.resolve", lambda address, deadline: known)
    with Peer(greet()) as peer:
        found = probe_nsqd(Address(*peer.address), make_greeting(AdminConfig()))
    assert found.steps[0].detail == "127.0.0.1, 127.0.0.2"
