"""Every blocking call ends at its deadline, whatever the peer does meanwhile."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from nsqsmart.errors import ConnectError, ConnectionLost, ResponseTimeout, TransportError
from nsqsmart.names import Address
from nsqsmart.net import sockets
from nsqsmart.net.sockets import Socket, dial
from tests.helpers import eventually

SLACK = 5


@pytest.fixture
def pair() -> Iterator[tuple[Socket, socket.socket]]:
    """A Socket under test, and the peer's plain end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(*listener.getsockname()[:2])
        sock = dial(address, time.monotonic() + 5)
        peer, _ = listener.accept()
    with peer:
        yield sock, peer
    sock.drop()


def in_time(seconds: float, call) -> TransportError | None:
    """What *call* raises, which must be at *seconds* from now and not much later."""
    started = time.monotonic()
    caught: TransportError | None = None
    try:
        call(started + seconds)
    except TransportError as error:
        caught = error
    assert time.monotonic() - started < seconds + SLACK
    return caught


def test_it_knows_its_own_end(pair):
    sock, peer = pair
    assert sock.local == Address(*peer.getpeername()[:2])
    sock.drop()
    assert sock.local is None


def test_who_was_forked_without_a_hook_does_not_speak(pair):
    """By C, as uWSGI forks: the number of the process tells."""
    sock, peer = pair
    sock._process += 1
    for send in (sock.write, sock.try_send):
        with pytest.raises(OSError, match="parent process"):
            send(b"x")
    sock.hang_up()
    sock.end_sending()
    sock._process -= 1
    sock.write(b"y")
    assert peer.recv(9) == b"y"


def test_what_is_sent_arrives_whole(pair):
    sock, peer = pair
    data = bytes(range(256)) * 40_000
    received = bytearray()

    def read() -> None:
        while len(received) < len(data):
            received.extend(peer.recv(65536))

    thread = threading.Thread(target=read)
    thread.start()
    sock.send(data, time.monotonic() + 20)
    thread.join(20)
    assert received == data


def test_silence_ends_a_recv(pair):
    sock, _ = pair
    assert isinstance(in_time(0.2, sock.recv), ResponseTimeout)


def test_silence_longer_than_a_slice_ends_a_recv(pair):
    sock, _ = pair
    assert isinstance(in_time(1.2, sock.recv), ResponseTimeout)


def test_a_peer_that_reads_nothing_ends_a_send(pair):
    sock, _ = pair
    error = in_time(0.3, lambda deadline: sock.send(bytes(50_000_000), deadline))
    assert isinstance(error, ResponseTimeout)


def test_a_peer_that_reads_slowly_ends_a_send(pair):
    sock, peer = pair
    done = threading.Event()

    def sip() -> None:
        while not done.wait(0.005):
            peer.recv(65536)

    thread = threading.Thread(target=sip)
    thread.start()
    try:
        error = in_time(0.6, lambda deadline: sock.send(bytes(200_000_000), deadline))
    finally:
        done.set()
        thread.join(5)
    assert isinstance(error, ResponseTimeout)


@contextmanager
def storm(seconds: float) -> Iterator[None]:
    """A signal every millisecond, handled, for at most *seconds*."""
    before = signal.signal(signal.SIGUSR1, lambda _number, _frame: None)
    over = threading.Event()
    until = time.monotonic() + seconds
    target = threading.get_ident()

    def rage() -> None:
        while not over.wait(0.001) and time.monotonic() < until:
            signal.pthread_kill(target, signal.SIGUSR1)

    thread = threading.Thread(target=rage)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("what", ["recv", "send"])
def test_signals_do_not_prolong_a_wait(pair, what):
    """The kernel's own timeouts begin anew with every signal."""
    sock, _ = pair
    calls = {"recv": sock.recv, "send": lambda until: sock.send(bytes(50_000_000), until)}
    with storm(2 * SLACK):
        assert isinstance(in_time(0.6, calls[what]), ResponseTimeout)


