"""Magic, IDENTIFY, upgrades and AUTH, with nsqds that grant, refuse and surprise."""

from __future__ import annotations

import json
import socket
import ssl
from time import monotonic

import pytest
import trustme

from nsqsmart.config import ProducerConfig
from nsqsmart.errors import ConnectError, ServerError, TlsRequired
from nsqsmart.names import Address
from nsqsmart.net.handshake import Watcher, make_greeting, shake_hands
from nsqsmart.net.sockets import Socket
from nsqsmart.net.transport import Transport
from nsqsmart.wire.frames import (
    ERROR,
    HEARTBEAT_FRAME,
    MESSAGE,
    OK_FRAME,
    RESPONSE,
    encode_frame,
)
from nsqsmart.wire.identify import Grant
from nsqsmart.wire.streams import DeflateStream, SnappyStream
from tests.peers import Peer, Script, Talk

REMOTE = Address("nsqd.example", 4150)
LOOPBACK = [
    Address("127.0.0.1", 4150),
    Address("127.9.9.9", 1),
    Address("::1", 4150),
    Address("localhost", 4150),
]
SECRET = "open sesame"


def grant(**granted: object) -> bytes:
    return json.dumps({"version": "1.3.0", "max_rdy_count": 7} | granted).encode()


def greet(
    script: Script, name: Address = REMOTE, patience: float = 5, **options: object
) -> tuple[Transport, Grant]:
    """Shake hands with an nsqd that plays *script* and goes by *name*."""
    greeting = make_greeting(ProducerConfig(**options))
    with Peer(script) as peer, socket.create_connection(peer.address) as sock:
        return shake_hands(Socket(sock, name), greeting, monotonic() + patience)


def granting(*behind: bytes, **granted: object) -> Script:
    """Grants, says *behind* in the same breath, and waits."""

    def script(talk: Talk) -> None:
        talk.greet(grant(**granted), *behind)
        talk.stall()

    return script


def test_the_offer_says_what_the_options_say():
    offers = []

    def script(talk: Talk) -> None:
        offers.append(talk.greet(grant()))

    options = {
        "client_id": "me",
        "hostname": "my.host",
        "user_agent": "app/1",
        "heartbeat_interval": 10,
        "msg_timeout": 90,
        "output_buffer_timeout": 0.1,
        "sample_rate": 5,
    }
    greet(script, **options)
    assert offers[0].items() >= {
        ("client_id", "me"),
        ("hostname", "my.host"),
        ("user_agent", "app/1"),
        ("heartbeat_interval", 10_000),
        ("msg_timeout", 90_000),
        ("output_buffer_timeout", 100),
        ("sample_rate", 5),
        ("feature_negotiation", True),
    }


def test_names_that_are_not_given_come_from_the_machine(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "host-7.example")
    offer = make_greeting(ProducerConfig()).offer
    assert (offer.client_id, offer.hostname) == ("host-7", "host-7.example")
    assert offer.user_agent.startswith("nsqsmart/")


def test_the_grant_is_handed_out_and_a_plain_connection_has_no_layer():
    transport, granted = greet(granting(msg_timeout=1500))
    assert (granted.max_rdy_count, granted.msg_timeout) == (7, 1.5)
    assert transport.layers == ()


def test_heartbeats_meanwhile_are_passed_over():
    def script(talk: Talk) -> None:
        talk.send(HEARTBEAT_FRAME)
        talk.greet(grant())

    assert greet(script)


@pytest.mark.parametrize("option", ["snappy", "deflate"])
@pytest.mark.parametrize("breaths", [1, 2])
def test_compression_begins_behind_the_grant(option, breaths):
    """The OK that confirms it is compressed already, and may come with the grant."""
    stream = SnappyStream() if option == "snappy" else DeflateStream()
    ok = stream.outgoing(OK_FRAME)

    def script(talk: Talk) -> None:
        talk.greet(grant(**{option: True}), *([ok] if breaths == 1 else []))
        if breaths == 2:
            talk.send(ok)
        talk.stall()

    transport, granted = greet(script, **{option: True})
    assert getattr(granted, option)
    assert type(transport.layers[0]) is type(stream)


