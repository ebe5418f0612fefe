"""Magic, IDENTIFY, TLS, compression, AUTH: what makes a socket a connection (protocol#upgrades)."""

from __future__ import annotations

import importlib
import json
import socket as _socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nsqsmart._version import __version__
from nsqsmart.config import ClientConfig
from nsqsmart.errors import (
    ConnectError,
    ConnectionLost,
    ProtocolError,
    ResponseTimeout,
    ServerError,
    TlsRequired,
)
from nsqsmart.names import Address, is_loopback
from nsqsmart.net.sockets import Socket
from nsqsmart.net.transport import TlsStream, Transport, make_context
from nsqsmart.wire import commands
from nsqsmart.wire.answers import UNAUTHORIZED, decode_error
from nsqsmart.wire.frames import ERROR, HEARTBEAT, OK, RESPONSE, FrameDecoder
from nsqsmart.wire.identify import Grant, Offer, decode_grant
from nsqsmart.wire.streams import DeflateStream, SnappyStream

_MOST_IN_HANDSHAKE = 64 * 1024
"""Bytes of a frame before the first command: answers to IDENTIFY and AUTH are a few hundred."""
REFUSED_FOR_GOOD = frozenset({"E_BAD_BODY", "E_INVALID", "E_IDENTIFY_FAILED"})


@dataclass(frozen=True, slots=True)
class Greeting:
    """What every connection of a client says: computed once per client."""

    config: ClientConfig
    offer: Offer
    context: ssl.SSLContext | None


def make_greeting(
    config: ClientConfig,
    *,
    extend_support: bool = False,
    desired_tag: str | None = None,
    ext_filter: Mapping[str, Any] | None = None,
) -> Greeting:
    """What to say with these options; reads the TLS files, once."""
    wants_tls = config.tls_v1
    if config.snappy:
        # Not when one thread first connects: a fork just then hands the import's lock to the child.
        importlib.import_module("snappy")
    hostname = config.hostname or _socket.gethostname()
    offer = Offer(
        client_id=config.client_id or hostname.partition(".")[0],
        hostname=hostname,
        user_agent=config.user_agent or f"nsqsmart/{__version__}",
        heartbeat_interval=config.heartbeat_interval,
        msg_timeout=config.msg_timeout,
        output_buffer_size=config.output_buffer_size,
        output_buffer_timeout=config.output_buffer_timeout,
        sample_rate=config.sample_rate,
        tls=wants_tls,
        snappy=config.snappy,
        deflate=config.deflate,
        deflate_level=config.deflate_level,
        extend_support=extend_support,
        desired_tag=desired_tag or "",
        ext_filter=ext_filter,
    )
    return Greeting(config, offer, make_context(config) if wants_tls else None)


class Watcher:
    """Is told how far a handshake has come; this one does not care."""

    def begin(self, step: str) -> None:
        """*step* begins: identify, tls, snappy, deflate or auth; all before it went well."""

    def learn(self, grant: Grant) -> None:
        """What the server said in its answer to IDENTIFY."""


class _Conversation:
    """The dialogue before the connection is handed out: one frame at a time."""

    def __init__(
        self, transport: Transport, max_frame_size: int, deadline: float, watcher: Watcher
    ) -> None:
        self.transport = transport
        self.deadline = deadline
        self.watcher = watcher
        self.frames = FrameDecoder(min(max_frame_size, _MOST_IN_HANDSHAKE))
        self._waiting: list[bytes] = []

    def ask(self, data: bytes) -> bytes:
        """Send and wait for the answer."""
        self.transport.send(data, self.deadline)
        return self.answer()

    def answer(self) -> bytes:
        """The next response but heartbeats."""
        while True:
            found = self.frames.next(self._next_piece())
            if found is None:
                continue
            frame, rest = found
            if rest:
                self._waiting.insert(0, rest)
            if frame.type == RESPONSE and frame.data == HEARTBEAT:
                continue
            if frame.type == ERROR:
                raise decode_error(frame.data, self.transport.secret)
            if frame.type != RESPONSE:
                raise ProtocolError("a message came before any subscription")
            return frame.data

    def expect_ok(self, step: str) -> None:
        """The OK that follows every upgrade, inside the new layer."""
        if self.answer() != OK:
            raise ProtocolError(f"{step} was not confirmed by OK")

    def take_rest(self) -> bytes:
        """Bytes that came after the last frame: they belong to the next layer."""
        rest = b"".join(self._waiting) + self.frames.take_rest()
        self._waiting.clear()
        return rest

    def put(self, pieces: Iterable[bytes]) -> None:
        """Hold *pieces*, decoded already, for the next answer."""
        self._waiting.extend(pieces)

    def _next_piece(self) -> bytes:
        if not self._waiting:
            data = self.transport.socket.recv(self.deadline)
            self._waiting.extend(self.transport.decode(data))
        return self._waiting.pop(0) if self._waiting else b""


