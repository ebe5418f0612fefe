"""All sockets of a client are ended at once, and none is kept alive."""

from __future__ import annotations

import socket
import threading
from queue import SimpleQueue
from time import monotonic

import pytest

from nsqsmart.errors import ConnectError, DiscoveryError
from nsqsmart.names import Address
from nsqsmart.net.cancel_scope import CancelScope
from nsqsmart.net.http.session import HttpSession
from nsqsmart.net.sockets import dial
from tests.helpers import eventually
from tests.peers import Peer, Talk


def test_who_waits_is_woken_and_who_comes_later_is_refused():
    scope = CancelScope()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        scope.add(ours)
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.append(ours.recv(1)))
        thread.start()
        scope.cut()
        thread.join(5)
        assert got == [b""]
        assert theirs.recv(1) == b""
        with pytest.raises(ConnectionAbortedError, match="closed"):
            scope.add(theirs)
    scope.cut()


def test_who_waits_for_an_answer_gets_that_it_is_over():
    scope, answers = CancelScope(), SimpleQueue()
    scope.add(answers)
    scope.cut()
    assert isinstance(answers.get(timeout=5), ConnectionAbortedError)


def test_none_is_kept_alive():
    scope = CancelScope()
    for _ in range(20):
        with socket.socket() as sock:
            scope.add(sock)
        del sock
    assert len(scope._held) == 1


def test_whoever_connects_learns_it():
    """The backlog is full: the kernel does not answer."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = Address(*listener.getsockname()[:2])
        crowd = [socket.socket() for _ in range(4)]
        try:
            for each in crowd:
                each.setblocking(False)
                each.connect_ex(address)
            scope = CancelScope()
            failed: list[ConnectError] = []

            def connect() -> None:
                with pytest.raises(ConnectError) as caught:
                    dial(address, monotonic() + 30, scope=scope)
                failed.append(caught.value)

            thread = threading.Thread(target=connect)
            thread.start()
            eventually(lambda: scope._held)
            assert thread.is_alive()
            scope.cut()
            thread.join(5)
            assert failed
        finally:
            for each in crowd:
                each.close()


def test_a_request_under_way_ends():
    scope = CancelScope()
    failed: list[DiscoveryError] = []

    def ask() -> None:
        with HttpSession(scope=scope) as session, pytest.raises(DiscoveryError) as caught:
            session.get("http://{}:{}/".format(*peer.address), monotonic() + 30)
        failed.append(caught.value)

    asked = threading.Event()

    def deaf(talk: Talk) -> None:
        talk.line()
        asked.set()
        talk.stall()

    with Peer(deaf) as peer:
        thread = threading.Thread(target=ask)
        thread.start()
        assert asked.wait(5)
        scope.cut()
        thread.join(5)
        assert failed


def test_a_forked_child_closes_descriptors_and_says_nothing():
    here, there = socket.socketpair()
    scope = CancelScope()
    answers: SimpleQueue[object] = SimpleQueue()
    scope.add(here)
    scope.add(answers)
    twin = here.dup()
    with scope._lock:
        scope.drop()
    assert here.fileno() == -1
    assert answers.empty()
    with twin, there:
        twin.sendall(b"the parent's lives on")
        assert there.recv(100)
