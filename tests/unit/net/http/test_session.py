"""HTTP that keeps its deadline, and trusts no answer."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from time import monotonic

import pytest

from nsqsmart.errors import DiscoveryError
from nsqsmart.net.http import session as http_session
from nsqsmart.net.http.session import MAX_ANSWER, HttpSession
from tests.helpers import ROOT
from tests.interrupts import count_places, interrupted_at
from tests.peers import Peer, Script, Talk, http_answer, http_script


def get(peer: Peer, path: str = "/", patience: float = 5) -> tuple[int, bytes]:
    with HttpSession() as session:
        return session.get("http://{}:{}{}".format(*peer.address, path), monotonic() + patience)


def head_of(requests: list[dict[str, str]]) -> Script:
    """Notes the head of a request, and answers."""

    def script(talk: Talk) -> None:
        head = {"": talk.line().strip().decode()}
        while line := talk.line().strip().decode():
            name, _, value = line.partition(": ")
            head[name.lower()] = value
        requests.append(head)
        talk.send(http_answer(200, b"{}"))

    return script


def test_a_request_asks_for_a_plain_answer_of_the_known_version(monkeypatch):
    requests: list[dict[str, str]] = []
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with Peer(head_of(requests)) as peer:
        assert get(peer, "/lookup?topic=t") == (200, b"{}")
    (head,) = requests
    assert head[""] == "GET /lookup?topic=t HTTP/1.1"
    assert head["accept"] == "application/vnd.nsq; version=1.0"
    assert head["accept-encoding"] == "identity"
    assert head["connection"] == "close"


@pytest.mark.parametrize("status", [200, 404, 500])
def test_every_status_is_an_answer(status):
    with Peer(http_script(lambda _path: http_answer(status, b"said"))) as peer:
        assert get(peer) == (status, b"said")


def endless_head(talk: Talk) -> None:
    talk.send(b"HTTP/1.1 200 OK\r\n")
    for _ in range(90):
        talk.send(b"X: " + bytes(60_000).replace(b"\0", b"y") + b"\r\n")
    talk.send(b"\r\nsaid")


def endless_chunk_line(talk: Talk) -> None:
    talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;")
    while not talk.released.is_set():
        talk.send(b"y" * 65536)


def endless_continue(talk: Talk) -> None:
    while not talk.released.is_set():
        talk.send(b"HTTP/1.1 100 Continue\r\nX: " + b"y" * 1000 + b"\r\n\r\n")


@pytest.mark.parametrize("script", [endless_head, endless_chunk_line, endless_continue])
def test_what_is_read_beside_the_body_is_bounded_too(script, monkeypatch):
    """Whatever reads it: urllib3 before 2.8 keeps a chunk line of any length."""
    read = []
    real = http_session._Socket.recv_into

    def recv_into(sock: object, *args: object) -> int:
        read.append(real(sock, *args))
        return read[-1]

    monkeypatch.setattr(http_session._Socket, "recv_into", recv_into)

    def answer(talk: Talk) -> None:
        while talk.line().strip():
            pass
        script(talk)

    with Peer(answer) as peer, pytest.raises(DiscoveryError):
        get(peer, patience=1)
    assert sum(read) < MAX_ANSWER + (1 << 20)


def test_an_answer_as_large_as_may_be_is_read_in_chunks_too():
    chunks = b"".join(b"1000\r\n%s\r\n" % (b"y" * 4096) for _ in range(MAX_ANSWER // 4096))
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Peer(http_script(lambda _path: head + chunks + b"0\r\n\r\n")) as peer:
        assert get(peer) == (200, b"y" * MAX_ANSWER)


def test_an_answer_without_a_length_ends_with_the_connection():
    with Peer(http_script(lambda _path: b"HTTP/1.0 200 OK\r\n\r\nsaid")) as peer:
        assert get(peer) == (200, b"said")


def test_a_redirect_is_not_followed():
    with Peer(http_script(lambda _path: b"should never be asked")) as other:
        location = "Location: http://{}:{}/\r\n".format(*other.address)
        moved = f"HTTP/1.1 302 Found\r\n{location}Content-Length: 0\r\n\r\n".encode()
        with Peer(http_script(lambda _path: moved)) as peer:
            assert get(peer)[0] == 302
        assert other.accepted == 0


def test_an_answer_may_be_a_mebibyte_and_no_more():
    with Peer(http_script(lambda path: http_answer(200, b"x" * int(path[1:])))) as peer:
        assert get(peer, f"/{MAX_ANSWER}") == (200, b"x" * MAX_ANSWER)
        with pytest.raises(DiscoveryError, match="exceeds"):
            get(peer, f"/{MAX_ANSWER + 1}")


def test_who_asks_for_more_gets_more():
    big = http_script(lambda path: http_answer(200, b"x" * int(path[1:])))
    with Peer(big) as peer, HttpSession(MAX_ANSWER + 1) as session:
        url = "http://{}:{}/{}"
        for size, answered in ((MAX_ANSWER + 1, True), (MAX_ANSWER + 2, False)):
            target = url.format(*peer.address, size)
            if answered:
                assert len(session.get(target, monotonic() + 5)[1]) == size
            else:
                with pytest.raises(DiscoveryError, match=f"exceeds {MAX_ANSWER + 1} bytes"):
                    session.get(target, monotonic() + 5)


@pytest.mark.parametrize("body", [b"", b"virtual_queue:0"])
def test_a_post_has_a_body_and_its_length(body):
    heads: list[dict[str, str]] = []
    bodies: list[bytes] = []

    def script(talk: Talk) -> None:
        head = {"": talk.line().strip().decode()}
        while line := talk.line().strip().decode():
            name, _, value = line.partition(": ")
            head[name.lower()] = value
        heads.append(head)
        bodies.append(talk.read(int(head["content-length"])))
        talk.send(http_answer(200, b""))

    with Peer(script) as peer, HttpSession() as session:
        url = "http://{}:{}/channel/setoffset".format(*peer.address)
        assert session.post(url, body, monotonic() + 5) == (200, b"")
    assert bodies == [body]
    assert heads[0][""] == "POST /channel/setoffset HTTP/1.1"
    assert heads[0]["accept"] == "application/vnd.nsq; version=1.0"


def test_a_post_keeps_the_deadline_too():
    with (
        Peer(lambda talk: talk.stall()) as peer,
        HttpSession() as session,
        pytest.raises(DiscoveryError, match="time"),
    ):
        session.post("http://{}:{}/".format(*peer.address), b"", monotonic() + 0.1)


def test_a_length_that_lies_is_an_error():
    short = http_script(lambda _path: http_answer(200, b"{}", length=50))
    with Peer(short) as peer, pytest.raises(DiscoveryError):
        get(peer)


def drip(talk: Talk) -> None:
    talk.line()
    for byte in b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 1000:
        talk.send(bytes([byte]))
        if talk.released.wait(0.01):
            return


@pytest.mark.parametrize("script", [drip, lambda talk: talk.stall()], ids=["drips", "silence"])
def test_the_deadline_holds_whatever_comes_meanwhile(script):
    started = monotonic()
    with Peer(script) as peer, pytest.raises(DiscoveryError, match="time"):
        get(peer, patience=0.15)
    assert monotonic() - started < 5


def test_without_time_nobody_is_asked():
    with Peer(drip) as peer:
        with pytest.raises(DiscoveryError, match="no complete answer in time"):
            get(peer, patience=-1)
        assert peer.accepted == 0


@pytest.mark.parametrize("script", [lambda talk: talk.reset(), lambda talk: None])
def test_a_lost_connection_is_an_error_that_says_so(script):
    with Peer(script) as peer, pytest.raises(DiscoveryError, match=r"reset|closed|Disconnected"):
        get(peer)


def test_who_cannot_be_reached_is_an_error_that_says_so():
    with Peer(drip) as peer:
        pass
    with pytest.raises(DiscoveryError, match="refused"):
        get(peer)


def test_one_session_asks_several():
    answers = http_script(lambda path: http_answer(200, path.encode()))
    with Peer(answers) as one, Peer(answers) as other, HttpSession() as session:
        for number, peer in enumerate([one, other, one]):
            url = "http://{}:{}/{}".format(*peer.address, number)
            assert session.get(url, monotonic() + 5) == (200, b"/%d" % number)


def test_what_failed_before_is_no_reason():
    """A second request is made while the failure that led to it is handled."""

    def get_again(peer: Peer) -> None:
        try:
            {}["before"]
        except KeyError:
            get(peer)

    with Peer(lambda talk: None) as peer, pytest.raises(DiscoveryError) as caught:
        get_again(peer)
    assert "before" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_interrupt_anywhere_ends_the_call():
    """One in the lock of urllib3's own pool made it wait for that lock for ever."""
    with Peer(http_script(lambda _path: http_answer(200, b"said"))) as peer:
        get(peer)
        places = count_places(lambda: get(peer))
        assert places > 20
        for position in range(1, places + 1):
            with suppress(KeyboardInterrupt), interrupted_at(position):
                get(peer)
        assert get(peer) == (200, b"said")


def test_to_write_to_a_peer_that_is_gone_is_an_error_even_with_a_default_sigpipe():
    code = """
import signal, socket, time
from nsqsmart.net.http.session import _Bounds, _Socket
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
bounds = _Bounds()
bounds.deadline = time.monotonic() + 10
here, there = socket.socketpair()
there.close()
with _Socket(here, bounds) as sock:
    try:
        sock.sendall(b"GET / HTTP/1.1")
    except BrokenPipeError:
        print("an error")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "an error\n"), signal.strsignal(-done.returncode)
