"""Layers on a socket: TLS, then compression; what is read and written comes out again."""

from __future__ import annotations

import random

from nsqsmart.net.transport import Transport
from nsqsmart.wire.streams import DeflateStream, SnappyStream


class Reversed:
    """A layer that can be seen in the bytes."""

    def __init__(self, name: bytes) -> None:
        self._name = name

    def outgoing(self, data: bytes) -> bytes:
        return self._name + data

    def incoming(self, data: bytes):
        assert data.startswith(self._name)
        yield data[len(self._name) :]


class Cancellable:
    """Stands for a socket."""

    def __init__(self) -> None:
        self.sent = b""

    def send(self, data: bytes, deadline: float) -> None:
        self.sent += data


def test_without_a_layer_the_bytes_pass_unchanged():
    wire = Cancellable()
    transport = Transport(wire)
    transport.send(b"abc", 0.0)
    assert wire.sent == transport.encode(b"abc") == b"abc"
    assert list(transport.decode(b"abc")) == [b"abc"]


def test_the_layer_added_last_is_the_innermost():
    transport = Transport(Cancellable())
    transport.add(Reversed(b"tls:"))
    transport.add(Reversed(b"zip:"))
    assert transport.encode(b"x") == b"tls:zip:x"
    assert list(transport.decode(b"tls:zip:x")) == [b"x"]


def test_compressed_streams_survive_every_cut():
    for layer in (SnappyStream, DeflateStream):
        here, there = Transport(Cancellable()), Transport(Cancellable())
        here.add(layer())
        there.add(layer())
        bodies = [random.Random(n).randbytes(n * 7) + b"a" * n for n in range(1, 60)]
        encoded = b"".join(map(here.encode, bodies))
        decoded = b""
        for start in range(0, len(encoded), 13):
            decoded += b"".join(there.decode(encoded[start : start + 13]))
        assert decoded == b"".join(bodies)
