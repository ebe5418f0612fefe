"""A publishing connection on which no command waits for the answer to the one before.

Self-clocked: a command leaves at once when nothing is unanswered; otherwise it gathers with
others, and they leave together when answers come, or when there are enough of them. No timer adds
delay, and one thread per connection reads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Generic, Protocol, TypeVar

from nsqsmart.config import ClientConfig
from nsqsmart.errors import ConnectionLost, ProtocolError, ResponseTimeout, TransportError
from nsqsmart.names import Address
from nsqsmart.net.connection import Connection
from nsqsmart.net.threads import Thread, spawn
from nsqsmart.net.ticker import Ticker
from nsqsmart.wire import commands
from nsqsmart.wire.answers import decode_error
from nsqsmart.wire.frames import (
    ERROR,
    HEARTBEAT,
    MAX_ANSWER,
    MESSAGE,
    OK,
    OK_FRAME,
    Frame,
    FrameDecoder,
)

_ENOUGH = 64
_LAST_WORD = 1.0  # seconds


class Item(Protocol):
    """An item that waits for an answer, overdue at ``limit`` (monotonic seconds)."""

    limit: float


T = TypeVar("T", bound=Item)


class Sink(Protocol[T]):
    """Receives the outcome of every item, exactly once, on the reader's thread."""

    def on_stored(self, items: list[T]) -> None:
        """A plain OK came for each item."""

    def on_answer(self, item: T, data: bytes) -> None:
        """A success other than a plain OK came."""

    def on_error(self, item: T, error: TransportError) -> None:
        """It was refused, or no answer can come any more; ``sent`` tells whether it was sent."""


