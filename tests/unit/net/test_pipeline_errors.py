"""A pipeline after a refusal: nothing more is sent, and every item gets an outcome."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from math import inf
from types import SimpleNamespace

import pytest

from nsqsmart.config import ProducerConfig
from nsqsmart.errors import ConnectionLost, ServerError, TransportError
from nsqsmart.names import Address
from nsqsmart.net.connection import Connection
from nsqsmart.net.pipeline import Pipeline
from nsqsmart.net.sockets import Socket
from nsqsmart.net.transport import Transport
from nsqsmart.wire.frames import ERROR, OK_FRAME, encode_frame
from nsqsmart.wire.identify import Grant
from tests.helpers import eventually

ADDRESS = Address("127.0.0.1", 4150)
REFUSAL = encode_frame(ERROR, b"E_BAD_TOPIC no")


class Item(SimpleNamespace):
    """One that is known by its name."""

    limit = inf


class Sink:
    """Notes of what became of each."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.errors: list[tuple[str, TransportError]] = []

    def on_stored(self, items: list[Item]) -> None:
        self.stored += [item.name for item in items]

    def on_error(self, item: Item, error: TransportError) -> None:
        self.errors.append((item.name, error))


class Line:
    """A pipeline that is connected, its sink, and the server's end."""

    def __init__(self) -> None:
        ours, self.server = socket.socketpair()
        self.server.settimeout(10)
        connection = Connection(ADDRESS, Transport(Socket(ours, ADDRESS)), Grant(), 1000)
        self.sink = Sink()
        self.pipeline: Pipeline = Pipeline(ADDRESS, self.sink, SimpleNamespace(at=None))
        dialled = threading.Event()

        def dial() -> Connection:
            dialled.set()
            return connection

        self.pipeline.start(dial, ProducerConfig())
        assert dialled.wait(10)
        eventually(lambda: self.pipeline._connection)

    def submit(self, name: str) -> None:
        self.pipeline.submit(Item(name=name), name.encode())

    def hear(self, count: int) -> bytes:
        return self.server.recv(count, socket.MSG_WAITALL)


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.pipeline.break_off(ConnectionLost("over"))
    made.pipeline.join()
    made.server.close()


def test_after_a_refusal_nothing_more_leaves(line):
    line.submit("a")
    assert line.hear(1) == b"a"
    line.submit("b")  # gathers behind the one that is unanswered
    line.server.sendall(REFUSAL)
    eventually(lambda: len(line.sink.errors) == 2)
    line.submit("c")
    (first, refused), (second, given_back), (third, too_late) = line.sink.errors
    assert (first, second, third) == ("a", "b", "c")
    assert isinstance(refused, ServerError)
    assert refused.code == "E_BAD_TOPIC"
    assert not given_back.sent
    assert not too_late.sent
    line.pipeline.join()
    assert line.hear(1) == b""
    assert line.sink.stored == []


def test_who_is_unanswered_when_another_is_refused_is_waited_for(line):
    line.submit("a")
    assert line.hear(1) == b"a"
    line.submit("b")
    line.submit("c")
    line.server.sendall(OK_FRAME)
    assert line.hear(2) == b"bc"
    line.server.sendall(REFUSAL)
    eventually(lambda: line.sink.errors)
    line.server.sendall(OK_FRAME)
    eventually(lambda: line.sink.stored == ["a", "c"])
    line.pipeline.join()
    assert [name for name, _ in line.sink.errors] == ["b"]
