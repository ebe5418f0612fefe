"""A socket and the layers on it: TLS, then compression."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nsqsmart.net.sockets import Socket
from nsqsmart.wire.streams import Stream


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
