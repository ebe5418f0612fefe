"""Handshakes with nsqds whose answers, certificates or TLS are not what they should be."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import socket
import ssl
from pathlib import Path
from time import monotonic

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from nsqsmart.config import ProducerConfig
from nsqsmart.errors import ConfigError, ConnectError, NsqError, ServerError
from nsqsmart.names import Address
from nsqsmart.net.connection import Connection, open_connection
from nsqsmart.net.handshake import make_greeting, shake_hands
from nsqsmart.net.sockets import Socket
from nsqsmart.net.transport import make_context
from nsqsmart.wire import commands
from nsqsmart.wire.frames import ERROR, OK_FRAME, RESPONSE, encode_frame
from nsqsmart.wire.identify import Grant
from tests.peers import Peer, Script, Talk

PEER = Address("nsqd.example", 4150)
GRANT = {"version": "1.3.0", "max_rdy_count": 7}
KIB = 1024


def greet(script: Script, name: Address = PEER, **options: object) -> tuple[Connection, Grant]:
    """Shake hands with an nsqd that plays *script* and goes by *name*."""
    greeting = make_greeting(ProducerConfig(**options))
    with Peer(script) as peer, socket.create_connection(peer.address) as sock:
        return shake_hands(Socket(sock, name), greeting, monotonic() + 10)


def answering(grant: bytes) -> Script:
    def script(talk: Talk) -> None:
        talk.greet(grant)
        talk.stall()

    return script


# ------------------------------------------------------------------------- answers to IDENTIFY

BAD_ANSWERS = {
    "not JSON": b"nonsense",
    "an array": b"[1,2]",
    "a number": b"7",
    "null": b"null",
    "a max_rdy_count below 0": b'{"max_rdy_count":-1}',
    "a text": b'{"max_rdy_count":"2500"}',
    "no whole number": b'{"max_rdy_count":1e30}',
    "beyond 64 bits": b'{"max_rdy_count":9223372036854775808}',
    "a digit too many": b'{"max_rdy_count":' + b"9" * 5000 + b"}",
    "the last of two counts": b'{"max_rdy_count":7,"max_rdy_count":"7"}',
    "a switch that is a number": b'{"tls_v1":1}',
    "nested": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "too long": json.dumps(GRANT | {"padding": "x" * 64 * KIB}).encode(),
    "far too long": json.dumps(GRANT | {"padding": "x" * 5 * KIB * KIB}).encode(),
    "cut": b'{"max_rdy_count":7',
    "not UTF-8": b'{"version":"\xff"}',
    "an empty answer": b"",
}


@pytest.mark.parametrize("grant", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
def test_an_answer_to_identify_that_is_none_is_told_with_its_reason(grant) -> None:
    with pytest.raises(ConnectError, match=r"handshake with nsqd\.example:4150: .*\w+") as caught:
        greet(answering(grant))
    assert isinstance(caught.value.__cause__, NsqError)


def test_nesting_that_is_short_enough_to_be_read_ends_in_the_same_error() -> None:
    """JSON gives up by a RecursionError, which is no reason to end a program."""
    deep = b"[" * 60_000
    with pytest.raises(ConnectError, match="neither OK nor JSON"):
        greet(answering(deep))


@pytest.mark.parametrize("grant", [b"{}", b'{"version":"1.3.0","unknown":{"a":[1]}}'])
def test_what_is_missing_has_the_servers_default_and_what_is_unknown_is_passed_over(grant) -> None:
    assert greet(answering(grant))[1].max_rdy_count == 2500


def test_of_a_doubled_key_the_last_one_counts() -> None:
    assert greet(answering(b'{"max_rdy_count":7,"max_rdy_count":8}'))[1].max_rdy_count == 8


@pytest.mark.parametrize("size", [64 * KIB - 4, 64 * KIB - 3])
def test_the_answer_to_identify_may_be_64_kib_and_no_more(size) -> None:
    grant = json.dumps(GRANT).encode()
    grant += b" " * (size - len(grant))
    if size == 64 * KIB - 4:
        assert greet(answering(grant))
        return
    with pytest.raises(ConnectError, match="exceeds"):
        greet(answering(grant))


@pytest.mark.parametrize(
    "answer", [b'{"a":' * 10_000, b'{"identity":"' + b"x" * 64 * KIB + b'"}'], ids=["deep", "long"]
)
def test_the_answer_to_auth_is_bounded_as_well(answer) -> None:
    def script(talk: Talk) -> None:
        talk.greet(json.dumps(GRANT | {"auth_required": True}).encode())
        assert talk.line() == b"AUTH"
        talk.body()
        talk.send(encode_frame(RESPONSE, answer))
        talk.stall()

    with pytest.raises(ConnectError, match="handshake with 127"):
        greet(script, Address("127.0.0.1", 4150), auth_secret="s3cret")


def test_of_a_long_error_only_the_beginning_is_kept() -> None:
    """However much a server says: the text of an error stands in logs and in tracebacks."""

    def script(talk: Talk) -> None:
        talk.greet(json.dumps(GRANT).encode())
        talk.publish()
        talk.send(encode_frame(ERROR, b"E_BAD_MESSAGE " + b"x" * 500 * KIB))
        talk.stall()

    with Peer(script) as peer:
        address = Address(*peer.address)
        connection = open_connection(address, make_greeting(ProducerConfig()), monotonic() + 10)
        with pytest.raises(ServerError) as caught:
            connection.exchange(commands.pub("t", b"x"), monotonic() + 10)
        connection.close()
    assert len(str(caught.value)) < 4 * KIB


# --------------------------------------------------------------------------------- certificates


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority, tmp_path_factory) -> dict[str, str]:
    """Whom to trust, a client's certificate that is believed, and one that is not."""
    folder: Path = tmp_path_factory.mktemp("tls")
    own, strange = authority.issue_cert("client.example"), trustme.CA().issue_cert("client.example")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    for name, each in (("own", own), ("strange", strange)):
        each.cert_chain_pems[0].write_to_path(str(folder / f"{name}.pem"))
        each.private_key_pem.write_to_path(str(folder / f"{name}-key.pem"))
    key = serialization.load_pem_private_key(own.private_key_pem.bytes(), None)
    (folder / "locked-key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"pass phrase"),
        )
    )
    return {path.stem: str(path) for path in folder.iterdir()}