class Pipeline(Generic[T]):
    """Commands to one nsqd and their answers, matched by order.

    After an error frame nothing more is sent: what is unanswered is waited for, then the connection
    ends. Answers cannot be told apart, so an order once in doubt is not trusted (decisions#9).
    Nor is anything sent after a command that an interrupt cut off.
    """

    def __init__(self, address: Address, sink: Sink[T], ticker: Ticker) -> None:
        self.address = address
        self.over = False
        """Whether no more commands are taken."""
        self.expires_at = inf
        self._sink = sink
        self._ticker = ticker
        self._lock = threading.Lock()  # the send lock
        self._interrupted = self._ended = False
        self._gathered: list[tuple[T, bytes]] = []
        self._waiting: deque[tuple[T, bytes]] = deque()
        self._connection: Connection | None = None
        self._check_at = inf
        self._why: TransportError | None = None
        self._thread: Thread | None = None

    def start(self, dial: Callable[[], Connection], config: ClientConfig) -> None:
        """Dial and read on a thread of its own; commands may be submitted at once."""
        self._thread = spawn(f"async-{self.address}", lambda: self._run(dial, config))

    def submit(self, item: T, command: bytes) -> None:
        """Send *command*, now or with others; the sink hears of *item*.

        An interrupt that it raises ends the pipeline, for what was sent is not known.
        """
        self._gathered.append((item, command))
        try:
            self._see_off(item)
        except BaseException:
            self._interrupted = True
            self.break_off(ConnectionLost(f"a send to {self.address} was interrupted", sent=True))
            raise

    def _see_off(self, item: T) -> None:
        """Send the gathered commands now, or when answers come."""
        if self.over:
            self._give_back()
            return
        if item.limit < self._check_at:
            self._check_at = item.limit
            self._ticker.at(item.limit, self._check)
        # First appended, then looked; the reader takes away first, and looks then.
        if not self._waiting or len(self._gathered) >= _ENOUGH:
            self.flush()

    def flush(self) -> None:
        """Send what has gathered, or give it back, unless another thread does: that looks again.

        That may be this thread itself: a signal handler publishes in the middle of a send.
        """
        while self._gathered and not self.over and self._connection:
            if not self._lock.acquire(blocking=False):
                return
            try:
                if self._has_more_answers(self._connection):
                    return  # than questions, it seems: the reader looks at them, and then flushes
                self._send(self._connection)
            finally:
                self._lock.release()
        if self.over:
            self._give_back()

    def retire(self) -> None:
        """Take no more; end when all is answered."""
        self.over = True
        self._give_back()
        if not self._waiting and self._connection:
            self._connection.transport.socket.hang_up()

    def break_off(self, why: TransportError) -> None:
        """End now: what is unanswered will not be answered."""
        self._why = self._why or why
        self.over = True
        if self._connection:
            self._connection.transport.socket.hang_up()
        else:
            # The dial may take longer than they have.
            self._give_back()

    def join(self) -> None:
        """Wait for the thread, unless it is the caller."""
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join()

    def drop(self) -> None:
        """In a forked child: close the descriptor alone."""
        if self._connection:
            self._connection.drop()

    # -------------------------------------------------------------------------- the sending half

    def _send(self, connection: Connection) -> None:
        """Under the send lock; what is left at the end goes back, and is not sent."""
        if self.over:
            return
        count = len(self._gathered)
        batch = self._gathered[:count]
        # In both, and never in neither: _check() sees each. No interrupt comes between two lines
        # without a call; other threads take from the first only with the lock.
        self._waiting += batch
        del self._gathered[:count]
        data = b"".join([command for _, command in batch])
        transport = connection.transport
        try:
            # The answers to all that may be unanswered fit into the kernel's buffers: the server
            # never waits for us to read, so the reader may wait here, too.
            transport.socket.write(transport.encode(data) if transport.layers else data)
        except (OSError, ConnectionLost):
            transport.socket.hang_up()

    def _has_more_answers(self, connection: Connection) -> bool:
        """Whether something has come while nothing is unanswered, which no later item may get."""
        socket = connection.transport.socket
        return not self._waiting and not socket.is_quiet() and bool(socket.poll(0))

    def _answer_heartbeat(self, connection: Connection) -> None:
        if not self._lock.acquire(blocking=False):
            return  # whatever is being sent is an answer
        try:
            transport = connection.transport
            transport.socket.write(transport.encode(commands.NOP))
        except (OSError, ConnectionLost):
            connection.transport.socket.hang_up()
        finally:
            self._lock.release()

    def _give_back(self, why: str = "takes no more") -> None:
        """Fail the gathered items, which were not sent; a thread that has the lock does it then."""
        # It may have failed to connect just now: for good, so no thread tries again.
        lost = self._why or ConnectionLost(f"{self.address} {why}")
        error = ConnectionLost(str(lost)) if lost.sent else lost
        try:
            while self._gathered and (self._ended or self._lock.acquire(blocking=False)):
                try:
                    item, _ = self._gathered.pop(0)
                except IndexError:
                    return
                finally:
                    if not self._ended:
                        self._lock.release()
                self._sink.on_error(item, error)
        except BaseException:
            self._interrupted = True  # the lock may be left taken
            raise

    def _check(self) -> None:
        """On the ticker: end when an answer is overdue."""
        now = monotonic()
        # Before looking: a caller whose item is not seen below asks for another look.
        self._check_at = inf
        # In the order in which they move, or one might be seen in neither.
        limits = [item.limit for item, _ in [*self._gathered[:], *self._waiting.copy()]]
        first = min(limits, default=inf)
        if first <= now:
            self.break_off(ResponseTimeout(f"{self.address} did not answer in time"))
        elif first < self._check_at:
            self._check_at = first
            self._ticker.at(first, self._check)

    # -------------------------------------------------------------------------- the reading half

    def _run(self, dial: Callable[[], Connection], config: ClientConfig) -> None:
        error: TransportError = ConnectionLost(f"the reader of {self.address} failed", sent=True)
        try:
            error = self._talk(dial(), config)
        except TransportError as failure:
            error = failure
        except OSError as failure:
            error = ConnectionLost(f"connection to {self.address} lost: {failure}", sent=True)
        finally:
            if self._connection:
                self._connection.transport.socket.hang_up()
            self._end(self._why or error)
            if self._connection:
                self._connection.transport.socket.drop()

    def _talk(self, connection: Connection, config: ClientConfig) -> TransportError:
        connection.transport.socket.block(config.write_timeout)
        self.expires_at = connection.expires_at
        self._connection = connection
        self.flush()
        return self._read(connection, config.max_frame_size)

    def _read(self, connection: Connection, max_frame_size: int) -> TransportError:
        socket = connection.transport.socket
        plain = not connection.transport.layers
        decoder = FrameDecoder(min(max_frame_size, MAX_ANSWER))
        while not (self.over and not self._waiting):
            data = socket.read()
            if not data:
                return ConnectionLost(f"{self.address} closed the connection", sent=True)
            count, rest = divmod(len(data), len(OK_FRAME))
            if plain and not rest and not decoder.buffered and data == OK_FRAME * count:
                self._stored(count)
            else:
                for piece in connection.transport.decode(data):
                    for frame in decoder.feed(piece):
                        self._on_frame(connection, frame)
            if self._gathered:
                self.flush()
        return ConnectionLost(f"connection to {self.address} was retired")

    def _stored(self, count: int) -> None:
        take, known = self._waiting.popleft, min(count, len(self._waiting))
        self._sink.on_stored([take()[0] for _ in range(known)])
        if known < count:
            raise ProtocolError(f"{self.address} answered more than was asked")

    def _on_frame(self, connection: Connection, frame: Frame) -> None:
        if frame.data == HEARTBEAT:
            self._answer_heartbeat(connection)
        elif frame.type == MESSAGE:
            raise ProtocolError(f"{self.address} sent a message without a subscription")
        elif frame.type != ERROR and frame.data == OK:
            self._stored(1)
        elif not self._waiting:
            raise ProtocolError(f"{self.address} answered more than was asked")
        elif frame.type == ERROR:
            self.over = True
            error = decode_error(frame.data, connection.transport.secret)
            self._sink.on_error(self._waiting.popleft()[0], error)
            self._give_back("refused something else")
        else:
            self._sink.on_answer(self._waiting.popleft()[0], frame.data)

    def _end(self, error: TransportError) -> None:
        """Fail every item that is left: the unanswered ones, and those that were not sent."""
        self._why = error
        self.over = True
        # A thread that sends ends soon: the socket is shut. An interrupted one may have left the
        # lock taken.
        if self._lock.acquire(timeout=_LAST_WORD if self._interrupted else -1):
            self._lock.release()
        self._ended = True  # none sends any more
        lost = error
        if not error.sent:
            lost = ConnectionLost(str(error), sent=True)
        while self._waiting:
            self._sink.on_error(self._waiting.popleft()[0], lost)
        self._give_back()
