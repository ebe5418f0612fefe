"""A bare socket: one sendall and one recv a command, in a function."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from time import perf_counter_ns

from driver import Order, Work, in_threads, serve


def exchange(sock: socket.socket, command: bytes, width: int, count: int) -> list[int]:
    """Publish *count* messages, *width* of them a command."""
    send, recv = sock.sendall, sock.recv
    taken: list[int] = []
    clock, note = perf_counter_ns, taken.append
    for _ in range(count // width):
        begun = clock()
        send(command)
        recv(4096)
        note(clock() - begun)
    return taken


def connect(order: Order) -> socket.socket:
    """A connection after the magic."""
    sock = socket.create_connection((order.host, order.port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(b"  V2")
    return sock


def single(order: Order) -> bytes:
    """PUB."""
    return b"PUB %s\n" % order.topic.encode() + len(order.body).to_bytes(4) + order.body


@contextmanager
def sync(order: Order) -> Iterator[Work]:
    """One message a command."""
    with connect(order) as sock:
        yield partial(exchange, sock, single(order), 1)


@contextmanager
def threads(order: Order) -> Iterator[Work]:
    """A socket for each thread."""
    with ExitStack() as stack:
        socks = [stack.enter_context(connect(order)) for _ in range(order.width)]
        works = [partial(exchange, sock, single(order), 1) for sock in socks]
        yield partial(in_threads, works)


@contextmanager
def mpub(order: Order) -> Iterator[Work]:
    """A batch made beforehand."""
    entry = len(order.body).to_bytes(4) + order.body
    body = order.width.to_bytes(4) + entry * order.width
    command = b"MPUB %s\n" % order.topic.encode() + len(body).to_bytes(4) + body
    with connect(order) as sock:
        yield partial(exchange, sock, command, order.width)


if __name__ == "__main__":
    serve({"sync": sync, "threads": threads, "mpub": mpub})
