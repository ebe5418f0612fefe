"""TLS over memory buffers: what it trusts, what it refuses, and two threads on one stream."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from time import monotonic

import pytest
import trustme

from nsqsmart.config import ProducerConfig
from nsqsmart.errors import ConfigError, ConnectError, ConnectionLost, ProtocolError
from nsqsmart.names import Address
from nsqsmart.net import transport as tls
from nsqsmart.net.sockets import Socket
from nsqsmart.net.transport import TlsStream, make_context

PEER = Address("localhost", 4150)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority, tmp_path_factory) -> dict[str, str]:
    """A client's files: whom to trust, and a certificate of its own."""
    folder = tmp_path_factory.mktemp("tls")
    own = authority.issue_cert("client.example")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    own.private_key_and_cert_chain_pem.write_to_path(str(folder / "both.pem"))
    own.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    own.private_key_pem.write_to_path(str(folder / "key.pem"))
    (folder / "nonsense.pem").write_text("nonsense")
    return {path.stem: str(path) for path in folder.iterdir()}


def context_of(**options: object) -> ssl.SSLContext:
    return make_context(ProducerConfig(**options))


def test_certificate_and_host_name_are_verified_unless_told_otherwise(files):
    context = context_of(tls_root_ca_file=files["ca"])
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    careless = context_of(tls_insecure_skip_verify=True)
    assert careless.verify_mode is ssl.CERT_NONE
    assert not careless.check_hostname


def test_that_nothing_is_verified_is_logged_once(monkeypatch, caplog):
    monkeypatch.setattr(tls, "_warned", [])
    context_of()
    assert caplog.records == []
    for _ in range(2):
        context_of(tls_insecure_skip_verify=True)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "tls_insecure_skip_verify" in record.getMessage()


def test_tls_compresses_nothing():
    """Else the length of what is sent tells what is in it (CRIME)."""
    assert context_of().options & ssl.OP_NO_COMPRESSION


def test_the_lowest_version_can_be_raised():
    assert context_of(tls_min_version="tls1.3").minimum_version is ssl.TLSVersion.TLSv1_3


def test_a_context_of_ones_own_is_used_as_it_is():
    own = ssl.create_default_context()
    assert context_of(tls_config=own) is own


def test_certificate_and_key_may_be_one_file_or_two(files):
    assert context_of(tls_cert=files["both"])
    assert context_of(tls_cert=files["cert"], tls_key=files["key"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tls_root_ca_file": "/nowhere.pem"}, "tls_root_ca_file='/nowhere.pem': no such file"),
        ({"tls_cert": "/nowhere.pem"}, "tls_cert='/nowhere.pem'"),
        ({"tls_cert": "both", "tls_key": "/nowhere.pem"}, "tls_key='/nowhere.pem'"),
        ({"tls_root_ca_file": "nonsense"}, "cannot be used"),
        ({"tls_cert": "cert"}, "cannot be used"),
    ],
)
def test_files_that_cannot_be_used_are_named_when_the_client_is_made(files, options, said):
    options = {name: files.get(value, value) for name, value in options.items()}
    with pytest.raises(ConfigError, match=said):
        context_of(**options)


class Server:
    """The other end of a socket pair, wrapped by the standard library."""

    def __init__(self, sock: socket.socket, authority: trustme.CA, name: str, options: dict):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(self.context)
        for option, value in options.items():
            setattr(self.context, option, value)
        self.sock: socket.socket = sock
        self.ready = threading.Thread(target=self._accept)
        self.ready.start()

    def _accept(self) -> None:
        try:
            self.sock = self.context.wrap_socket(self.sock, server_side=True)
        except (ssl.SSLError, OSError):
            self.sock.close()


