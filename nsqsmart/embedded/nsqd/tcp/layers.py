"""TLS and compression between a socket and the frames of one connection (protocol#upgrades)."""

from __future__ import annotations

import ssl
import threading
from typing import Any

from nsqsmart.wire.streams import Stream

_PIECE = 64 * 1024


class TlsLayer:
    """TLS over memory: any thread may encode while another decodes.

    An SSLSocket shared by a reading and a writing thread breaks; an SSLObject under a lock does
    not, and nothing here ever waits for the network.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._lock = threading.Lock()

    def handshake(self, data: bytes) -> tuple[bool, bytes]:
        """Go on with what the client sent: whether it is done, and what to send.

        Raises :class:`ssl.SSLError` when the client cannot be understood, or is refused; what TLS
        itself says of that is in :meth:`last_words`.
        """
        self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False, self._outgoing.read()
        return True, self._outgoing.read()

    def last_words(self) -> bytes:
        """The TLS alert after a handshake that failed."""
        return self._outgoing.read()

    def outgoing(self, data: bytes) -> bytes:
        """The bytes to send for *data*."""
        with self._lock:
            self._tls.write(data)
            return self._outgoing.read()

    def common_name(self) -> str:
        """The CN of the client's certificate, "" without one that was verified."""
        certificate: Any = self._tls.getpeercert() or {}
        names = dict(pair for part in certificate.get("subject", ()) for pair in part)
        return str(names.get("commonName", ""))

    def incoming(self, data: bytes) -> bytes:
        """What *data* holds; raises :class:`ssl.SSLError`, EOFError at the end of the stream."""
        pieces: list[bytes] = []
        with self._lock:
            self._incoming.write(data)
            while True:
                try:
                    piece = self._tls.read(_PIECE)
                except ssl.SSLWantReadError:
                    return b"".join(pieces)
                except ssl.SSLZeroReturnError as end:
                    raise EOFError from end
                if not piece:
                    raise EOFError
                pieces.append(piece)


class Layers:
    """What stands on the socket: nothing, TLS, compression, or compression over TLS."""

    def __init__(self) -> None:
        self.tls: TlsLayer | None = None
        self.stream: Stream | None = None

    @property
    def plain(self) -> bool:
        """Whether bytes pass through unchanged."""
        return self.tls is None and self.stream is None

    def outgoing(self, data: bytes) -> bytes:
        """The bytes to send for *data*."""
        if self.stream is not None:
            data = self.stream.outgoing(data)
        return data if self.tls is None else self.tls.outgoing(data)

    def incoming(self, data: bytes) -> bytes:
        """What the received *data* holds."""
        if self.tls is not None:
            data = self.tls.incoming(data)
        return data if self.stream is None else b"".join(self.stream.incoming(data))
