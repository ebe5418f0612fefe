"""What speaks HTTP at an address: an nsqlookupd, an nsqd or something else."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import monotonic, time_ns
from typing import Any

from nsqsmart.errors import DiscoveryError, TransportError
from nsqsmart.names import Address
from nsqsmart.net.sockets import dial
from nsqsmart.policy.documents import shown, text_of, unwrap

_OK = 200
_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class HttpProbe:
    """What came of asking for the HTTP interface at an address.

    Attributes:
        address: ``"host:port"``.
        kind: ``"nsqlookupd"``, ``"nsqd"``, ``"other"`` for anything else that speaks HTTP, or
            ``""`` where nothing does.
        detail: what was learned, or what went wrong.
        version: of the program, ``""`` if it did not say.
        tcp_port: where the nsqd has TCP; 0 if it did not say.
        listlookup: whether a redesigned nsqlookupd answers to /listlookup.
        skew: seconds that its clock is ahead of ours, by the Date header; None without one.
        silent: it takes connections, and sends no answer.
    """

    address: str
    kind: str
    detail: str
    version: str = ""
    tcp_port: int = 0
    listlookup: bool = False
    skew: float | None = None
    silent: bool = False


def probe_http(address: Address, patience: float) -> HttpProbe:
    """Ask who is there, each time for *patience* seconds; raises nothing for what it does."""
    from nsqsmart.net.http_session import HttpSession  # noqa: PLC0415 - imports requests

    with HttpSession() as session:

        def get(path: str) -> tuple[int, Any]:
            answer = session.get(f"http://{address}{path}", monotonic() + patience)
            try:
                return unwrap(*answer)[:2]
            except DiscoveryError:
                # An answer it is, but not of NSQ.
                return answer[0], None

        try:
            info = _document(get("/info"))
            skew = _skew(session.date)
            nodes = _document(get("/nodes"))
            listlookup = bool(_document(get("/listlookup"))) if "producers" in nodes else False
        except DiscoveryError as error:
            reason = shown(str(error))
            silent = reason.startswith(TimeoutError.__name__) and _takes(address, patience)
            return HttpProbe(str(address), "", reason, silent=silent)
    version = shown(text_of(info.get("version")))
    port = info.get("tcp_port")
    kind = "nsqlookupd" if "producers" in nodes else "nsqd" if version else "other"
    return HttpProbe(
        str(address),
        kind,
        f"{kind} {version}".strip(),
        version,
        port if type(port) is int and 0 < port < 1 << 16 else 0,
        listlookup,
        skew,
    )


def _takes(address: Address, patience: float) -> bool:
    """Whether it takes connections: what hangs does, what a firewall hides does not."""
    try:
        dial(address, monotonic() + patience).drop()
    except TransportError:
        return False
    return True


def _document(answer: tuple[int, Any]) -> dict[str, Any]:
    status, data = answer
    return data if status == _OK and isinstance(data, dict) else {}


def _skew(date: str) -> float | None:
    try:
        theirs = parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
    return theirs - time_ns() / _SECOND
