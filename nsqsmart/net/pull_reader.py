"""A subscribed connection without a thread: the caller that wants messages reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Generic, Protocol, TypeVar

from nsqsmart.errors import ConnectionLost, NsqError, ServerError
from nsqsmart.net.connection import Connection
from nsqsmart.wire import commands
from nsqsmart.wire.answers import ACK_FAILED, decode_error
from nsqsmart.wire.deliveries import DeliveryDecoder
from nsqsmart.wire.frames import CLOSE_WAIT, ERROR, HEARTBEAT, Frame

M = TypeVar("M")


class Listener(Protocol):
    """What a pull reader reports.

    ``heard_at`` is when bytes came last (monotonic seconds): set before messages are made of them.
    """

    heard_at: float

    def on_refusal(self, error: ServerError) -> None:
        """A FIN, REQ or TOUCH came too late; the connection goes on."""

    def on_close_wait(self) -> None:
        """The server confirmed CLS: no message follows."""


class PullReader(Generic[M]):
    """Reads and writes in the caller's thread, which is the only one."""

    def __init__(
        self,
        connection: Connection,
        decoder: DeliveryDecoder[M],
        listener: Listener,
        write_timeout: float,
    ) -> None:
        self._connection = connection
        self._transport = connection.transport
        self._socket = connection.transport.socket
        self._decoder = decoder
        self._listener = listener
        self._write_timeout = write_timeout
        self._ended = False

    def receive(self, deadline: float) -> list[M] | None:
        """The messages of one read, None if nothing came before *deadline*.

        Heartbeats are answered. Raises ServerError for an error frame that ends the connection,
        ConnectionLost at its end, ProtocolError for what is no frame.
        """
        data = self._read(deadline)
        if data is None:
            return None
        if not data:
            raise ConnectionLost(f"{self._connection.address} closed the connection", sent=True)
        return self._take(data)

    def read_to_end(self, deadline: float) -> bool:
        """Say that nothing follows, and listen: whether the server has closed by *deadline*.

        Then it has carried out all that was sent. Messages that still come are dropped.
        """
        self._ended = True
        self._socket.end_sending()
        while monotonic() < deadline and (data := self._read(deadline)) is not None:
            if not data:
                return True
            self._take(data)
        return False

    def _read(self, deadline: float) -> bytes | None:
        try:
            return self._socket.read_by(deadline)
        except OSError as error:
            raise ConnectionLost(self._lost(error), sent=True) from error

    def _take(self, data: bytes) -> list[M]:
        self._listener.heard_at = monotonic()
        messages: list[M] = []
        for piece in self._transport.decode(data):
            found, others = self._decoder.feed(piece)
            messages += found
            for frame in others:
                self._on_frame(frame)
        return messages

    def send(self, data: bytes) -> None:
        """All of *data* within the write timeout; raises ConnectionLost."""
        if not self._socket.is_ours():
            raise ConnectionLost("the connection belongs to the parent process", sent=False)
        try:
            self._transport.send(data, monotonic() + self._write_timeout)
        except OSError as error:  # a timeout, or TLS that can encrypt no more
            raise ConnectionLost(self._lost(error), sent=True) from error
        except BaseException:
            # An interrupt: how much was sent is unknown, so nothing may follow it.
            self._socket.hang_up()
            raise

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What is received inside is put away inside.

        An interrupt in between ends the connection: what follows could not be understood.
        """
        try:
            yield
        except NsqError:
            raise
        except BaseException:
            if self._socket.taking:
                self._socket.hang_up()
            raise
        self._socket.taking = False

    def close(self) -> None:
        """End it for both sides."""
        self._connection.close()

    def drop(self) -> None:
        """Close the descriptor alone (in a forked child)."""
        self._connection.drop()

    def _on_frame(self, frame: Frame) -> None:
        if frame.data == HEARTBEAT:
            if not self._ended:
                self.send(commands.NOP)
        elif frame.type == ERROR:
            error = decode_error(frame.data, self._connection.transport.secret)
            if error.code not in ACK_FAILED:
                raise error
            self._listener.on_refusal(error)
        elif frame.data == CLOSE_WAIT:
            self._listener.on_close_wait()

    def _lost(self, error: Exception) -> str:
        return f"connection to {self._connection.address} lost: {error}"