class Ends:
    """A stream that has shaken hands, its socket, and the server's end."""

    def __init__(self, here: Socket, stream: TlsStream, server: Server) -> None:
        self.here, self.stream, self.server = here, stream, server

    def send(self, data: bytes) -> None:
        self.here.send(self.stream.outgoing(data), monotonic() + 5)

    def recv(self) -> bytes:
        return b"".join(self.stream.incoming(self.here.recv(monotonic() + 5)))

    def recv_all(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            data += self.recv()
        return data


@pytest.fixture
def connect(authority) -> Iterator:
    """Shakes hands with a server of that name; more than one per test."""
    opened: list[tuple[Socket, Server]] = []

    def shake(name: str = "localhost", trust: trustme.CA | None = None, **options: object) -> Ends:
        ours, theirs = socket.socketpair()
        here, server = Socket(ours, PEER), Server(theirs, authority, name, options)
        opened.append((here, server))
        context = ssl.create_default_context()
        (trust or authority).configure_trust(context)
        stream = TlsStream(context, PEER.host)
        stream.shake_hands(here, monotonic() + 5)
        server.ready.join(5)
        return Ends(here, stream, server)

    yield shake
    for here, server in opened:
        here.drop()
        server.ready.join(5)
        server.sock.close()


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def ends(connect, request) -> Ends:
    return connect(maximum_version=request.param)


def test_bytes_go_both_ways(ends):
    ends.send(b"question")
    assert ends.server.sock.recv(100) == b"question"
    ends.server.sock.sendall(b"answer")
    assert ends.recv_all(6) == b"answer"


def test_whatever_the_cut_and_in_pieces_of_bounded_size(ends):
    data = bytes(range(256)) * 1000
    writing = threading.Thread(target=ends.server.sock.sendall, args=(data,))
    writing.start()
    found = b""
    while len(found) < len(data):
        got = ends.here.recv(monotonic() + 5)
        for start in range(0, len(got), 999):
            pieces = list(ends.stream.incoming(got[start : start + 999]))
            assert all(len(piece) <= 64 * 1024 for piece in pieces)
            found += b"".join(pieces)
    writing.join(5)
    assert found == data


def test_a_certificate_that_nobody_trusts_is_refused_for_good(connect):
    with pytest.raises(ConnectError, match="localhost:4150") as caught:
        connect(trust=trustme.CA())
    assert caught.value.permanent


def test_a_certificate_of_another_host_is_refused_for_good(connect):
    with pytest.raises(ConnectError, match="elsewhere|localhost") as caught:
        connect(name="elsewhere.example")
    assert caught.value.permanent


def test_who_speaks_no_tls_may_be_asked_again():
    ours, theirs = socket.socketpair()
    here = Socket(ours, PEER)
    theirs.sendall(b"what do you mean?")
    with pytest.raises(ConnectError) as caught:
        TlsStream(ssl.create_default_context(), "localhost").shake_hands(here, monotonic() + 5)
    assert not caught.value.permanent
    here.drop()
    theirs.close()


def test_an_alert_breaks_the_stream_in_both_directions(ends):
    """As from a server that breaks every connection some seconds after its handshake."""
    record = bytearray(ends.stream.outgoing(b"x" * 50))
    record[-1] ^= 0xFF
    ends.here.send(bytes(record), monotonic() + 5)
    with pytest.raises(ssl.SSLError):
        ends.server.sock.recv(100)
    with pytest.raises(ProtocolError, match="TLS stream broken"):
        ends.recv()
    with pytest.raises(ConnectionLost, match="TLS stream broken") as caught:
        ends.send(b"more")
    assert not caught.value.sent


def test_garbage_breaks_the_stream(ends):
    with pytest.raises(ProtocolError):
        list(ends.stream.incoming(b"garbage" * 10))


def test_a_goodbye_is_no_error(ends):
    closing = threading.Thread(target=_say_goodbye, args=(ends.server.sock,))
    closing.start()
    assert ends.recv() == b""
    ends.here.hang_up()
    closing.join(5)


def _say_goodbye(sock: ssl.SSLSocket) -> None:
    with contextlib.suppress(ssl.SSLError, OSError):
        sock.unwrap()


def test_a_reader_and_senders_share_one_stream(ends):
    """A shared SSLSocket broke in a fifth of the runs; a lock around arithmetic does not."""
    count, size = 300, 1000
    server = ends.server.sock
    heard = []

    def echo() -> None:
        left = count * size
        while left:
            data = server.recv(65536)
            left -= len(data)
            server.sendall(data)

    def read() -> None:
        heard.append(ends.recv_all(count * size))

    send_lock = threading.Lock()

    def send(letter: bytes) -> None:
        for _ in range(count // 3):
            with send_lock:
                ends.send(letter * size)

    threads = [threading.Thread(target=echo), threading.Thread(target=read)]
    threads += [threading.Thread(target=send, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert sorted(heard[0]) == sorted(b"a" * 100_000 + b"b" * 100_000 + b"c" * 100_000)
