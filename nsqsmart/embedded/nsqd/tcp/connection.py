"""One client connection: its socket, what was read of it, and what it has still to be sent."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections import Counter
from contextlib import suppress
from enum import IntEnum
from math import inf
from typing import Any

from nsqsmart.embedded.broker.consumer import ChannelConsumer, FrameSink
from nsqsmart.embedded.nsqd.authority import Authority
from nsqsmart.embedded.nsqd.node import NsqdNode
from nsqsmart.embedded.nsqd.refusals import EndOfStream
from nsqsmart.embedded.nsqd.shard import Shard
from nsqsmart.embedded.nsqd.tcp.layers import Layers, TlsLayer
from nsqsmart.embedded.nsqd.tcp.outbox import SendQueue
from nsqsmart.errors import CompressionError
from nsqsmart.wire.command_decoder import CommandDecoder
from nsqsmart.wire.frames import ERROR, HEARTBEAT_FRAME, RESPONSE, encode_frame
from nsqsmart.wire.identify_server import unidentified

_READ_SIZE = 64 * 1024
_RESPONSES_WAITING = 10_000
_LINGER_RST = struct.pack("ii", 1, 0)


class ClientState(IntEnum):
    """As the stats show it (protocol#states)."""

    INIT = 0
    SUBSCRIBED = 3
    CLOSING = 4


class ClientConnection:
    """What command handlers work on; used by its session's thread.

    :meth:`end`, :meth:`abort` and the outbox are for every thread.
    """

    def __init__(self, sock: socket.socket, peer: tuple[str, int], node: NsqdNode) -> None:
        self.sock = sock
        self.peer = peer
        self.node = node
        self.number = node.next_number()
        self.layers = Layers()
        self.outbox = SendQueue(sock, node.loop, self.layers)
        self.decoder = CommandDecoder(node.options.dialect)
        self.state = ClientState.INIT
        self.remote_address = f"{peer[0]}:{peer[1]}"
        name = self.remote_address if node.options.redesigned else peer[0]
        self.settled = unidentified(node.policy, name)
        self.consumer: ChannelConsumer | None = None
        self.shard: Shard[Any] | None = None
        self.channel: Any = None
        self.dirty: set[FrameSink] = set()
        self.connected_at = time.time_ns() // 1_000_000_000
        self.identified = False
        self.late = False
        """Whether what was read last had to wait for a hung node to wake."""
        self.authority: Authority | None = None
        self.published: Counter[str] = Counter()
        self.closed = threading.Event()
        self._waiting_since = time.monotonic()
        self._beat = 0
        self._silence_checked_at = inf

    # ---------------------------------------------------------------------------------- reading

    def read(self, count: int) -> bytes:
        """Exactly *count* bytes of a body; raises :class:`EndOfStream`."""
        while (data := self.decoder.take(count)) is None:
            self.receive()
        return data

    def receive(self) -> None:
        """Wait for more bytes of a command, having sent what there is to send."""
        self.decoder.feed(self.receive_raw())

    def receive_raw(self) -> bytes:
        """Flush, wait for bytes, and return them with TLS and compression taken off."""
        self.flush()
        try:
            data = self.sock.recv(_READ_SIZE)
            if data and not self.layers.plain:
                data = self._decode(data)
        except (OSError, EOFError, CompressionError) as error:
            raise EndOfStream from error
        if not data:
            raise EndOfStream
        self.late = self.node.hung
        if self.late:
            self.node.gate.wait()
        if self.closed.is_set():
            raise EndOfStream
        return data

    def _decode(self, data: bytes) -> bytes:
        """Through the layers; whole TLS records and chunks may hold nothing yet."""
        while data and not (decoded := self.layers.incoming(data)):
            data = self.sock.recv(_READ_SIZE)
        return decoded if data else b""

    def flush(self) -> None:
        """Send what this connection and those it woke have waiting."""
        outbox = self.outbox
        outbox.flush()
        if self.dirty:
            for sink in self.dirty:
                sink.flush()
            self.dirty.clear()
        # A client that publishes and does not read its answers is not read either.
        if len(outbox.pending) > _RESPONSES_WAITING and not outbox.wait_for_room(
            _RESPONSES_WAITING
        ):
            raise EndOfStream

    # ---------------------------------------------------------------------------------- sending

    def respond(self, data: bytes) -> None:
        """Queue a response frame."""
        self.outbox.release()
        self.outbox.pending.append(encode_frame(RESPONSE, data))

    def fail(self, data: bytes) -> None:
        """Queue an error frame."""
        self.outbox.release()
        self.outbox.pending.append(encode_frame(ERROR, data))

    def buffer_output(self, size: int) -> None:
        """Messages are held back from now on, as IDENTIFY settled it."""
        self.outbox.buffer(size, self.settled.output_buffer_timeout / 1000)

    # ------------------------------------------------------------------------------- heartbeats

    def start_heartbeat(self) -> None:
        """Begin, or begin anew, with the interval that now holds (protocol#heartbeats)."""
        self._beat += 1
        interval = self.settled.heartbeat_interval / 1000
        self.outbox.stall_limit = interval or self.node.options.client_timeout
        if interval:
            self._schedule_beat(self._beat, interval, time.monotonic() + interval)
        self.watch_silence()

    def _schedule_beat(self, beat: int, interval: float, due: float) -> None:
        def tick() -> None:
            if self.closed.is_set() or beat != self._beat:
                return
            self._schedule_beat(beat, interval, due + interval)
            if not self.node.hung:
                self.outbox.release()
                self.outbox.put([HEARTBEAT_FRAME])
                self.outbox.flush()

        self.node.loop.call_at(due, tick)

    def line_done(self) -> None:
        """A command was carried out: the silence begins anew."""
        self._waiting_since = time.monotonic()

    def last_command_at(self) -> int:
        """When that was, in seconds since the epoch."""
        ago = time.monotonic() - self._waiting_since
        return round(time.time_ns() / 1_000_000_000 - ago)

    def watch_silence(self) -> None:
        """See to it that a silent client is noticed; again whenever the interval has changed."""
        if not self.settled.heartbeat_interval:
            return
        due = self._silent_at()
        if due < self._silence_checked_at:
            self._check_silence_at(due)

    def _check_silence_at(self, due: float) -> None:
        """One timer per connection is in force; an earlier one takes the place of a later one."""
        self._silence_checked_at = due
        self.node.loop.call_at(due, lambda: self._check_silence(due))

    def _silent_at(self) -> float:
        intervals = 3 if self.node.options.redesigned else 2
        return self._waiting_since + intervals * self.settled.heartbeat_interval / 1000

    def _check_silence(self, due: float) -> None:
        if self.closed.is_set() or due != self._silence_checked_at:
            return
        self._silence_checked_at = inf
        if self.node.hung:
            self._check_silence_at(time.monotonic() + 1)
        elif self.settled.heartbeat_interval and self._silent_at() <= time.monotonic():
            self.end()
        else:
            self.watch_silence()

    # ------------------------------------------------------------------------------------ ending

    def end(self) -> None:
        """End it in order: the client sees the end of the stream."""
        self.closed.set()
        self.outbox.end()

    def abort(self) -> None:
        """End it by RST, once its thread lets go of the socket."""
        self.closed.set()
        with suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RST)
            # Only reading is shut: the FIN of a full shutdown would come before the RST.
            self.sock.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Let go of the socket; by the session's thread."""
        if not self.closed.is_set():
            self.outbox.finish()
        self.closed.set()
        self.outbox.close()
        self.sock.close()

    def upgrade_tls(self, context: ssl.SSLContext, timeout: float) -> None:
        """The server's half of the handshake; raises OSError (SSLError, TimeoutError).

        Called under the outbox's exclusive lock.
        """

        layer = TlsLayer(context)
        data = self.decoder.take_rest()
        deadline = time.monotonic() + timeout
        try:
            while True:
                done, reply = layer.handshake(data)
                self.sock.settimeout(max(0.001, deadline - time.monotonic()))
                if reply:
                    self.sock.sendall(reply)
                if done:
                    break
                data = self.sock.recv(_READ_SIZE)
                if not data:
                    raise ConnectionResetError("the client left the handshake")
        except ssl.SSLError:
            # As crypto/tls does: the client learns from the alert why it was refused.
            self.sock.sendall(layer.last_words())
            raise
        finally:
            self.sock.settimeout(None)
        self.layers.tls = layer
        self.decoder.feed(layer.incoming(b""))