@pytest.mark.parametrize("option", ["snappy", "deflate"])
def test_compression_that_is_not_offered_is_an_error_for_good(option):
    with pytest.raises(ConnectError, match=f"does not offer {option}") as caught:
        greet(granting(), **{option: True})
    assert caught.value.permanent


def test_compression_must_be_confirmed():
    with pytest.raises(ConnectError, match="not confirmed"):
        greet(
            granting(SnappyStream().outgoing(encode_frame(RESPONSE, b"NO")), snappy=True),
            snappy=True,
        )


def test_tls_that_is_not_offered_ends_it_before_anything_else_is_said():
    heard = []

    def script(talk: Talk) -> None:
        talk.greet(grant(auth_required=True))
        heard.append(talk.line())

    with pytest.raises(TlsRequired, match="does not offer TLS") as caught:
        greet(script, tls_v1=True, auth_secret=SECRET)
    assert caught.value.permanent
    assert heard == []


def test_tls_that_was_not_asked_for_is_an_error_that_says_so():
    with pytest.raises(TlsRequired, match="insists on TLS"):
        greet(granting(tls_v1=True))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_ok_behind_tls_may_come_with_the_end_of_its_handshake(version):
    """With TLS 1.2 the server has the last word, and nsqd's OK follows at once."""
    authority = trustme.CA()
    ours, theirs = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.configure_trust(ours)
    authority.issue_cert(REMOTE.host).configure_cert(theirs)
    theirs.maximum_version = version

    def script(talk: Talk) -> None:
        talk.greet(grant(tls_v1=True))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = theirs.wrap_bio(incoming, outgoing, server_side=True)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                talk.send(outgoing.read())
                incoming.write(talk.sock.recv(65536))
        tls.write(OK_FRAME)
        talk.send(outgoing.read())
        talk.stall()

    started = monotonic()
    transport, granted = greet(script, tls_v1=True, tls_config=ours)
    assert granted.tls
    assert len(transport.layers) == 1
    assert monotonic() - started < 4


def authorizing(answer: bytes, heard: list[bytes]) -> Script:
    def script(talk: Talk) -> None:
        talk.greet(grant(auth_required=True))
        heard.append(talk.line())
        heard.append(talk.body())
        talk.send(answer)
        talk.stall()

    return script


ACCEPTED = encode_frame(RESPONSE, b'{"identity":"me","permission_count":1}')


@pytest.mark.parametrize("name", LOOPBACK)
def test_the_secret_goes_to_who_asks_for_it(name):
    heard: list[bytes] = []
    assert greet(authorizing(ACCEPTED, heard), name, auth_secret=SECRET)
    assert heard == [b"AUTH", SECRET.encode()]


@pytest.mark.parametrize(
    "host",
    ["127.attacker.example", "127.0.0.1.example", "localhost.example", "1.2.3.4"],
)
def test_a_name_that_only_looks_like_this_machine_gets_no_secret(host):
    heard: list[bytes] = []
    with pytest.raises(ConnectError, match="without TLS"):
        greet(authorizing(ACCEPTED, heard), Address(host, 4150), auth_secret=SECRET)
    assert heard == []


def test_a_secret_that_is_echoed_is_not_said():
    refusal = encode_frame(ERROR, f"E_AUTH_FAILED {'x' * 490} {SECRET} is not it".encode())
    with pytest.raises(ServerError, match=r"\*\*\*") as caught:
        greet(authorizing(refusal, []), LOOPBACK[0], auth_secret=SECRET)
    assert SECRET[:4] not in str(caught.value)


@pytest.mark.parametrize(
    "answer", [b"<html>", b"", b"ok", b'"OK"', b"[]", b"1", b"null", b'{"identity":', b"\xff\xfe"]
)
def test_an_answer_to_the_secret_that_is_none_is_no_permission(answer):
    with pytest.raises(ConnectError, match="AUTH"):
        greet(authorizing(encode_frame(RESPONSE, answer), []), LOOPBACK[0], auth_secret=SECRET)


def test_ok_is_a_permission_too():
    assert greet(authorizing(OK_FRAME, []), LOOPBACK[0], auth_secret=SECRET)


def test_the_secret_goes_to_nobody_who_does_not_ask():
    heard = []

    def script(talk: Talk) -> None:
        talk.greet(grant())
        heard.append(talk.line())

    greet(script, LOOPBACK[0], auth_secret=SECRET)
    assert heard == []


