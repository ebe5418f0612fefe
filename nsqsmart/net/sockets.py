"""TCP sockets whose every call keeps its deadline.

A send takes what the kernel takes at once and waits only for the rest; a recv waits first. Both
wait by poll(), whose Python wrapper counts the time on through signals; ``settimeout`` would put a
poll before sends as well.

Each call of the kernel that lets go of the interpreter is a race to get it back, where many
threads publish. So a thread that is not the main one waits inside recv(), a slice of time at once
by SO_RCVTIMEO, and looks whether something has come by getsockopt(), which keeps the interpreter.
The main thread does neither: the kernel gives it the signals of the process, and begins anew with
SO_RCVTIMEO at each. Under a timer that fires more often, silence would never end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import sys
from threading import get_ident, main_thread
from time import monotonic

from nsqsmart.errors import ConnectError, ConnectionLost, ResponseTimeout
from nsqsmart.names import Address
from nsqsmart.net.cancel_scope import CancelScope, keep_from_children
from nsqsmart.net.resolving import Resolved, resolve

_RECV_SIZE = 64 * 1024
# An answer fits easily; allocating 64 KiB for ten bytes costs more than the exchange.
_ANSWER_SIZE = 4096
NOSIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
_DONTWAIT = socket.MSG_DONTWAIT
_AT_ONCE = NOSIGNAL | _DONTWAIT
_TIMEVAL = struct.Struct("ll")
_SLICE = 0.25
_OTHER_NUMBERS = ("parisc", "sparc")
_SO_MEMINFO = (
    55 if sys.platform == "linux" and not os.uname().machine.startswith(_OTHER_NUMBERS) else None
)
"""Linux: how much memory a socket's queues take; first of all what is received and not read."""
_NOTHING = bytes(4)

_main = main_thread().ident
"""Known, not asked for: to ask twice takes 1.3 of the 43 us of a publish.

uWSGI skips the hook; it forks from its main thread, which keeps its number.
"""


def _after_fork() -> None:
    global _main  # noqa: PLW0603 - the thread that forked is the main one now
    _main = get_ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def dial(
    address: Address,
    deadline: float,
    local_addr: Address | None = None,
    scope: CancelScope | None = None,
) -> Socket:
    """Connect before *deadline* (monotonic seconds); raises :class:`ConnectError`.

    *scope* know of the socket from before it connects.
    """
    failure: OSError | None = None
    found = resolve(address, deadline, scope)
    for position, resolved in enumerate(found):
        left = deadline - (now := monotonic())
        if left <= 0:
            break
        try:
            # A share each: the first address of a name may be one that never answers.
            share = left / (len(found) - position)
            sock = _connect(resolved, share, local_addr, scope)
            return Socket(sock, address, monotonic() - now)
        except OSError as error:
            failure = error
    try:
        raise ConnectError(f"cannot connect to {address}: {failure or 'no time left'}") from failure
    finally:
        # It knows this frame, and this frame it: a cycle, which would hold the caller's body.
        del failure


