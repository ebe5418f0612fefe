"""TLS behind IDENTIFY: whom it believes, what it takes for said inside, and for how long."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from time import monotonic

import pytest
import trustme

from nsqsmart.config import ProducerConfig
from nsqsmart.errors import ConnectError
from nsqsmart.names import Address
from nsqsmart.net.handshake import make_greeting, shake_hands
from nsqsmart.net.sockets import Socket
from nsqsmart.net.transport import Transport
from nsqsmart.wire.frames import OK_FRAME
from tests.peers import Peer, Script, Talk

PEER = Address("nsqd.example", 4150)
GRANT = b'{"version":"1.3.0","tls_v1":true}'


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def trusted(authority, tmp_path_factory) -> str:
    """The file that names *authority* as one to trust."""
    file: Path = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    return str(file)


def nsqd(
    authority: trustme.CA,
    name: str = PEER.host,
    *,
    behind: bytes = b"",
    ok: bool = True,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> Script:
    """One that is called *name*, and says *behind* in the clear; *ok* is said inside TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    context.maximum_version = version

    def script(talk: Talk) -> None:
        talk.greet(GRANT, behind)
        with context.wrap_socket(talk.sock, server_side=True) as inside:
            if ok:
                inside.sendall(OK_FRAME)
            talk.stall()

    return script


def greet(script: Script, patience: float = 10, **options: object) -> Transport:
    greeting = make_greeting(ProducerConfig(tls_v1=True, **options))
    with Peer(script) as peer, socket.create_connection(peer.address) as sock:
        return shake_hands(Socket(sock, PEER), greeting, monotonic() + patience)[0]


def test_who_is_called_what_was_dialled_is_believed(authority, trusted):
    assert len(greet(nsqd(authority), tls_root_ca_file=trusted).layers) == 1


def test_who_is_called_otherwise_is_refused_for_good(authority, trusted):
    with pytest.raises(ConnectError, match=r"not valid for 'nsqd\.example'") as caught:
        greet(nsqd(authority, "other.example"), tls_root_ca_file=trusted)
    assert caught.value.permanent


def test_whom_nobody_trusts_is_refused_for_good(trusted):
    with pytest.raises(ConnectError, match="CERTIFICATE_VERIFY_FAILED") as caught:
        greet(nsqd(trustme.CA()), tls_root_ca_file=trusted)
    assert caught.value.permanent


def test_who_does_not_want_to_know_believes_anybody(trusted):
    stranger = nsqd(trustme.CA(), "other.example")
    found = greet(stranger, tls_root_ca_file=trusted, tls_insecure_skip_verify=True)
    assert len(found.layers) == 1


def test_who_speaks_an_older_version_than_the_lowest_is_refused(authority, trusted):
    def older() -> Script:
        return nsqd(authority, version=ssl.TLSVersion.TLSv1_2)

    assert greet(older(), tls_root_ca_file=trusted)
    with pytest.raises(ConnectError, match="(?i)version"):
        greet(older(), tls_root_ca_file=trusted, tls_min_version="tls1.3")


def test_what_comes_in_the_clear_is_not_said_inside(authority, trusted):
    """An attacker on the wire could say OK for a server that says something else."""
    script = nsqd(authority, behind=OK_FRAME, ok=False)
    with pytest.raises(ConnectError, match="TLS handshake"):
        greet(script, tls_root_ca_file=trusted)


def test_a_server_that_falls_silent_has_no_longer_than_there_is():
    def script(talk: Talk) -> None:
        talk.greet(GRANT)
        talk.released.wait(5)

    # Where the machine has no time for us either, not even the IDENTIFY leaves.
    with pytest.raises(ConnectError, match="did not answer in time|no time left"):
        greet(script, patience=0.2)
