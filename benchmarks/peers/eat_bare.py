"""A bare socket: recv, one unpack a message, one run of FINs a recv; in a function, no threads."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from driver import Order, Work, serve
from tally import BLOCK_SECONDS, rdy_of

HEAD = struct.Struct(">IIqH16s")


class Loop:
    """One subscribed connection."""

    def __init__(self, order: Order) -> None:
        self._sock = socket.create_connection((order.host, order.port))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.sendall(b"  V2SUB %s bench\n" % order.topic.encode())
        self._sock.recv(4096)
        self._sock.sendall(b"RDY %d\n" % rdy_of(order))
        self._tail = b""
        self._pause = BLOCK_SECONDS if order.figure == "block" else 0

    def work(self, count: int) -> list[int]:
        """Take so many, and what comes with them."""
        recv, send, unpack = self._sock.recv, self._sock.sendall, HEAD.unpack_from
        tail, size_of_head = self._tail, HEAD.size
        while count > 0:
            data = tail + recv(65536)
            position, length, ids = 0, len(data), []
            while length - position >= size_of_head:
                size, _type, _time, _attempts, message_id = unpack(data, position)
                end = position + 4 + size
                if end > length:
                    break
                data[position + size_of_head : end]
                ids.append(message_id)
                position = end
            tail = data[position:]
            if ids:
                if self._pause:
                    time.sleep(self._pause * len(ids))
                send(b"FIN " + b"\nFIN ".join(ids) + b"\n")
                count -= len(ids)
        self._tail = tail
        return []

    def close(self) -> None:
        """End it."""
        self._sock.close()


@contextmanager
def session(order: Order) -> Iterator[Work]:
    """One message a command."""
    loop = Loop(order)
    try:
        yield loop.work
    finally:
        loop.close()


if __name__ == "__main__":
    serve(dict.fromkeys(("consume", "block", "one"), session))
