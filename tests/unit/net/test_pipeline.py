"""A pipeline's watch over what is unanswered, on a ticker that the test turns."""

from __future__ import annotations

import socket
import threading
from math import inf
from time import monotonic
from types import SimpleNamespace

from nsqsmart.config import ProducerConfig
from nsqsmart.errors import ConnectError, ConnectionLost
from nsqsmart.names import Address
from nsqsmart.net.connection import Connection
from nsqsmart.net.pipeline import Pipeline
from nsqsmart.net.sockets import Socket
from nsqsmart.net.transport import Transport
from nsqsmart.wire.frames import OK_FRAME
from nsqsmart.wire.identify import Grant

PEER = Address("peer", 4150)


class Sink:
    def __init__(self) -> None:
        self.errors: list[tuple[object, bool]] = []

    def on_error(self, item: object, error: ConnectionLost) -> None:
        self.errors.append((item, error.sent))


def watched() -> tuple[Pipeline, Sink, list]:
    sink, due = Sink(), []
    ticker = SimpleNamespace(at=lambda when, call: due.append((when, call)))
    return Pipeline(("127.0.0.1", 4150), sink, ticker), sink, due


class Meddler:
    """While one thread looks at its limit, another item comes."""

    def __init__(self, pipeline: Pipeline, limit: float, other: object) -> None:
        self._pipeline, self._limit, self._other = pipeline, limit, other

    @property
    def limit(self) -> float:
        other, self._other = self._other, None
        if other is not None:
            self._pipeline.submit(other, b"other")
        return self._limit


def test_who_comes_while_it_looks_is_watched_too():
    pipeline, sink, due = watched()
    now = monotonic()
    early = SimpleNamespace(limit=now + 50)
    meddler = Meddler(pipeline, now + 100, None)
    pipeline.submit(meddler, b"x")
    (_, check) = due.pop()
    meddler._other = early
    check()
    assert min(when for when, _ in due) == early.limit
    assert pipeline._check_at == early.limit
    assert sink.errors == []


def test_nothing_is_watched_where_nothing_waits():
    pipeline, _, due = watched()
    pipeline._check()
    assert (due, pipeline._check_at) == ([], inf)


def test_what_is_overdue_before_there_is_a_connection_was_not_sent():
    pipeline, sink, due = watched()
    late = SimpleNamespace(limit=monotonic() - 1)
    pipeline.submit(late, b"x")
    due.pop()[1]()
    assert pipeline.over
    assert sink.errors == [(late, False)]


def test_while_a_thread_sends_only_that_one_takes_what_has_gathered():
    """Two that took one item would send it and give it back."""
    pipeline, sink, _ = watched()
    item = SimpleNamespace(limit=monotonic() + 50)
    pipeline.submit(item, b"x")
    with pipeline._lock:
        pipeline.retire()
        assert sink.errors == []
    pipeline.flush()
    assert sink.errors == [(item, False)]


def test_an_item_that_is_being_sent_is_watched_at_every_moment():
    class Leaving(list):
        def __delitem__(self, place: slice) -> None:
            assert list(pipeline._waiting) == self[place]
            super().__delitem__(place)

    pipeline, _, _ = watched()
    pipeline._gathered = Leaving()
    pipeline.submit(SimpleNamespace(limit=monotonic() + 50), b"x")
    wire = SimpleNamespace(layers=(), socket=SimpleNamespace(write=lambda data: None))
    pipeline._send(SimpleNamespace(transport=wire))
    assert (len(pipeline._gathered), len(pipeline._waiting)) == (0, 1)


def test_who_comes_when_the_dial_has_failed_is_told_why():
    refused = ConnectError("a web server", permanent=True)
    told = []

    def fail() -> Connection:
        raise refused

    sink = SimpleNamespace(on_error=lambda item, error: told.append(error))
    pipeline = Pipeline(PEER, sink, SimpleNamespace(at=lambda when, call: None))
    pipeline.start(fail, ProducerConfig())
    pipeline.join()
    pipeline.submit(SimpleNamespace(limit=monotonic() + 50), b"x")
    assert told == [refused]


def test_an_answer_that_nobody_asked_for_is_not_that_of_who_comes_next():
    """It is there before the next command leaves: the server has not even seen that."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
    now = monotonic()
    first, second = SimpleNamespace(limit=now + 50), SimpleNamespace(limit=now + 60)
    stored, ended = [], threading.Event()

    class Generous(Sink):
        def on_stored(self, items: list[object]) -> None:
            stored.extend(items)
            if items == [first]:
                there.sendall(OK_FRAME)
                pipeline.submit(second, b"second")

        def on_error(self, item: object, error: ConnectionLost) -> None:
            super().on_error(item, error)
            ended.set()

    sink = Generous()
    pipeline = Pipeline(PEER, sink, SimpleNamespace(at=lambda when, call: None))
    connection = Connection(PEER, Transport(Socket(here, PEER)), Grant(), 1024)
    with there:
        pipeline.start(lambda: connection, ProducerConfig())
        pipeline.submit(first, b"first")
        assert there.recv(100) == b"first"
        there.sendall(OK_FRAME)
        assert ended.wait(10)
        pipeline.join()
        assert there.recv(100) == b""
    assert stored == [first]
    assert sink.errors == [(second, False)]
