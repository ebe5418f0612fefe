"""What a connection has to send, and what of it is held back (protocol#buffering)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from nsqsmart.embedded.nsqd.tcp.layers import Layers
from nsqsmart.embedded.nsqd.tcp.outbox import SendQueue
from tests.helpers import eventually


class Loop:
    """Calls when told, not when it is time."""

    def __init__(self) -> None:
        self.due: list = []

    def call_at(self, due, callback) -> None:
        self.due.append(callback)

    def tick(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    mine, theirs = socket.socketpair()
    theirs.setblocking(False)
    with mine, theirs:
        yield mine, theirs


@pytest.fixture
def outbox(ends, loop) -> SendQueue:
    made = SendQueue(ends[0], loop, Layers())
    made.buffer(100, 0.25)
    return made


def came(ends) -> bytes:
    try:
        return ends[1].recv(4096)
    except BlockingIOError:
        return b""


def test_messages_wait_for_the_next_tick(outbox, loop, ends):
    assert not outbox.deliver([b"one"], hold=True)
    assert not outbox.deliver([b"two"], hold=True)
    outbox.flush()
    assert came(ends) == b""
    assert len(loop.due) == 1
    loop.tick()
    assert came(ends) == b"onetwo"
    assert not outbox.deliver([b"three"], hold=True)
    assert len(loop.due) == 1


def test_a_full_buffer_leaves_at_once(outbox, ends):
    assert not outbox.deliver([b"x" * 60], hold=True)
    assert outbox.deliver([b"y" * 40], hold=True)
    outbox.flush()
    assert came(ends) == b"x" * 60 + b"y" * 40


def test_a_client_that_can_take_no_more_gets_what_there_is(outbox, ends):
    assert not outbox.deliver([b"one"], hold=True)
    assert outbox.deliver([b"two"], hold=False)
    outbox.flush()
    assert came(ends) == b"onetwo"


def test_a_response_takes_the_messages_before_it_along(outbox, loop, ends):
    outbox.deliver([b"one"], hold=True)
    outbox.release()
    outbox.put([b"OK"])
    outbox.flush()
    assert came(ends) == b"oneOK"
    loop.tick()
    assert came(ends) == b""


@pytest.mark.parametrize(("size", "period"), [(0, 0.25), (100, -0.001), (100, 0)])
def test_without_a_buffer_nothing_waits(outbox, ends, size, period):
    outbox.buffer(size, period)
    assert outbox.deliver([b"one"], hold=True)
    outbox.flush()
    assert came(ends) == b"one"


class Noting:
    """A lock that says when a thread waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.wanted = threading.Event()

    def acquire(self, *, blocking: bool = True) -> bool:
        if blocking:
            self.wanted.set()
        return self._lock.acquire(blocking=blocking)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_error: object) -> None:
        self.release()


def test_the_last_frame_leaves_though_another_thread_was_sending(ends, loop):
    """Why a connection ends must not be lost with it."""

    class Slow:
        """While it sends, the session fails, and closes."""

        def send(self, data: bytes, _flags: int) -> int:
            if data == b"message":
                outbox.put([b"error"])
                outbox.flush()
                session.start()
                eventually(lambda: outbox._sending.wanted.is_set() or not session.is_alive())
            return ends[0].send(data)

    def close() -> None:
        outbox.finish()
        ends[0].close()

    outbox = SendQueue(Slow(), loop, Layers())
    outbox._sending = Noting()
    session = threading.Thread(target=close)
    outbox.put([b"message"])
    outbox.flush()
    session.join(10)
    assert came(ends) == b"messageerror"
