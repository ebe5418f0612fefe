"""What a connection still has to send.

Any thread queues frames, under any lock or none, and the thread that flushes sends them;
neither ever waits for the client. What a full socket does not take is sent by the loop, when the
client has made room.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from nsqsmart.embedded.nsqd.tcp.layers import Layers
from nsqsmart.embedded.serving.loop import Loop

Tap = Callable[[list[bytes]], list[bytes]]

_AT_ONCE = 256 * 1024
_WITHOUT_WAITING = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)


class SendQueue:
    """Frames waiting for one socket; a :class:`~nsqsmart.embedded.broker.consumer.FrameSink`.

    ``pending`` may be appended to directly. A client that takes nothing for ``stall_limit``
    seconds loses its connection.
    """

    def __init__(self, sock: socket.socket, loop: Loop, layers: Layers) -> None:
        self.pending: deque[bytes] = deque()
        self.stall_limit = 30.0
        self.tap: Tap | None = None
        self._sock = sock
        self._loop = loop
        self._layers = layers
        self._sending = threading.Lock()
        self._rest = b""
        self._stuck = False
        self._checking = False
        self._closed = False
        self._drained = threading.Event()
        self._drained.set()
        self._moved_at = 0.0
        self._holding = threading.Lock()  # guards the four below
        self._held: list[bytes] = []
        self._held_size = 0
        self._buffer = 0
        self._tick = 0.0

    def put(self, frames: Iterable[bytes]) -> None:
        """Queue *frames*."""
        self.pending.extend(frames)

    def buffer(self, size: int, period: float) -> None:
        """From now on hold messages back: *size* bytes, to the next tick of *period* seconds."""
        self._buffer = size if period > 0 else 0
        self._tick = period

    def deliver(self, frames: list[bytes], *, hold: bool) -> bool:
        """Queue messages; whether they are to be sent now (protocol#buffering)."""
        with self._holding:
            if not self._buffer:
                self.pending.extend(frames)
                return True
            begins = not self._held
            self._held += frames
            self._held_size += sum(map(len, frames))
            if hold and self._held_size < self._buffer:
                if begins:
                    self._schedule()
                return False
            self._move()
        return True

    def release(self) -> None:
        """Queue what is held back: something that is not held back follows."""
        if self._held:
            with self._holding:
                self._move()

    def _move(self) -> None:
        self.pending.extend(self._held)
        self._held = []
        self._held_size = 0

    def _schedule(self) -> None:
        now = time.monotonic()
        # The server's ticker goes on and on; a message comes somewhere between two ticks.
        due = (now // self._tick + 1) * self._tick

        def tick() -> None:
            self.release()
            self.flush()

        self._loop.call_at(due, tick)

    def end(self) -> None:
        """End the connection for both sides, without a frame."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def flush(self) -> None:
        """Send what is queued, as far as the socket takes it now."""
        # A thread that finds the lock taken leaves the frames to its holder, who looks again after
        # letting go of it: nothing is left behind, and the order is that of the queue.
        while (self.pending or self._rest) and not self._stuck:
            if not self._sending.acquire(blocking=False):
                return
            try:
                self._send_some()
            finally:
                self._sending.release()

    def finish(self) -> None:
        """Send what is queued in this thread, before the connection is closed."""
        with self._sending:
            while (self.pending or self._rest) and not self._stuck:
                self._send_some()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Nothing is sent meanwhile: for the moments in which the layers change."""
        with self._sending:
            yield
        self.flush()

    def wait_for_room(self, limit: int) -> bool:
        """Wait until at most *limit* frames are queued; False if the client takes nothing."""
        while len(self.pending) > limit and not self._closed:
            self._drained.clear()
            self.flush()
            if not self._stuck:
                continue
            if not self._drained.wait(self.stall_limit):
                return False
        return True

    def close(self) -> None:
        """The socket is about to be closed: stop watching it."""
        self._closed = True
        self._drained.set()
        if self._stuck:
            self._loop.forget(self._sock)

    def _send_some(self) -> None:
        """Send one piece; called with the lock."""
        data = self._rest or self._next_piece()
        if not data:
            return
        try:
            sent = self._sock.send(data, _WITHOUT_WAITING)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop()
            return
        self._rest = b"" if sent == len(data) else data[sent:]
        if self._rest:
            self._watch()

    def _next_piece(self) -> bytes:
        pending = self.pending
        if len(pending) == 1 and self.tap is None and self._layers.plain:
            return pending.popleft()
        frames: list[bytes] = []
        size = 0
        while pending and size < _AT_ONCE:
            frame = pending.popleft()
            frames.append(frame)
            size += len(frame)
        if self.tap is not None:
            frames = self.tap(frames)
        data = b"".join(frames)
        return data if self._layers.plain or not data else self._layers.outgoing(data)

    def _drop(self) -> None:
        """The client is gone: nothing will be sent any more."""
        self._rest = b""
        self.pending.clear()
        self._drained.set()

    # ---------------------------------------------------------------------------- a full socket

    def _watch(self) -> None:
        if self._closed:
            self._drop()
            return
        self._stuck = True
        self._moved_at = time.monotonic()
        self._loop.on_writable(self._sock, self._on_writable)
        if not self._checking:
            self._checking = True
            self._loop.call_at(self._moved_at + self.stall_limit, self._check_stall)

    def _on_writable(self) -> None:
        with self._sending:
            self._moved_at = time.monotonic()
            self._stuck = False
            self._loop.forget(self._sock)
            self._send_some()
        if not self._stuck:
            self._drained.set()
            self.flush()

    def _check_stall(self) -> None:
        """No byte taken for too long: the client is not reading."""
        if not self._stuck or self._closed:
            self._checking = False
            return
        due = self._moved_at + self.stall_limit
        if due <= time.monotonic():
            self._drop()
            self.end()
        else:
            self._loop.call_at(due, self._check_stall)
