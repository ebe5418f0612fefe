"""A socket and the layers on it: TLS as a byte transform over memory buffers, then compression."""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from nsqsmart.config import ClientConfig
from nsqsmart.errors import ConfigError, ConnectError, ConnectionLost, ProtocolError
from nsqsmart.net.sockets import Socket
from nsqsmart.wire.streams import Stream

log = logging.getLogger("nsqsmart")

_PIECE = 64 * 1024
_VERSIONS = {"tls1.2": ssl.TLSVersion.TLSv1_2, "tls1.3": ssl.TLSVersion.TLSv1_3}
_warned: list[bool] = []


def make_context(config: ClientConfig) -> ssl.SSLContext:
    """The context that the options describe; verification and host name check on by default."""
    if isinstance(config.tls_config, ssl.SSLContext):
        return config.tls_config
    _check_files(config)
    try:
        context = ssl.create_default_context(cafile=config.tls_root_ca_file)
        if config.tls_cert:
            context.load_cert_chain(config.tls_cert, config.tls_key, _no_password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"TLS files cannot be used: {error}") from error
    context.minimum_version = _VERSIONS[config.tls_min_version]
    if config.tls_insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        _warn_of_trust()
    return context


def _warn_of_trust() -> None:
    """Once per process: what was meant for a test is easily left in."""
    if not _warned:
        _warned.append(True)
        log.warning(
            "tls_insecure_skip_verify is set: any server is trusted, with any certificate, "
            "and can read and change everything"
        )


def _no_password() -> str:
    """OpenSSL would ask the terminal, and wait for it."""
    raise ConfigError(
        "tls_key is encrypted: load it with its password into an SSLContext, and give that as "
        "tls_config"
    )


def _check_files(config: ClientConfig) -> None:
    files = {
        "tls_root_ca_file": config.tls_root_ca_file,
        "tls_cert": config.tls_cert,
        "tls_key": config.tls_key,
    }
    for option, name in files.items():
        if name and not Path(name).is_file():
            raise ConfigError(f"{option}={name!r}: no such file")


class TlsStream:
    """A :class:`nsqsmart.wire.streams.Stream` after :meth:`shake_hands`."""

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        self._lock = threading.Lock()  # guards the three below; held for arithmetic only
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)

    def shake_hands(self, sock: Socket, deadline: float, rest: bytes = b"") -> None:
        """Run the handshake before *deadline*; *rest* came after the last clear frame."""
        self._incoming.write(rest)
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                sock.send(self._outgoing.read(), deadline)
                self._incoming.write(sock.recv(deadline))
                continue
            except ssl.SSLError as error:
                # A certificate that is not trusted now will not be in a second either.
                untrusted = isinstance(error, ssl.SSLCertVerificationError)
                raise ConnectError(
                    f"TLS handshake with {sock.peer} failed: {error}", permanent=untrusted
                ) from error
            sock.send(self._outgoing.read(), deadline)
            return

    def outgoing(self, data: bytes) -> bytes:
        """Encrypt; includes what reading made TLS want to say. Raises ConnectionLost."""
        with self._lock:
            try:
                self._tls.write(data)
            except ssl.SSLError as error:
                # An alert that was read, say: nothing of *data* has left.
                raise ConnectionLost(f"TLS stream broken: {error}") from error
            return self._outgoing.read()

    def incoming(self, data: bytes) -> Iterator[bytes]:
        """Decrypt what is complete."""
        with self._lock:
            self._incoming.write(data)
        while (piece := self._read()) is not None:
            yield piece

    def _read(self) -> bytes | None:
        with self._lock:
            try:
                return self._tls.read(_PIECE) or None
            except ssl.SSLWantReadError:
                return None
            except ssl.SSLError as error:
                raise ProtocolError(f"TLS stream broken: {error}") from error


class Transport:
    """Encodes what is sent and decodes what is received; nothing at all on a plain connection."""

    __slots__ = ("layers", "secret", "socket")

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self.layers: tuple[Stream, ...] = ()
        self.secret = b""
        """What the peer was told in confidence: no text of its errors may repeat it."""

    def add(self, layer: Stream) -> None:
        """Put *layer* above those that are there."""
        self.layers = (*self.layers, layer)

    def encode(self, data: bytes) -> bytes:
        """*data* as it goes on the wire."""
        for layer in reversed(self.layers):
            data = layer.outgoing(data)
        return data

    def decode(self, data: bytes) -> Iterable[bytes]:
        """What *data* holds, in pieces of bounded size."""
        return self._decode(data, 0) if self.layers else (data,)

    def _decode(self, data: bytes, index: int) -> Iterator[bytes]:
        if index == len(self.layers):
            yield data
            return
        for piece in self.layers[index].incoming(data):
            yield from self._decode(piece, index + 1)

    def send(self, data: bytes, deadline: float) -> None:
        """Encode and send."""
        self.socket.send(self.encode(data) if self.layers else data, deadline)