def _connect(
    resolved: Resolved, timeout: float, local_addr: Address | None, scope: CancelScope | None
) -> socket.socket:
    sock = socket.socket(resolved.family, socket.SOCK_STREAM)
    try:
        if scope:
            scope.add(sock)
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
    A forked child has none: it is closed there.
    """

    __slots__ = (
        "__weakref__",
        "_process",
        "_sliced",
        "_sock",
        "peer",
        "poll",
        "round_trip",
        "taking",
    )

    def __init__(self, sock: socket.socket, peer: Address, round_trip: float = 0.0) -> None:
        self._sock = sock
        self._process = os.getpid()
        keep_from_children(self)
        self.peer = peer
        self.round_trip = round_trip
        """Seconds that connecting took."""
        self.taking = False
        """See :meth:`read_by`."""
        # Whether a recv() comes back after a slice.
        self._sliced = _limit(sock, socket.SO_RCVTIMEO, _SLICE)
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        self.poll = poll.poll
        """Waits so many milliseconds for something to read; what it returns is true if there is."""

    @property
    def local(self) -> Address | None:
        """This end of the connection; None once it is gone."""
        try:
            return Address(*self._sock.getsockname()[:2])
        except OSError:
            return None

    def send(self, data: bytes, deadline: float, now: float | None = None) -> None:
        """Send all of *data*; raises ConnectionLost (``sent`` True) or ResponseTimeout.

        ConnectError if there is no time left: nothing was sent then. *now* saves a look at the
        clock.
        """
        if (monotonic() if now is None else now) >= deadline:
            raise ConnectError(f"no time left to send anything to {self.peer}")
        rest: bytes | memoryview = data
        while True:
            try:
                count = self._sock.send(rest, _AT_ONCE)
            except BlockingIOError:
                count = 0
            except OSError as error:
                raise ConnectionLost(
                    f"connection to {self.peer} lost: {error}", sent=True
                ) from error
            if count == len(rest):
                return
            # A view, or a slow peer would have every rest of a large body copied.
            rest = memoryview(rest)[count:]
            # After a part too: a peer that sips would hold us for as long as it likes.
            self._wait_until_writable(deadline)

    def recv(self, deadline: float) -> bytes:
        """At least one byte; raises ConnectionLost at the end, ResponseTimeout in silence."""
        while True:
            left = deadline - monotonic()
            flags: int = _DONTWAIT
            if get_ident() != _main and self._sliced and left > _SLICE:
                flags = 0
            # Even if something is there: heartbeats without end would be listened to for ever.
            elif left <= 0 or not self.poll(left * 1000):
                raise ResponseTimeout(f"{self.peer} did not answer in time")
            try:
                data = self._sock.recv(_ANSWER_SIZE, flags)
            except BlockingIOError:
                continue
            except OSError as error:
                raise ConnectionLost(
                    f"connection to {self.peer} lost: {error}", sent=True
                ) from error
            if not data:
                raise ConnectionLost(f"{self.peer} closed the connection", sent=True)
            return data

    def is_quiet(self) -> bool:
        """Whether nothing has come: no byte, no end, no error. Where it cannot be told, False."""
        if get_ident() == _main or _SO_MEMINFO is None:
            return not self.poll(0)
        option = self._sock.getsockopt
        try:
            # The end takes a place in the queue; a reset does not.
            unread = option(socket.SOL_SOCKET, _SO_MEMINFO, len(_NOTHING))
            return unread == _NOTHING and not option(socket.SOL_SOCKET, socket.SO_ERROR)
        except OSError:
            return False

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

    def read_by(self, deadline: float) -> bytes | None:
        """What is there, or what comes before *deadline*: None if nothing, b"" at the end.

        Raises OSError. To find something costs one call of the kernel. ``taking`` stays True until
        the caller has put away what it got.
        """
        while True:
            self.taking = True
            try:
                return self._sock.recv(_RECV_SIZE, _DONTWAIT)
            except BlockingIOError:
                self.taking = False
                left = deadline - monotonic()
                if left <= 0 or not self.poll(left * 1000):
                    return None

    def end_sending(self) -> None:
        """Tell the peer that nothing follows; what it still sends can be read."""
        if not self.is_ours():
            return
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def block(self, write_timeout: float) -> None:
        """From now on a reader thread waits without limit; a send at most *write_timeout*."""
        _limit(self._sock, socket.SO_SNDTIMEO, write_timeout)
        _limit(self._sock, socket.SO_RCVTIMEO, 0.0)
        self._sliced = False

    def read(self) -> bytes:
        """Wait for bytes as long as it takes; b"" once the peer or :meth:`hang_up` ended it."""
        return self._sock.recv(_RECV_SIZE)

    def read_exactly(self, count: int) -> bytes:
        """Up to *count* bytes in one call where the platform can; b"" at the end."""
        return self._sock.recv(count, socket.MSG_WAITALL)

    def write(self, data: bytes) -> None:
        """Send all of *data*; raises OSError if the peer takes nothing for the write timeout."""
        self._check_process()
        sent = self._sock.send(data, NOSIGNAL)
        while sent < len(data):
            sent += self._sock.send(memoryview(data)[sent:], NOSIGNAL)

    def try_send(self, data: bytes) -> int:
        """How many bytes of *data* the kernel took at once; raises OSError if it is broken."""
        self._check_process()
        try:
            return self._sock.send(data, _AT_ONCE)
        except BlockingIOError:
            return 0

    def hang_up(self) -> None:
        """End both directions: wakes a reader at once. The descriptor stays until drop()."""
        if not self.is_ours():
            return
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def drop(self) -> None:
        """Close the descriptor alone: in a forked child the parent's connection lives on."""
        self._sock.close()

    def is_ours(self) -> bool:
        """Whether this process made it; a child that was forked may not use it."""
        return os.getpid() == self._process

    def _check_process(self) -> None:
        if not self.is_ours():
            raise OSError(errno.EBADF, "the connection belongs to the parent process")

    def _wait_until_writable(self, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._sock, select.POLLOUT)
        left = deadline - monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise ResponseTimeout(f"{self.peer} did not take what was sent in time")


def _limit(sock: socket.socket, option: int, seconds: float) -> bool:
    """Have the kernel give up waiting after *seconds* (0: never); False if it cannot."""
    whole = int(seconds)
    value = _TIMEVAL.pack(whole, int((seconds - whole) * 1_000_000))
    try:
        sock.setsockopt(socket.SOL_SOCKET, option, value)
    except OSError:
        return False
    return True
