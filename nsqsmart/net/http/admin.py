"""What an operator asks of nsqd and nsqlookupd over HTTP: fresh sessions, every time bounded."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlencode

from nsqsmart.errors import DiscoveryError
from nsqsmart.names import Address
from nsqsmart.net.cancel_scope import CancelScope

if TYPE_CHECKING:
    from nsqsmart.net.http.session import HttpSession

Query = Iterable[tuple[str, str]]


class AdminHttp:
    """One round of requests, each with at most *patience* seconds, all before *deadline*.

    *scope* know of its sockets, and can end them.
    """

    def __init__(self, patience: float, deadline: float, scope: CancelScope | None = None) -> None:
        self._patience = patience
        self._deadline = deadline
        self._session = _open_session(scope)

    def __enter__(self) -> Self:
        self._session.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._session.__exit__(kind, error, traceback)

    def get(self, server: Address, path: str, query: Query, others: int = 0) -> tuple[int, bytes]:
        """Status and body; raises :class:`DiscoveryError` where there is no answer.

        As many as *others* servers, to be asked afterwards, keep their share of the time left.
        """
        now = monotonic()
        share = max(0.0, self._deadline - now) / (others + 1)
        return self._session.get(_url(server, path, query), now + min(self._patience, share))

    def post(self, server: Address, path: str, query: Query, body: bytes) -> tuple[int, bytes]:
        """POST; raises as :meth:`get`, and without an answer the server may have done it."""
        limit = min(self._deadline, monotonic() + self._patience)
        return self._session.post(_url(server, path, query), body, limit)


def _url(server: Address, path: str, query: Query) -> str:
    if not server.port:
        raise DiscoveryError("nsqlookupd names no HTTP port for it")
    return f"http://{server}{path}?{urlencode(list(query))}"


def _open_session(scope: CancelScope | None) -> HttpSession:
    """Imported on first use: a client without HTTP does not pay for requests."""
    from nsqsmart.net.http.session import MAX_LISTING, HttpSession  # noqa: PLC0415

    return HttpSession(MAX_LISTING, scope)