def test_the_secret_crosses_no_network_in_the_clear():
    heard: list[bytes] = []
    with pytest.raises(ConnectError, match="without TLS") as caught:
        greet(authorizing(ACCEPTED, heard), auth_secret=SECRET)
    assert caught.value.permanent
    assert SECRET not in str(caught.value)
    assert heard == []
    greet(authorizing(ACCEPTED, heard), auth_secret=SECRET, allow_plaintext_auth=True)
    assert heard == [b"AUTH", SECRET.encode()]


def test_who_is_asked_for_a_secret_and_has_none_learns_which_option_to_give():
    with pytest.raises(ServerError, match="auth_secret") as caught:
        greet(granting(auth_required=True))
    assert caught.value.code == "E_AUTH_FIRST"


def test_a_secret_that_is_refused_is_the_servers_error():
    refusal = encode_frame(ERROR, b"E_UNAUTHORIZED no permissions")
    with pytest.raises(ServerError) as caught:
        greet(authorizing(refusal, []), LOOPBACK[0], auth_secret=SECRET)
    assert caught.value.code == "E_UNAUTHORIZED"


@pytest.mark.parametrize(
    ("code", "permanent"),
    [("E_BAD_BODY", True), ("E_INVALID", True), ("E_IDENTIFY_FAILED", True), ("E_BUSY", False)],
)
def test_a_refused_identify_is_refused_again_unless_it_may_pass(code, permanent):
    def script(talk: Talk) -> None:
        talk.read(4)
        talk.line()
        talk.body()
        talk.send(encode_frame(ERROR, code.encode() + b" sorry"))
        talk.stall()

    with pytest.raises(ConnectError, match=f"nsqd.example:4150 refuses: {code} sorry") as caught:
        greet(script)
    assert caught.value.permanent is permanent


@pytest.mark.parametrize(
    "script",
    [
        lambda talk: talk.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        lambda talk: talk.greet(b"no json"),
        lambda talk: talk.send(encode_frame(MESSAGE, b"m" * 30)),
        lambda talk: None,
        lambda talk: talk.reset(),
        granting(OK_FRAME),
        granting(OK_FRAME[:5]),
    ],
    ids=["http", "no json", "a message", "closes", "resets", "a frame more", "a bit more"],
)
def test_who_is_no_nsqd_is_a_connect_error(script):
    with pytest.raises(ConnectError, match=r"nsqd\.example:4150") as caught:
        greet(script)
    # What speaks HTTP will never be one; everything else may pass.
    assert caught.value.permanent is ("speaks HTTP" in str(caught.value))


def test_silence_is_a_connect_error_in_time():
    started = monotonic()
    with pytest.raises(ConnectError, match="in time"):
        greet(lambda talk: talk.stall(), patience=0.05)
    assert monotonic() - started < 4


class Noting(Watcher):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def begin(self, step: str) -> None:
        self.told.append(step)

    def learn(self, grant: Grant) -> None:
        self.told.append(grant.version)


def watch(script: Script, **options: object) -> list[object]:
    """What a watcher was told, and the kind of error in the end."""
    watcher = Noting()
    greeting = make_greeting(ProducerConfig(**options))
    with Peer(script) as peer, socket.create_connection(peer.address) as sock:
        try:
            shake_hands(Socket(sock, LOOPBACK[0]), greeting, monotonic() + 5, watcher)
        except (ConnectError, ServerError) as error:
            watcher.told.append(type(error))
    return watcher.told


def test_a_watcher_knows_how_far_it_came():
    assert watch(granting()) == ["identify", "1.3.0"]
    assert watch(lambda talk: None) == ["identify", ConnectError]
    assert watch(granting(), tls_v1=True) == ["identify", "1.3.0", "tls", TlsRequired]
    assert watch(granting(tls_v1=True)) == ["identify", "1.3.0", "tls", TlsRequired]
    assert watch(granting(), snappy=True) == ["identify", "1.3.0", "snappy", ConnectError]
    assert watch(granting(), deflate=True) == ["identify", "1.3.0", "deflate", ConnectError]
    told = watch(authorizing(ACCEPTED, []), auth_secret=SECRET)
    assert told == ["identify", "1.3.0", "auth"]
    assert watch(granting(auth_required=True)) == ["identify", "1.3.0", "auth", ServerError]
