"""One blocking socket to one nsqd with one handshake.

A lent one belongs to one publishing caller at a time, which alone writes and reads. Of a subscribed
one a :class:`nsqsmart.net.reader.Reader` takes the transport over. Anything but a clean exchange
leaves it *spoiled*, and the pool retires it: a late answer must never be taken for another's.
"""

from __future__ import annotations

import math
from time import monotonic

from nsqsmart.config import ClientConfig
from nsqsmart.errors import (
    ConnectError,
    ConnectionLost,
    ProtocolError,
    ResponseTimeout,
    ServerError,
    TransportError,
)
from nsqsmart.names import Address, Dialect
from nsqsmart.net.cancel_scope import CancelScope
from nsqsmart.net.handshake import Greeting, shake_hands
from nsqsmart.net.sockets import Socket, dial
from nsqsmart.net.transport import Transport
from nsqsmart.wire import commands
from nsqsmart.wire.answers import STAYS_OPEN, decode_error
from nsqsmart.wire.frames import (
    ERROR,
    HEARTBEAT,
    MAX_ANSWER,
    OK,
    OK_FRAME,
    RESPONSE,
    Frame,
    FrameDecoder,
)
from nsqsmart.wire.identify import Grant

_REDESIGNED_TLS_LIFETIME = 4.0
# Of what waits on an idle connection: more than 3,000 heartbeats, which take a day to gather.
_MOST_READS = 16


def open_connection(
    address: Address, greeting: Greeting, deadline: float, scope: CancelScope | None = None
) -> Connection:
    """Dial and shake hands, within the options' limits and *deadline* (monotonic seconds).

    *scope* know of its socket from the beginning, and can end it meanwhile.
    """
    config = greeting.config
    socket = dial(address, min(deadline, monotonic() + config.dial_timeout), scope=scope)
    try:
        limit = min(deadline, monotonic() + config.handshake_timeout)
        transport, grant = shake_hands(socket, greeting, limit)
    except BaseException:
        socket.drop()
        raise
    connection = Connection(address, transport, grant, config.max_frame_size)
    if grant.tls and (lifetime := tls_lifetime(config, grant)):
        connection.expires_at = monotonic() + lifetime
    if not connection.is_usable():
        # Bytes without a command would be taken for the answer to the first one.
        connection.close()
        raise ConnectError(f"{address} hung up, or sent more than was asked for")
    return connection


def tls_lifetime(config: ClientConfig, grant: Grant) -> float:
    """Seconds a TLS connection may be used; 0 is for ever.

    A redesigned nsqd breaks every TLS connection 5 s after its handshake (protocol#limits).
    """
    if config.tls_lifetime is not None:
        return config.tls_lifetime
    return _REDESIGNED_TLS_LIFETIME if grant.dialect is Dialect.REDESIGNED else 0.0