_NOBODY = Watcher()


def shake_hands(
    socket: Socket, greeting: Greeting, deadline: float, watcher: Watcher = _NOBODY
) -> tuple[Transport, Grant]:
    """Make *socket* usable before *deadline*.

    Raises ConnectError (also if the peer is no nsqd), TlsRequired, or ServerError when AUTH fails.
    """
    transport = Transport(socket)
    talk = _Conversation(transport, greeting.config.max_frame_size, deadline, watcher)
    try:
        watcher.begin("identify")
        hello = commands.MAGIC_V2 + commands.identify(greeting.offer.encode())
        grant = decode_grant(talk.ask(hello))
        watcher.learn(grant)
        _secure(talk, transport, greeting, grant)
        _compress(talk, transport, greeting, grant)
        _authorize(talk, greeting, grant, socket.peer)
    except (ConnectionLost, ResponseTimeout, ProtocolError) as error:
        wrong = isinstance(error, ProtocolError) and error.permanent
        raise ConnectError(f"handshake with {socket.peer}: {error}", permanent=wrong) from error
    except ServerError as error:
        if error.code in UNAUTHORIZED:
            raise
        # A refused IDENTIFY is refused again; everything else may pass.
        permanent = error.code in REFUSED_FOR_GOOD
        raise ConnectError(f"{socket.peer} refuses: {error}", permanent=permanent) from error
    if talk.take_rest():
        raise ConnectError(f"{socket.peer} sent more than was asked for")
    return transport, grant


def _secure(talk: _Conversation, transport: Transport, greeting: Greeting, grant: Grant) -> None:
    offer, peer = greeting.offer, transport.socket.peer
    if offer.tls or grant.tls:
        talk.watcher.begin("tls")
    if offer.tls != grant.tls:
        offered = "does not offer TLS" if offer.tls else "insists on TLS"
        raise TlsRequired(f"{peer} {offered}; nothing was sent but the IDENTIFY", permanent=True)
    if greeting.context:
        tls = TlsStream(greeting.context, peer.host)
        tls.shake_hands(transport.socket, talk.deadline, talk.take_rest())
        transport.add(tls)
        # With TLS 1.2 the server has the last word: its OK may have come along.
        talk.put(tls.incoming(b""))
        talk.expect_ok("TLS")


def _compress(talk: _Conversation, transport: Transport, greeting: Greeting, grant: Grant) -> None:
    offer, peer = greeting.offer, transport.socket.peer
    if offer.snappy or offer.deflate or grant.snappy or grant.deflate:
        talk.watcher.begin("snappy" if offer.snappy or grant.snappy else "deflate")
    if (offer.snappy and not grant.snappy) or (offer.deflate and not grant.deflate):
        wanted = "snappy" if offer.snappy else "deflate"
        raise ConnectError(f"{peer} does not offer {wanted}; switch the option off", permanent=True)
    if grant.snappy or grant.deflate:
        rest = talk.take_rest()
        transport.add(SnappyStream() if grant.snappy else DeflateStream(offer.deflate_level))
        # The bytes after the last frame have left the lower layers already.
        talk.put(transport.layers[-1].incoming(rest) if rest else ())
        talk.expect_ok("compression")


def _authorize(talk: _Conversation, greeting: Greeting, grant: Grant, peer: Address) -> None:
    secret = greeting.config.auth_secret
    if not grant.auth_required:
        return
    talk.watcher.begin("auth")
    if not secret:
        raise ServerError("E_AUTH_FIRST", f"{peer} asks for AUTH: give auth_secret")
    if not (greeting.offer.tls or greeting.config.allow_plaintext_auth or is_loopback(peer.host)):
        raise ConnectError(
            f"auth_secret is not sent to {peer} without TLS; "
            "use nsqs:// or nsqs+lookupd://, or set allow_plaintext_auth",
            permanent=True,
        )
    talk.transport.secret = secret.encode()
    if not _is_accepted(talk.ask(commands.auth(talk.transport.secret))):
        raise ProtocolError("the answer to AUTH is neither OK nor a JSON object")


def _is_accepted(answer: bytes) -> bool:
    """Whether *answer* accepts the secret: OK, or a JSON object with the identity."""
    try:
        return answer == OK or isinstance(json.loads(answer), dict)
    except (ValueError, RecursionError):
        return False
