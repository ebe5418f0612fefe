"""How far a client gets with a server, step by step: what ``nsqsmart doctor`` prints."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import monotonic, time_ns
from typing import Any, NamedTuple

from nsqsmart.errors import DiscoveryError, TlsRequired, TransportError
from nsqsmart.names import Address, Dialect
from nsqsmart.net.handshake import Greeting, Watcher, shake_hands
from nsqsmart.net.resolving import resolve
from nsqsmart.net.sockets import dial
from nsqsmart.net.transport import Transport
from nsqsmart.policy.answers.documents import shown, text_of, unwrap
from nsqsmart.wire import commands
from nsqsmart.wire.answers import decode_error
from nsqsmart.wire.frames import ERROR, FrameDecoder
from nsqsmart.wire.identify import Grant

_OK = 200
_SECOND = 1_000_000_000

_NOT_NEEDED = "not needed"
_ORDER = ("resolve", "connect", "identify", "tls", "snappy", "deflate", "auth", "publish")
_MOST_ANSWER = 1 << 16
_PATIENCE = 1.0
_ALWAYS = ("tls", "auth")
_EMPTY = frozenset({"E_BAD_MESSAGE", "E_BAD_BODY"})
"""The code with which nsqd refuses an empty message, if publishing is permitted."""


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
    """Ask for nsqlookupd, then nsqd, *patience* seconds each; never raises for the answers."""
    from nsqsmart.net.http.session import HttpSession  # noqa: PLC0415 - imports requests

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


class ProbeStep(NamedTuple):
    """One step towards a usable connection.

    ``name`` is resolve, connect, identify, tls, snappy, deflate, auth or publish; ``elapsed`` is
    in seconds; ``detail`` says what was learned, or what went wrong.
    """

    name: str
    ok: bool
    elapsed: float
    detail: str


@dataclass(frozen=True, slots=True)
class Probe:
    """What came of trying to connect to an nsqd as a client does.

    Attributes:
        nsqd: ``"host:port"``.
        steps: as far as it went; the last one failed unless ``ok``.
        version: of the program, ``""`` if it did not say.
        dialect: told from the version, None if it did not say.
    """

    nsqd: str
    steps: tuple[ProbeStep, ...]
    version: str = ""
    dialect: Dialect | None = None

    @property
    def ok(self) -> bool:
        """Whether a client with these options can use the nsqd."""
        return all(step.ok for step in self.steps)


class _Steps(Watcher):
    """Takes the time of every step."""

    def __init__(self) -> None:
        self.done: list[ProbeStep] = []
        self.grant: Grant | None = None
        self._name = ""
        self._detail = ""
        self._began = 0.0

    def begin(self, step: str) -> None:
        if self._name:
            self.end(ok=True)
        self._name = step
        self._detail = ""
        self._began = monotonic()

    def learn(self, grant: Grant) -> None:
        self.grant = grant
        self.tell(f"nsqd {grant.version}" if grant.version else "nsqd says no version")

    def tell(self, detail: str) -> None:
        """What the step that is under way has to say."""
        self._detail = shown(detail)

    def end(self, *, ok: bool) -> None:
        """The step that is under way is over."""
        self.done.append(ProbeStep(self._name, ok, monotonic() - self._began, self._detail))
        self._name = ""


class Wanted(NamedTuple):
    """What a client would publish to; a partition of a redesigned topic."""

    topic: str
    partition: int | None = None


def probe_nsqd(address: Address, greeting: Greeting, wanted: Wanted | None = None) -> Probe:
    """Resolve, connect, IDENTIFY, TLS, AUTH; never raises for what the nsqd does.

    With *wanted* it asks whether that may be published to as well.
    """
    steps = _Steps()
    try:
        _walk(address, greeting, steps, wanted)
    except TransportError as error:
        steps.tell(str(error))
        steps.end(ok=False)
    else:
        steps.end(ok=True)
        taken = {step.name for step in steps.done}
        missing = [
            ProbeStep(name, ok=True, elapsed=0.0, detail=_NOT_NEEDED)
            for name in _ALWAYS
            if name not in taken
        ]
        steps.done = sorted(steps.done + missing, key=lambda step: _ORDER.index(step.name))
    grant = steps.grant
    return Probe(
        nsqd=str(address),
        steps=tuple(steps.done),
        version=shown(grant.version) if grant else "",
        dialect=grant.dialect if grant and grant.version else None,
    )


def _try_without_tls(transport: Transport) -> None:
    """Raise TlsRequired where nsqd takes no command without TLS: IDENTIFY does not tell.

    CLS is refused in any case, and changes nothing.
    """
    frames = FrameDecoder(_MOST_ANSWER)
    socket = transport.socket
    try:
        transport.send(commands.CLS, monotonic() + _PATIENCE)
        while True:
            found = frames.next(b"".join(transport.decode(socket.recv(monotonic() + _PATIENCE))))
            if found is not None and found[0].type == ERROR:
                break
    except TransportError:
        return
    if b"TLS" in found[0].data:
        raise TlsRequired(f"{socket.peer} insists on TLS", permanent=True)


def _try_to_publish(transport: Transport, wanted: Wanted, steps: _Steps, deadline: float) -> None:
    """Raise ServerError where nsqd does not permit it, or has no such topic.

    By a batch whose one message is empty: it is refused after the permission was looked at, and
    stores nothing.
    """
    steps.begin("publish")
    frames = FrameDecoder(_MOST_ANSWER)
    transport.send(commands.mpub(wanted.topic, [b""], wanted.partition), deadline)
    data = b""
    while (found := frames.next(data)) is None or found[0].type != ERROR:
        # It may have come already, after a heartbeat.
        if found is not None and found[1]:
            data = found[1]
        else:
            data = b"".join(transport.decode(transport.socket.recv(deadline)))
    error = decode_error(found[0].data, transport.secret)
    if error.code not in _EMPTY:
        raise error
    steps.tell(f"topic {wanted.topic} takes messages")


def _walk(address: Address, greeting: Greeting, steps: _Steps, wanted: Wanted | None) -> None:
    config = greeting.config
    steps.begin("resolve")
    deadline = monotonic() + config.dial_timeout
    found = dict.fromkeys(str(resolved.sockaddr[0]) for resolved in resolve(address, deadline))
    steps.tell(", ".join(found))
    steps.begin("connect")
    socket = dial(address, monotonic() + config.dial_timeout)
    try:
        transport, grant = shake_hands(
            socket, greeting, monotonic() + config.handshake_timeout, steps
        )
        if wanted is not None:
            _try_to_publish(transport, wanted, steps, monotonic() + config.handshake_timeout)
        elif not grant.tls:
            # The nsqd ends the connection after it.
            steps.begin("tls")
            _try_without_tls(transport)
            steps.tell(_NOT_NEEDED)
    finally:
        socket.drop()