def test_a_peer_that_always_says_something_ends_a_recv_after_its_deadline(pair):
    sock, peer = pair
    peer.sendall(b"x" * 100)
    assert sock.recv(time.monotonic() + 1)
    peer.sendall(b"x" * 100)
    with pytest.raises(ResponseTimeout):
        sock.recv(time.monotonic() - 1)


def test_a_deadline_that_has_passed_is_no_wait_without_limit(pair, monkeypatch):
    sock, _ = pair
    now = time.monotonic()
    monkeypatch.setattr("nsqsmart.net.sockets.monotonic", lambda: now)
    with pytest.raises(ResponseTimeout):
        sock.recv(now)


def test_behind_the_deadline_nothing_is_sent(pair):
    sock, peer = pair
    with pytest.raises(ConnectError, match="no time left"):
        sock.send(b"x", time.monotonic() - 0.001)
    sock.send(b"y", time.monotonic() + 5)
    assert peer.recv(2) == b"y"


def test_the_end_is_a_lost_connection(pair):
    sock, peer = pair
    peer.close()
    with pytest.raises(ConnectionLost) as caught:
        sock.recv(time.monotonic() + 5)
    assert caught.value.sent
    # The first bytes may still be taken: the reset that answers them ends the rest.
    with pytest.raises(ConnectionLost):
        sock.send(b"x" * 50_000_000, time.monotonic() + 5)


def elsewhere(call):
    """What *call* returns or raises in a thread that is not the main one."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call).result(4 * SLACK)


@pytest.mark.parametrize("seconds", [0.1, 0.8])
def test_silence_ends_a_recv_of_any_thread(pair, seconds):
    """Shorter than a slice, and longer than several."""
    sock, _ = pair
    assert isinstance(elsewhere(lambda: in_time(seconds, sock.recv)), ResponseTimeout)


def test_the_signals_of_a_process_do_not_prolong_what_another_thread_waits_for(pair):
    sock, _ = pair
    before = signal.signal(signal.SIGALRM, lambda _number, _frame: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        error = elsewhere(lambda: in_time(0.8, sock.recv))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert isinstance(error, ResponseTimeout)


def test_the_thread_that_forks_is_the_main_one_of_the_child():
    """It gets the signals from then on."""
    code = """
import os, threading
from nsqsmart.net import sockets
def fork():
    child = os.fork()
    if child == 0:
        os._exit(sockets._main != threading.get_ident())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread = threading.Thread(target=fork)
thread.start()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert done.stdout == "0\n", done.stderr


def test_whoever_waits_in_another_thread_gets_what_comes_and_learns_the_end(pair):
    sock, peer = pair
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(sock.recv, time.monotonic() + 4 * SLACK)
        peer.sendall(b"abc")
        assert waiting.result(SLACK) == b"abc"
        waiting = threads.submit(sock.recv, time.monotonic() + 4 * SLACK)
        sock.hang_up()
        assert isinstance(waiting.exception(SLACK), ConnectionLost)


def test_a_reader_waits_without_limit_after_an_exchange(pair):
    """The slices of a recv are not for it."""
    sock, peer = pair
    assert isinstance(elsewhere(lambda: in_time(0.3, sock.recv)), ResponseTimeout)
    sock.block(5)
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(sock.read)
        with pytest.raises(TimeoutError):
            reading.result(0.6)
        peer.sendall(b"late")
        assert reading.result(SLACK) == b"late"


@pytest.mark.parametrize("look", [Socket.is_quiet, lambda sock: elsewhere(sock.is_quiet)])
def test_a_quiet_socket_is_told_from_one_with_bytes(pair, look):
    sock, peer = pair
    assert look(sock)
    peer.sendall(b"abc")
    eventually(lambda: not look(sock))
    assert sock.recv(time.monotonic() + SLACK) == b"abc"
    assert look(sock)