class Connection:
    """A connection after its handshake; not thread-safe, it has one user at a time."""

    __slots__ = (
        "__weakref__",
        "_frames",
        "_plain",
        "_socket",
        "address",
        "expires_at",
        "generation",
        "grant",
        "idle_since",
        "lent_at",
        "loans",
        "seen_alive",
        "spoiled",
        "transport",
    )

    def __init__(
        self, address: Address, transport: Transport, grant: Grant, max_frame_size: int
    ) -> None:
        self.address = address
        self.transport = transport
        self.grant = grant
        self.spoiled = False
        self.expires_at = math.inf
        self.idle_since = 0.0
        self.lent_at = 0.0
        self.seen_alive = -math.inf
        """When :meth:`is_usable` last said yes, in monotonic seconds."""
        self.generation = self.loans = 0
        """Set by the pool."""
        self._socket: Socket = transport.socket
        self._plain = not transport.layers
        self._frames = FrameDecoder(min(max_frame_size, MAX_ANSWER))

    def exchange(self, command: bytes, deadline: float, now: float | None = None) -> bytes:
        """Send *command* and return the data of its response; *now* saves a look at the clock.

        Raises ServerError for an error frame, ResponseTimeout, ConnectionLost or ProtocolError,
        which all spoil the connection; but for the few codes that leave it open for certain.
        """
        self.spoiled = True  # until proven clean: an interrupt may strike between any two lines
        socket = self._socket
        try:
            socket.send(command if self._plain else self.transport.encode(command), deadline, now)
        except TransportError as error:
            # An oversize PUB is answered, then reset: the reason may still be readable.
            frame = self._pending_error()
            if frame is None:
                raise
            raise decode_error(frame.data, self.transport.secret) from error
        try:
            data = socket.recv(deadline)
            if data == OK_FRAME and self._plain:
                self.spoiled = False
                return OK
            return self._judge(self._await(data, deadline))
        except TransportError as error:
            if error.sent:
                raise
            # The answer to a heartbeat could not be sent; the command was.
            if monotonic() >= deadline:
                raise ResponseTimeout(f"{self.address} did not answer in time") from error
            raise ConnectionLost(str(error), sent=True) from error

    def _pending_error(self) -> Frame | None:
        data = self._socket.recv_now()
        if not data:
            return None
        try:
            frames = self._cut(data)
        except ProtocolError:
            return None
        return next((frame for frame in frames if frame.type == ERROR), None)

    def _await(self, data: bytes, deadline: float) -> Frame:
        """The one frame that answers; heartbeats are answered on the way."""
        while True:
            frames = self._cut(data)
            if any(frame.data == HEARTBEAT for frame in frames):
                self.transport.send(commands.NOP, deadline)
                frames = [frame for frame in frames if frame.data != HEARTBEAT]
            if len(frames) > 1 or (frames and self._frames.buffered):
                raise ProtocolError(f"{self.address} answered more than was asked")
            if frames:
                return frames[0]
            data = self._socket.recv(deadline)

    def _cut(self, data: bytes) -> list[Frame]:
        pieces = self.transport.decode(data)
        return [frame for piece in pieces for frame in self._frames.feed(piece)]

    def _judge(self, frame: Frame) -> bytes:
        if frame.type == ERROR:
            raise self._refusal(frame.data)
        if frame.type != RESPONSE:
            raise ProtocolError(f"{self.address} sent a message without a subscription")
        self.spoiled = False
        return frame.data

    def _refusal(self, data: bytes) -> ServerError:
        error = decode_error(data, self.transport.secret)
        # After any other code the server may be hanging up, and the end is not here yet.
        self.spoiled = error.code not in STAYS_OPEN
        return error

    def is_usable(self, now: float | None = None) -> bool:
        """Whether an exchange may begin at *now*: alive, and nothing waiting but heartbeats."""
        if now is None:
            now = monotonic()
        if self.spoiled or now >= self.expires_at:
            return False
        if not self._socket.is_quiet():
            data = self._socket.recv_now()
            if data is not None and not self._holds_heartbeats_only(data):
                return False
        self.seen_alive = now
        return True

    def _holds_heartbeats_only(self, data: bytes | None) -> bool:
        """Whether *data*, and what has come after it, is heartbeats alone; they are answered."""
        heartbeats = False
        for _ in range(_MOST_READS):
            if not data:
                break
            try:
                frames = self._cut(data)
            except ProtocolError:
                return False
            if any(frame.data != HEARTBEAT for frame in frames):
                return False
            heartbeats = heartbeats or bool(frames)
            data = self._socket.recv_now()
        if data is not None or self._frames.buffered:
            return False
        return not heartbeats or self._answer_heartbeats()

    def _answer_heartbeats(self) -> bool:
        """One NOP, encoded only to be sent: layers count what they have encoded."""
        try:
            nop = self.transport.encode(commands.NOP)
            return self._socket.try_send(nop) == len(nop)
        except (OSError, ConnectionLost):
            return False

    def hang_up(self) -> None:
        """End it from any thread: a thread that waits for an answer gets an error at once."""
        self._socket.hang_up()

    def close(self) -> None:
        """End the connection for both sides."""
        self._socket.hang_up()
        self._socket.drop()

    def drop(self) -> None:
        """Close the descriptor alone (in a forked child)."""
        self._socket.drop()
