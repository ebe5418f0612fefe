"""HTTP that keeps one deadline, by ``requests``.

``requests`` limits each read, so a server that drips a byte a second is waited for as long as it
likes; here the socket itself looks at the time left before every read. No proxies from the
environment, no redirects, no compression, and a bound to the size of the answer.
"""

from __future__ import annotations

import socket
import sys
from functools import partial
from http.client import HTTPException
from queue import SimpleQueue
from time import monotonic
from typing import Any, Self

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPResponse, PoolManager
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError

from nsqsmart.errors import ConnectError, DiscoveryError
from nsqsmart.names import Address, printable
from nsqsmart.net.cancel_scope import CancelScope
from nsqsmart.net.resolving import Resolved, resolve
from nsqsmart.net.sockets import NOSIGNAL

MAX_ANSWER = 1024 * 1024
"""Bytes that are enough for an answer about one topic."""
MAX_LISTING = 32 * 1024 * 1024
"""Bytes that are enough for one about every topic there is."""
_PIECE = 16 * 1024
# Bytes beside the body, for the head and the lengths of chunks. A server writes a few hundred.
_MOST_BESIDE = 128 * 1024
# What the libraries raise over a redirect, a chunk or a header that cannot be read, UnicodeError
# among it: whatever a server answers, it is one that failed.
_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, HTTPException)
_HEADERS = {
    "Accept": "application/vnd.nsq; version=1.0",
    "Accept-Encoding": "identity",
    "Connection": "close",
}


class HttpSession:
    """A fresh session, to be closed after one round; never kept, shared or carried over a fork.

    *scope* know of its sockets, and can end them.
    """

    def __init__(self, max_answer: int = MAX_ANSWER, scope: CancelScope | None = None) -> None:
        self._max_answer = max_answer
        self._bounds = _Bounds()
        self.date = ""
        """What the last answer gave as its time; empty if it gave none."""
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.mount("http://", _Adapter(self._bounds, scope or CancelScope()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._session.close()

    def get(self, url: str, deadline: float) -> tuple[int, bytes]:
        """Status and body, before *deadline*; every failure is a DiscoveryError that says how."""
        return self._ask("GET", url, None, deadline)

    def post(self, url: str, body: bytes, deadline: float) -> tuple[int, bytes]:
        """POST before *deadline*; after any failure the server may still have done it."""
        return self._ask("POST", url, body, deadline)

    def _ask(self, method: str, url: str, body: bytes | None, deadline: float) -> tuple[int, bytes]:
        self._bounds.deadline = deadline
        self._bounds.unread = self._max_answer + _MOST_BESIDE
        handled = sys.exception()
        try:
            self._bounds.time_left()
            with self._session.request(
                method, url, data=body, headers=_HEADERS, allow_redirects=False, stream=True
            ) as response:
                self.date = response.headers.get("Date", "")
                return response.status_code, self._read_body(response)
        except (requests.RequestException, HTTPError, OSError, ConnectError, *_UNREADABLE) as error:
            raise DiscoveryError(_explain(error, handled)) from error

    def _read_body(self, response: requests.Response) -> bytes:
        pieces: list[bytes] = []
        size = 0
        for piece in response.raw.stream(_PIECE, decode_content=False):
            size += len(piece)
            if size > self._max_answer:
                raise OSError(f"the answer exceeds {self._max_answer} bytes")
            pieces.append(piece)
        if response.raw.length_remaining:  # urllib3 1.26 takes what there is
            raise OSError(f"{response.raw.length_remaining} bytes of the answer are missing")
        return b"".join(pieces)


class _Bounds:
    """When the request under way must be done (monotonic seconds), and bytes still permitted."""

    deadline = 0.0
    unread = 0

    def time_left(self) -> float:
        """Seconds left; raises TimeoutError when there are none."""
        left = self.deadline - monotonic()
        if left <= 0:
            raise TimeoutError("no complete answer in time")
        return left

    def count(self, size: int) -> None:
        """*size* bytes were read; raises OSError when these are too many."""
        self.unread -= size
        if self.unread < 0:
            raise OSError("the answer is too large")


class _Socket(socket.socket):
    """Looks at the bounds at every read; to write to a peer that is gone is an error.

    Not the end of the process, which SIGPIPE is where a program has set it back to its default. The
    size is bounded here and not above: urllib3 before 2.8 keeps a line between two chunks whole,
    however long it is.
    """

    def __init__(self, sock: socket.socket, bounds: _Bounds) -> None:
        super().__init__(fileno=sock.detach())
        self._bounds = bounds

    def recv_into(self, *args: Any) -> int:
        self.settimeout(self._bounds.time_left())
        size = super().recv_into(*args)
        self._bounds.count(size)
        return size

    def sendall(self, data: Any, flags: int = 0) -> None:
        self.settimeout(self._bounds.time_left())
        super().sendall(data, flags | NOSIGNAL)


class _Connection(HTTPConnection):
    """Resolves and connects within the deadline."""

    def __init__(self, bounds: _Bounds, scope: CancelScope, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._bounds = bounds
        self._scope = scope

    def _new_conn(self) -> socket.socket:
        failure: OSError | None = None
        for family, sockaddr in self._resolve():
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                self._scope.add(sock)
                sock.settimeout(self._bounds.time_left())
                sock.connect(sockaddr)
                sock = _Socket(sock, self._bounds)
                self._scope.add(sock)
            except OSError as error:
                sock.close()
                failure = error
            else:
                return sock
        raise failure or OSError("the name has no address")

    def _resolve(self) -> list[Resolved]:
        return resolve(Address(self.host, self.port or 80), self._bounds.deadline, self._scope)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # of the base class's base
        if self.sock is None:
            # urllib3 passes over a reset while it sends, to read an answer that may be there.
            raise ConnectionResetError("the connection was reset")
        return super().getresponse()


class _Pool(HTTPConnectionPool):
    """Holds connections in a queue without a Condition.

    An interrupt in the one that urllib3 has leaves its lock taken, and urllib3 itself takes it
    once more on the way out: the call would never end.
    """

    QueueCls: Any = staticmethod(lambda _size: SimpleQueue())


class _Adapter(HTTPAdapter):
    def __init__(self, bounds: _Bounds, scope: CancelScope) -> None:
        self._bounds = bounds
        self._scope = scope
        super().__init__(pool_connections=4, pool_maxsize=1)

    def init_poolmanager(self, *_args: Any, **_options: Any) -> None:
        manager = PoolManager(num_pools=4)
        manager.pool_classes_by_scheme = {"http": self._new_pool}  # type: ignore[dict-item]
        self.poolmanager = manager

    def _new_pool(self, *args: Any, **options: Any) -> _Pool:
        pool = _Pool(*args, **options)
        pool.ConnectionCls = partial(_Connection, self._bounds, self._scope)  # type: ignore[assignment]
        return pool


def _explain(error: BaseException, handled: BaseException | None) -> str:
    """The innermost reason: the layers above it only repeat the address.

    *handled* is the error that led to this request, not a reason of *error*. Nor is the
    TypeError by which urllib3 1.26 finds out that Python 2 is over.
    """
    while (inner := error.__cause__ or error.__context__) and inner is not handled:
        if isinstance(inner, TypeError):
            break
        error = inner
    return printable(f"{type(error).__name__}: {error}")[:200]