@pytest.mark.parametrize("look", [Socket.is_quiet, lambda sock: elsewhere(sock.is_quiet)])
@pytest.mark.parametrize("end", ["closed", "reset"])
def test_a_socket_that_has_ended_is_not_quiet(pair, look, end):
    sock, peer = pair
    if end == "reset":
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    eventually(lambda: not look(sock))
    assert sock.recv_now() == b""


def test_where_the_kernel_cannot_say_it_is_looked_at_more_closely(pair, monkeypatch):
    sock, _ = pair
    monkeypatch.setattr(sockets, "_SO_MEMINFO", 9999)
    assert not elsewhere(sock.is_quiet)
    assert sock.recv_now() is None


def test_recv_now_tells_nothing_from_the_end(pair):
    sock, peer = pair
    assert sock.recv_now() is None
    peer.sendall(b"abc")
    assert sock.recv(time.monotonic() + 5) == b"abc"
    assert sock.recv_now() is None
    peer.close()
    assert in_time(0.5, lambda _deadline: sock.read()) is None
    assert sock.recv_now() == b""


def test_hang_up_wakes_a_reader(pair):
    sock, _ = pair
    sock.block(5)
    ended = threading.Event()

    def read() -> None:
        assert sock.read() == b""
        ended.set()

    thread = threading.Thread(target=read)
    thread.start()
    sock.hang_up()
    assert ended.wait(5)
    thread.join(5)


def test_after_drop_everything_fails_and_nothing_raises_that_may_not(pair):
    sock, _ = pair
    sock.drop()
    sock.drop()
    sock.hang_up()
    with pytest.raises(ConnectionLost):
        sock.send(b"x", time.monotonic() + 1)
    with pytest.raises(ConnectionLost):
        sock.recv(time.monotonic() + 1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        sock.try_send(b"x")
    with pytest.raises(OSError, match="Bad file descriptor"):
        sock.write(b"x")


def test_block_and_write_bound_each_write(pair):
    sock, _ = pair
    sock.block(0.2)
    started = time.monotonic()
    with pytest.raises(BlockingIOError):
        sock.write(bytes(50_000_000))
    assert time.monotonic() - started < 0.2 + SLACK
    assert sock.try_send(b"x") == 0


def test_what_is_taken_piece_by_piece_is_written_whole():
    taken: list[bytes] = []

    class Sips:
        """A socket that takes three bytes at a time."""

        def send(self, data: bytes | memoryview, _flags: int) -> int:
            taken.append(bytes(data[:3]))
            return len(taken[-1])

    sock = Socket.__new__(Socket)
    sock._sock = Sips()
    sock._process = os.getpid()
    sock.write(b"FIN 0123")
    assert taken == [b"FIN", b" 01", b"23"]


def test_a_refused_connection_says_who(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(*listener.getsockname()[:2])
    with pytest.raises(ConnectError, match=str(address.port)):
        dial(address, time.monotonic() + 5)


def test_no_time_left_dials_nothing():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(ConnectError, match="no time left"):
            dial(Address(*listener.getsockname()[:2]), time.monotonic() - 1)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_an_address_that_never_answers_leaves_time_for_the_next(monkeypatch):
    """Of two addresses of one name the first may be a black hole."""
    from nsqsmart.net.resolving import Resolved

    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as hole,
        socket.create_server(("127.0.0.1", 0)) as good,
    ):
        # A full backlog: the kernel drops further SYNs.
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(hole.getsockname())
            fillers.append(filler)
        found = [Resolved(socket.AF_INET, each.getsockname()) for each in (hole, good)]
        monkeypatch.setattr(sockets, "resolve", lambda *_: found)
        # Had the first all of the time, there would be none for the second.
        sock = dial(Address("both", 1), time.monotonic() + 1)
        sock.drop()
        for filler in fillers:
            filler.close()
