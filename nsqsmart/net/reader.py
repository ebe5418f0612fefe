"""The reading half of a subscribed connection: blocks in recv, and in nothing else."""

from __future__ import annotations

from time import monotonic
from typing import Generic, Protocol, TypeVar

from nsqsmart.errors import ConnectionLost, NsqError, ProtocolError, ServerError
from nsqsmart.names import Address
from nsqsmart.net.connection import Connection
from nsqsmart.net.transport import Transport
from nsqsmart.net.write_buffer import WriteBuffer
from nsqsmart.policy.surplus import Surplus
from nsqsmart.wire.answers import ACK_FAILED, decode_error
from nsqsmart.wire.deliveries import DeliveryDecoder
from nsqsmart.wire.frames import CLOSE_WAIT, ERROR, HEARTBEAT, Frame

M = TypeVar("M")

# Above this much of a frame still to come, one call that waits for all of it is cheaper.
_LARGE = 8 * 1024
_MOST_AT_ONCE = 1024 * 1024


class Sink(Protocol[M]):
    """What a reader reports; called on its thread, so it may not block.

    ``heard_at`` is when bytes came last, in monotonic seconds: the check for silence reads it.
    """

    heard_at: float

    def on_messages(self, messages: list[M]) -> None:
        """Messages came, in this order."""

    def on_refusal(self, error: ServerError) -> None:
        """A FIN, REQ or TOUCH came too late; the connection goes on."""

    def on_close_wait(self) -> None:
        """The server confirmed CLS: no message follows."""


class Reader(Generic[M]):
    """Reads until the connection ends.

    ``received`` counts messages; this reader is its only writer.
    """

    def __init__(
        self,
        connection: Connection,
        decoder: DeliveryDecoder[M],
        write_buffer: WriteBuffer,
        sink: Sink[M],
    ) -> None:
        self._connection = connection
        self._decoder = decoder
        self._write_buffer = write_buffer
        self._sink = sink
        self._surplus = Surplus(connection.grant.msg_timeout)
        self.received = 0

    def run(self) -> NsqError:
        """Read until the end; the answer says why it ended."""
        address = self._connection.address
        socket = self._connection.transport.socket
        try:
            self._read_all(self._connection.transport)
        except OSError as error:
            return ConnectionLost(f"connection to {address} lost: {error}", sent=True)
        except NsqError as error:
            return error
        finally:
            self._write_buffer.break_off()
            socket.drop()
        return ConnectionLost(f"{address} closed the connection", sent=True)

    def _read_all(self, transport: Transport) -> None:
        """To the end; the calls between two reads are as few as can be, for each is latency."""
        read, tail, sink = transport.socket.read, self._decoder.tail, self._sink
        now = sink.heard_at  # its own: the sink's may be moved while a handler runs here
        if transport.layers:
            while data := read():
                before, sink.heard_at = now, (now := monotonic())
                for piece in transport.decode(data):
                    self._take(piece, before)
            return
        while data := self._read_large() if tail.size and tail.missing > _LARGE else read():
            before, sink.heard_at = now, (now := monotonic())
            self._take(data, before)

    def _read_large(self) -> bytes:
        missing = min(self._decoder.tail.missing, _MOST_AT_ONCE)
        return self._connection.transport.socket.read_exactly(missing)

    def _take(self, data: bytes, heard_before: float) -> None:
        messages, others = self._decoder.feed(data)
        if messages:
            came = len(messages)
            self.received += came
            if self.received - self._write_buffer.settled > self._write_buffer.asked:
                self._check_surplus(came, heard_before)
            self._sink.on_messages(messages)
        for frame in others:
            self._on_frame(frame)

    def _check_surplus(self, came: int, heard_before: float) -> None:
        """Raise ProtocolError if the server ignores RDY: what it sends would fill the memory."""
        asked, unanswered = self._write_buffer.asked, self.received - self._write_buffer.settled
        now = self._sink.heard_at
        if self._surplus.is_too_much(asked, unanswered - came, unanswered, heard_before, now):
            raise ignores_rdy(self._connection.address, asked, unanswered)

    def _on_frame(self, frame: Frame) -> None:
        if frame.data == HEARTBEAT:
            self._write_buffer.answer_heartbeat()
        elif frame.type == ERROR:
            error = decode_error(frame.data, self._connection.transport.secret)
            if error.code not in ACK_FAILED:
                raise error
            self._sink.on_refusal(error)
        elif frame.data == CLOSE_WAIT:
            self._sink.on_close_wait()


class RdyIgnored(ProtocolError):
    """An nsqd has sent more than it was asked for."""


def ignores_rdy(nsqd: Address, asked: int, unanswered: int) -> RdyIgnored:
    """*nsqd* has so many messages unanswered, of *asked* at a time at most."""
    return RdyIgnored(
        f"{nsqd} ignores RDY: it was asked for {asked} messages at a time at most, and "
        f"{unanswered} are unanswered"
    )
