"""Bare socket loops: what a client of this machine and this interpreter can reach at most.

Each is a function: the same text at module level is slower by half.
"""

from __future__ import annotations

import socket
import struct

from harness import Sample, connect, timed

BODY = b"x" * 200
BATCH = 1000
HEAD = struct.Struct(">IIqH16s")
RECORD = HEAD.size + len(BODY)
OK_FRAME = b"\x00\x00\x00\x06\x00\x00\x00\x00OK"
FIN = b"FIN 0123456789abcdef\n"


def stamped(now: int) -> bytes:
    """A body that says when it left, in nanoseconds since the epoch."""
    return (b"%019d" % now).ljust(len(BODY), b"x")


def publish_batches(
    address: tuple[str, int], topic: str, count: int, batch: int, window: int = 1
) -> Sample:
    """MPUB of *batch* messages at a time, *window* of them without an answer; counts messages."""
    entry = len(BODY).to_bytes(4) + BODY
    body = batch.to_bytes(4) + entry * batch
    command = b"MPUB %s\n" % topic.encode() + len(body).to_bytes(4) + body
    with connect(address) as sock:

        def work() -> None:
            whole, answered = count // batch, 0
            for number in range(whole):
                sock.sendall(command)
                wanted = whole if number == whole - 1 else number + 2 - window
                while answered < wanted * len(OK_FRAME):
                    answered += len(_answer(sock))

        return timed(count, work)


def _answer(sock: socket.socket) -> bytes:
    data = sock.recv(4096)
    if not data or b"E_" in data:
        raise SystemExit(f"the nsqd refused: {data!r}")
    return data


def fill(address: tuple[str, int], topic: str, count: int) -> None:
    """Store *count* messages and one batch more, before the clock runs.

    A server that keeps a buffer waits with the last messages of a stream until it is flushed; with
    more to send it never comes to that.
    """
    publish_batches(address, topic, count + BATCH, BATCH)


def consume(address: tuple[str, int], topic: str, count: int, rdy: int) -> Sample:
    """Receive, parse, one FIN batch a recv; no threads."""

    def work() -> None:
        with _subscribe(address, topic, rdy) as sock:
            drain(sock, count)

    return timed(count, work)


def drain(sock: socket.socket, count: int) -> None:
    """recv, one unpack a message, FIN."""
    recv, send, unpack = sock.recv, sock.sendall, HEAD.unpack_from
    tail = b""
    while count > 0:
        data = tail + recv(65536)
        position, length, ids = 0, len(data), []
        while length - position >= HEAD.size:
            size, _type, _time, _attempts, message_id = unpack(data, position)
            end = position + 4 + size
            if end > length:
                break
            data[position + HEAD.size : end]
            ids.append(message_id)
            position = end
        tail = data[position:]
        if ids:
            send(b"FIN " + b"\nFIN ".join(ids) + b"\n")
            count -= len(ids)


def skim(address: tuple[str, int], topic: str, count: int, rdy: int) -> Sample:
    """Count bytes, answer with FINs made beforehand: for a source that does not look at ids."""
    fins = memoryview(FIN * rdy)
    buffer = bytearray(rdy * RECORD)

    def work() -> None:
        with _subscribe(address, topic, rdy) as sock:
            recv, send = sock.recv_into, sock.sendall
            received = done = 0
            while done < count:
                received += recv(buffer)
                whole = received // RECORD
                if whole > done:
                    send(fins[: (whole - done) * len(FIN)])
                    done = whole

    return timed(count, work)


def _subscribe(address: tuple[str, int], topic: str, rdy: int) -> socket.socket:
    sock = connect(address)
    sock.sendall(b"SUB %s bench\n" % topic.encode())
    sock.recv(4096)
    sock.sendall(b"RDY %d\n" % rdy)
    return sock
