"""TCP sockets that are truly blocking, with the kernel's own timeouts for deadlines.

``settimeout`` would make the descriptor non-blocking and put a poll before every call; SO_RCVTIMEO
and SO_SNDTIMEO cost nothing per call. They are changed only when the time left falls below what
is set, so an exchange that has seconds left is one ``send`` and one ``recv``.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from time import monotonic

from nsqsmart.errors import ConnectError, ConnectionLost, ResponseTimeout
from nsqsmart.names import Address
from nsqsmart.net.resolving import Resolved, resolve

_RECV_SIZE = 64 * 1024
# An answer fits easily; allocating 64 KiB for ten bytes costs more than the exchange.
_ANSWER_SIZE = 4096
_SLICE = 1.0
_SHORTEST = 0.001
_NOSIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
_DONTWAIT = socket.MSG_DONTWAIT
_TIMEVAL = struct.Struct("ll")


def dial(address: Address, deadline: float, local_addr: Address | None = None) -> Socket:
    """Connect before *deadline* (monotonic seconds); raises :class:`ConnectError`."""
    failure: OSError | None = None
    found = resolve(address, deadline)
    for position, resolved in enumerate(found):
        left = deadline - monotonic()
        if left <= 0:
            break
        try:
            # A share each: the first address of a name may be one that never answers.
            share = left / (len(found) - position)
            return Socket(_connect(resolved, share, local_addr), address)
        except OSError as error:
            failure = error
    reason = failure or "no time left"
    raise ConnectError(f"cannot connect to {address}: {reason}") from failure


def _connect(resolved: Resolved, timeout: float, local_addr: Address | None) -> socket.socket:
    sock = socket.socket(resolved.family, socket.SOCK_STREAM)
    try:
        if local_addr:
            sock.bind(local_addr)
        sock.settimeout(timeout)
        sock.connect(resolved.sockaddr)
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


class Socket:
    """A connected socket; every blocking call takes a deadline in monotonic seconds.

    One user at a time, but for :meth:`try_send` and :meth:`hang_up`, which any thread may call.
    """

    __slots__ = ("_recv_limit", "_send_limit", "_sock", "peer", "poll")

    def __init__(self, sock: socket.socket, peer: Address) -> None:
        self._sock = sock
        self.peer = peer
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        self.poll = poll.poll
        """Given 0: what has come already, if anything."""
        self._limit_recv(_SLICE)
        self._limit_send(_SLICE)

    @property
    def local(self) -> Address | None:
        """This end of the connection; None once it is gone."""
        try:
            return Address(*self._sock.getsockname()[:2])
        except OSError:
            return None

    def send(self, data: bytes, deadline: float, now: float | None = None) -> float:
        """Send all of *data*; the time when that was done, which is *now* if it took no waiting.

        Raises ConnectionLost (``sent`` True) or ResponseTimeout; ConnectError if there is no time
        left: nothing was sent then.
        """
        if now is None:
            now = monotonic()
        if deadline - now < _SLICE:
            left = deadline - monotonic()
            if left <= 0:
                raise ConnectError(f"no time left to send anything to {self.peer}")
            self._limit_send(min(left, _SLICE))
        elif self._send_limit != _SLICE:
            self._limit_send(_SLICE)
        try:
            count = self._sock.send(data, _NOSIGNAL)
        except BlockingIOError:
            count = 0
        except OSError as error:
            raise self._lost(error) from error
        if count == len(data):
            return now
        # A view, or a slow peer would have every rest of a large body copied.
        self._send_rest(memoryview(data)[count:], deadline)
        return monotonic()

    def _send_rest(self, rest: memoryview, deadline: float) -> None:
        while rest:
            # After a part too: a peer that sips would hold us for as long as it likes.
            self._limit_send(self._left(deadline, "take what was sent"))
            try:
                count = self._sock.send(rest, _NOSIGNAL)
            except BlockingIOError:
                count = 0
            except OSError as error:
                raise self._lost(error) from error
            rest = rest[count:]

    def recv(self, deadline: float, now: float | None = None) -> bytes:
        """At least one byte; raises ConnectionLost at the end, ResponseTimeout in silence."""
        if now is None:
            now = monotonic()
        if deadline - now < _SLICE:
            # Even if something is there: heartbeats without end would be listened to for ever.
            self._limit_recv(self._left(deadline, "answer"))
        elif self._recv_limit != _SLICE:
            self._limit_recv(_SLICE)
        while True:
            try:
                data = self._sock.recv(_ANSWER_SIZE)
            except BlockingIOError:
                self._limit_recv(self._left(deadline, "answer"))
                continue
            except OSError as error:
                raise self._lost(error) from error
            if not data:
                raise ConnectionLost(f"{self.peer} closed the connection", sent=True)
            return data

    def _lost(self, error: OSError) -> ConnectionLost:
        return ConnectionLost(f"connection to {self.peer} lost: {error}", sent=True)

    def recv_now(self) -> bytes | None:
        """What has come already: None if nothing, b"" at the end or on an error."""
        if not self.poll(0):
            return None
        try:
            return self._sock.recv(_ANSWER_SIZE, _DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def block(self, write_timeout: float) -> None:
        """From now on a reader thread waits without limit; a send at most *write_timeout*."""
        _set_timeout(self._sock, socket.SO_RCVTIMEO, 0.0)
        self._limit_send(write_timeout)

    def read(self) -> bytes:
        """Wait for bytes as long as it takes; b"" once the peer or :meth:`hang_up` ended it."""
        return self._sock.recv(_RECV_SIZE)

    def read_exactly(self, count: int) -> bytes:
        """Up to *count* bytes in one call where the platform can; b"" at the end."""
        return self._sock.recv(count, socket.MSG_WAITALL)

    def write(self, data: bytes) -> None:
        """Send all of *data*; raises OSError if the peer takes nothing for the write timeout."""
        rest: bytes | memoryview = data
        while rest:
            rest = memoryview(rest)[self._sock.send(rest, _NOSIGNAL) :]

    def try_send(self, data: bytes) -> int:
        """How many bytes of *data* the kernel took at once; raises OSError if it is broken."""
        try:
            return self._sock.send(data, _NOSIGNAL | _DONTWAIT)
        except BlockingIOError:
            return 0

    def hang_up(self) -> None:
        """End both directions: wakes a reader at once. The descriptor stays until drop()."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def drop(self) -> None:
        """Close the descriptor alone: in a forked child the parent's connection lives on."""
        self._sock.close()

    def _left(self, deadline: float, what: str) -> float:
        """Seconds to wait before the deadline is looked at again."""
        left = deadline - monotonic()
        if left <= 0:
            raise ResponseTimeout(f"{self.peer} did not {what} in time")
        return min(_SLICE, left)

    def _limit_recv(self, seconds: float) -> None:
        self._recv_limit = seconds
        _set_timeout(self._sock, socket.SO_RCVTIMEO, max(seconds, _SHORTEST))

    def _limit_send(self, seconds: float) -> None:
        self._send_limit = seconds
        _set_timeout(self._sock, socket.SO_SNDTIMEO, max(seconds, _SHORTEST))


def _set_timeout(sock: socket.socket, option: int, seconds: float) -> None:
    """0 waits without limit."""
    whole = int(seconds)
    value = _TIMEVAL.pack(whole, int((seconds - whole) * 1_000_000))
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, option, value)
