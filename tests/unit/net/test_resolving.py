"""A name that is slow to resolve costs no more than the time there is."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest

from nsqsmart.errors import ConnectError
from nsqsmart.names import Address
from nsqsmart.net import resolving
from nsqsmart.net.resolving import resolve
from tests.helpers import eventually

FOUND = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 4150))]


class Names:
    """Stands for getaddrinfo: numeric addresses are real, names are answered as told."""

    def __init__(self, answer) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self._real = socket.getaddrinfo

    def __call__(self, host, port, *args, **options):
        if options.get("flags", 0) & socket.AI_NUMERICHOST:
            return self._real(host, port, *args, **options)
        self.asked.append(host)
        return self.answer()


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    monkeypatch.setattr(resolving, "_known", {})
    monkeypatch.setattr(resolving, "_open", {})


def names(monkeypatch, answer) -> Names:
    made = Names(answer)
    monkeypatch.setattr(socket, "getaddrinfo", made)
    return made


def soon() -> float:
    return time.monotonic() + 5


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_numeric_address_asks_nobody_and_starts_no_thread(monkeypatch, host):
    asked = names(monkeypatch, lambda: FOUND)
    monkeypatch.setattr(resolving, "spawn", lambda *args: pytest.fail("a thread"))
    assert resolve(Address(host, 4150), soon())[0].sockaddr[:2] == (host, 4150)
    assert asked.asked == []


def test_a_resolver_that_hangs_is_left_at_the_deadline(monkeypatch):
    released = threading.Event()

    def hang():
        released.wait(30)
        return FOUND

    asked = names(monkeypatch, hang)
    started = time.monotonic()
    with pytest.raises(ConnectError, match="not resolved in time"):
        resolve(Address("slow", 4150), started + 0.2)
    assert time.monotonic() - started < 5
    released.set()
    eventually(lambda: not [t for t in threading.enumerate() if "resolve-slow" in t.name])
    assert asked.asked == ["slow"]


def hanging(monkeypatch) -> tuple[Names, threading.Event]:
    """A resolver that answers when it is told to."""
    released = threading.Event()

    def hang():
        assert released.wait(30)
        return FOUND

    return names(monkeypatch, hang), released


def resolvers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "resolve-slow" in thread.name]


def test_who_comes_while_a_name_is_asked_for_waits_for_the_same_thread(monkeypatch):
    asked, released = hanging(monkeypatch)
    for _ in range(20):
        with pytest.raises(ConnectError, match="not resolved in time"):
            resolve(Address("slow", 4150), time.monotonic() + 0.01)
    assert len(resolvers()) == 1
    found = []
    waiting = threading.Thread(target=lambda: found.append(resolve(Address("slow", 4150), soon())))
    waiting.start()
    eventually(lambda: len(resolving._open[os.getpid(), ("slow", 4150)].askers) == 21)
    released.set()
    waiting.join(5)
    assert found[0][0].sockaddr == ("127.0.0.1", 4150)
    assert asked.asked == ["slow"]
    eventually(lambda: not resolvers())


def test_an_answer_that_comes_too_late_for_one_call_serves_the_next(monkeypatch):
    asked, released = hanging(monkeypatch)
    with pytest.raises(ConnectError):
        resolve(Address("slow", 4150), time.monotonic() + 0.01)
    released.set()
    eventually(lambda: not resolvers())
    assert resolve(Address("slow", 4150), soon())
    assert asked.asked == ["slow"]


def test_a_question_that_is_old_is_asked_anew(monkeypatch):
    """The resolver works again, but the thread that asked it before still waits."""
    monkeypatch.setattr(resolving, "_ASK_ANEW", 0.0)
    asked, released = hanging(monkeypatch)
    for _ in range(2):
        with pytest.raises(ConnectError):
            resolve(Address("slow", 4150), time.monotonic() + 0.01)
    released.set()
    eventually(lambda: not resolvers())
    assert asked.asked == ["slow", "slow"]


def test_a_child_does_not_wait_for_a_thread_of_its_parent(monkeypatch):
    asked, released = hanging(monkeypatch)
    with pytest.raises(ConnectError):
        resolve(Address("slow", 4150), time.monotonic() + 0.01)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        with pytest.raises(ConnectError):
            resolve(Address("slow", 4150), time.monotonic() + 0.01)
    assert len(asked.asked) == 2
    released.set()
    eventually(lambda: not resolvers())


def test_an_answer_is_remembered_for_a_minute(monkeypatch):
    asked = names(monkeypatch, lambda: FOUND)
    now = 1000.0
    monkeypatch.setattr(resolving, "monotonic", lambda: now)
    for _ in range(3):
        assert resolve(Address("name", 4150), now + 5)[0].sockaddr == ("127.0.0.1", 4150)
    assert asked.asked == ["name"]
    now += 61
    resolve(Address("name", 4150), now + 5)
    assert asked.asked == ["name", "name"]


@pytest.mark.parametrize("error", [socket.gaierror(-2, "unknown"), UnicodeError("too long")])
def test_a_name_that_does_not_exist_is_a_connect_error_and_not_remembered(monkeypatch, error):
    def refuse():
        raise error

    asked = names(monkeypatch, refuse)
    for _ in range(2):
        with pytest.raises(ConnectError, match="cannot be resolved"):
            resolve(Address("absent", 4150), soon())
    assert len(asked.asked) == 2


def test_where_no_thread_can_start_it_is_asked_in_place(monkeypatch):
    def no_thread(*_args):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(resolving, "spawn", no_thread)
    names(monkeypatch, lambda: FOUND)
    assert resolve(Address("name", 4150), soon())


def test_names_are_forgotten_before_they_fill_the_memory(monkeypatch):
    monkeypatch.setattr(resolving, "_MAX_NAMES", 3)
    names(monkeypatch, lambda: FOUND)
    for number in range(10):
        resolve(Address(f"n{number}", 4150), soon())
    assert len(resolving._known) <= 3