def inside_tls(context: ssl.SSLContext, heard: list[bytes] | None = None) -> Script:
    """One that grants TLS and asks for the secret; what is said inside goes to *heard*."""

    def script(talk: Talk) -> None:
        talk.greet(json.dumps(GRANT | {"tls_v1": True, "auth_required": True}).encode())
        with (
            contextlib.suppress(ssl.SSLError, OSError),
            context.wrap_socket(talk.sock, server_side=True) as inside,
        ):
            inside.sendall(OK_FRAME)
            data = inside.recv(4096)
            if data and heard is not None:
                heard.append(data)

    return script


def server_context(authority: trustme.CA, *names: str, **options: object) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, **options).configure_cert(context)
    return context


def long_ago() -> dt.datetime:
    return dt.datetime.now(dt.UTC) - dt.timedelta(days=1)


@pytest.mark.parametrize(
    ("who", "host", "said"),
    [
        ("unknown", PEER.host, "unable to get local issuer certificate|self-signed"),
        ("expired", PEER.host, "certificate has expired"),
        ("self-signed", PEER.host, "self-signed certificate"),
        ("another", PEER.host, "not valid for 'nsqd.example'"),
        ("of no number", "127.0.0.1", "not valid for '127.0.0.1'"),
        ("of another number", "127.0.0.1", "not valid for '127.0.0.1'"),
    ],
)
def test_a_certificate_that_is_refused_is_refused_for_good_and_gets_no_secret(
    authority, files, who, host, said
) -> None:
    """The check that failed is named; what a forged lookup answer leads to learns no secret."""
    if who == "self-signed":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority_of_its_own = trustme.CA()
        with (
            authority_of_its_own.cert_pem.tempfile() as cert,
            authority_of_its_own.private_key_pem.tempfile() as key,
        ):
            context.load_cert_chain(cert, key)
    else:
        context = {
            "unknown": lambda: server_context(trustme.CA(), host),
            "expired": lambda: server_context(authority, host, not_after=long_ago()),
            "another": lambda: server_context(authority, "other.example"),
            "of no number": lambda: server_context(authority, PEER.host),
            "of another number": lambda: server_context(authority, "127.0.0.2"),
        }[who]()
    heard: list[bytes] = []
    with pytest.raises(ConnectError, match=said) as caught:
        greet(
            inside_tls(context, heard),
            Address(host, 4150),
            tls_v1=True,
            tls_root_ca_file=files["ca"],
            auth_secret="s3cret",
        )
    assert caught.value.permanent
    assert heard == []


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_a_server_that_knows_old_versions_of_tls_only_is_refused(authority, files, version) -> None:
    context = server_context(authority, PEER.host)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = version
    heard: list[bytes] = []
    with pytest.raises(ConnectError, match="(?i)version|alert|protocol"):
        greet(
            inside_tls(context, heard),
            tls_v1=True,
            tls_root_ca_file=files["ca"],
            auth_secret="s3cret",
        )
    assert heard == []


# -------------------------------------------------------------------- the certificate of a client


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (None, "(?i)certificate required|handshake failure|handshake_failure"),
        ("strange", "(?i)unknown ca"),
    ],
)
def test_a_server_that_believes_no_client_like_this_is_told_of_without_the_key(
    authority, files, name, said, version, caplog
) -> None:
    caplog.set_level(logging.DEBUG)
    context = server_context(authority, PEER.host)
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = version
    authority.configure_trust(context)
    own = {"tls_cert": files[name], "tls_key": files[f"{name}-key"]} if name else {}
    with pytest.raises(ConnectError, match=said) as caught:
        greet(inside_tls(context), tls_v1=True, tls_root_ca_file=files["ca"], **own)
    secret = Path(files[f"{name or 'own'}-key"]).read_text().splitlines()[1]
    assert secret not in f"{caught.value!r}{caught.value}{caplog.text}"


@pytest.mark.parametrize(
    ("key", "said"),
    [("strange-key", "KEY_VALUES_MISMATCH"), ("locked-key", "tls_key is encrypted")],
)
def test_a_key_that_cannot_be_used_is_told_when_the_client_is_made(files, key, said) -> None:
    """One with a pass phrase too: OpenSSL would ask the terminal for it, and wait."""
    with pytest.raises(ConfigError, match=said) as caught:
        make_context(ProducerConfig(tls_v1=True, tls_cert=files["own"], tls_key=files[key]))
    body = Path(files[key]).read_text().splitlines()[1]
    assert body not in str(caught.value)


def test_a_key_with_a_pass_phrase_comes_in_a_context_of_ones_own(authority, files) -> None:
    context = ssl.create_default_context(cafile=files["ca"])
    context.load_cert_chain(files["own"], files["locked-key"], lambda: "pass phrase")
    config = ProducerConfig(tls_v1=True, tls_config=context)
    assert make_context(config) is context
    assert "pass phrase" not in repr(config)
