"""What a subscribed connection has to send, combined.

A FIN per message would cost nine tenths of the throughput, so acknowledgements gather until half
of RDY is reached, or a worker runs out of work, or the ticker comes by; everything else leaves at
once and takes them along. The algorithm uses only single list operations and a try-lock: a thread
that fails to get the lock is served by its holder, which looks again after releasing it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

from nsqsmart.errors import ConnectionLost
from nsqsmart.net.cancel_scope import keep_from_children
from nsqsmart.net.transport import Transport
from nsqsmart.wire import commands

_NO_BOUND = 1 << 31


class WriteBuffer:
    """The sending half of a subscribed connection; any thread may use it.

    ``rdy`` is the level the connection should have: set it, then :meth:`flush`. Senders read it
    under the send lock, so a late one repeats the truth instead of an old decision. *on_dirty*
    is told when acknowledgements begin to wait. ``strays`` are messages that were dropped without
    an answer: the server counts them as in flight until they time out, so RDY is so much more,
    but never above *most*. ``asked`` is the largest RDY that was sent.
    """

    __slots__ = (
        "__weakref__",
        "_commands",
        "_counting",
        "_fins",
        "_forgotten",
        "_lock",
        "_most",
        "_nop",
        "_on_dirty",
        "_rdy_sent",
        "_settled",
        "_strays_sent",
        "_threshold",
        "_transport",
        "_unsent",
        "asked",
        "broken",
        "dirty",
        "rdy",
        "strays",
    )

    def __init__(
        self, transport: Transport, on_dirty: Callable[[WriteBuffer], None], most: int = _NO_BOUND
    ) -> None:
        self._transport = transport
        self._on_dirty = on_dirty
        self._lock = threading.Lock()  # the send lock: guards the socket's sending side
        self._fins: list[bytes] = []
        self._commands: list[bytes] = []
        self._nop = False
        self._unsent = b""
        self._most = most
        self._rdy_sent = self._strays_sent = self._settled = 0
        self._counting = threading.Lock()  # guards the one below
        self._forgotten = 0
        self._threshold = 1
        self.rdy = self.strays = 0
        self.asked = 0
        self.dirty = False
        self.broken = False
        keep_from_children(self)

    @property
    def rdy_sent(self) -> int:
        """The RDY that was sent last."""
        return self._rdy_sent

    @property
    def settled(self) -> int:
        """Messages that were answered, or that wait for no answer any more."""
        return self._settled + self._forgotten

    def forget(self) -> None:
        """One message less waits for its FIN."""
        with self._counting:
            self._forgotten += 1

    def ack(self, message_id: bytes) -> bool:
        """FIN, soon; False if the connection is gone."""
        if self.broken:
            return False
        fins = self._fins
        fins.append(message_id)
        if len(fins) >= self._threshold:
            self.flush()
        elif not self.dirty:
            self.dirty = True
            self._on_dirty(self)
        return True

    def send(self, command: bytes, *, settles: bool = False) -> None:
        """Send *command* now; *settles* tells that it answers a message."""
        if settles:
            self.forget()
        self._commands.append(command)
        self.flush()

    def answer_heartbeat(self) -> None:
        """NOP, unless something else is about to be sent: any command is an answer."""
        self._nop = True
        self.flush(wait=False)

    def flush(self, *, wait: bool = True) -> None:
        """Send what there is; with *wait* False only what the kernel takes at once."""
        while not self.broken and self._waits():
            if not self._lock.acquire(blocking=False):
                return
            try:
                done = self._send_pending(wait)
            finally:
                self._lock.release()
            if not done:
                if self.dirty:
                    self._on_dirty(self)
                return

    def drain(self, deadline: float) -> bool:
        """Send everything, also what another thread is sending just now.

        False if some of it was not sent before *deadline* (monotonic seconds), or the connection
        is gone.
        """
        while True:
            self.flush()
            # flush() leaves to the holder of the lock what waits; it may be in the middle of it.
            if not self._lock.acquire(timeout=max(0.0, deadline - monotonic())):
                return False
            self._lock.release()
            if self.broken or not self._waits():
                return not self.broken
            if monotonic() >= deadline:
                return False

    def break_off(self) -> None:
        """Nothing is sent any more; what waits is forgotten, and the reader woken."""
        self.broken = True
        self._transport.socket.hang_up()

    def drop(self) -> None:
        """In a forked child: nothing leaves here, and the parent's connection lives on."""
        self.broken = True
        self._transport.socket.drop()

    def _waits(self) -> bool:
        """Whether there is something to send."""
        return bool(
            self._fins
            or self._commands
            or self.rdy != self._rdy_sent
            or self.strays != self._strays_sent
            or self._nop
            or self._unsent
        )

    def _send_pending(self, wait: bool) -> bool:  # noqa: FBT001 - private
        """Under the send lock. False if the kernel did not take everything."""
        # Cleared before the lists are taken: an ack after this line sets it again.
        self.dirty = False
        socket = self._transport.socket
        try:
            data = self._collect()
            if data and self._transport.layers:
                data = self._transport.encode(data)
            if self._unsent:
                data, self._unsent = self._unsent + data, b""
            if wait:
                socket.write(data)
                return True
            self._unsent = data[socket.try_send(data) :]
        except (OSError, ConnectionLost):  # the latter from TLS, which can encrypt no more
            # The reader learns why from the socket.
            self.break_off()
            return False
        except BaseException:
            # An interrupt: how much was sent is unknown, so nothing may follow it.
            self.break_off()
            raise
        if self._unsent:
            self.dirty = True
        return not self._unsent

    def _collect(self) -> bytes:
        """RDY first: a lower one must reach the server before the FINs that free places."""
        parts: list[bytes] = []
        rdy, strays = self.rdy, self.strays
        if rdy != self._rdy_sent or strays != self._strays_sent:
            self._rdy_sent, self._strays_sent = rdy, strays
            self._threshold = max(1, rdy // 2)
            count = min(rdy + strays, self._most) if rdy else 0
            self.asked = max(self.asked, count)
            parts.append(commands.rdy(count))
        # Slices and prefixes, never a new list: a thread may be between load and append.
        count = len(self._fins)
        if count:
            ids = self._fins[:count]
            del self._fins[:count]
            self._settled += count
            parts.append(commands.fins(ids))
        count = len(self._commands)
        if count:
            parts += self._commands[:count]
            del self._commands[:count]
        if self._nop:
            self._nop = False
            if not parts:
                parts.append(commands.NOP)
        return b"".join(parts)
