"""The bodies of /mpub (protocol#http)."""

from __future__ import annotations

from nsqsmart.embedded.serving.http import HttpError

_SIZE = 4


def read_lines(data: bytes, max_msg_size: int, max_body_size: int) -> list[bytes]:  # noqa: ARG001 - the interface has it
    """One message a line; empty lines are none."""
    bodies = [line for line in data.split(b"\n") if line]
    if any(len(body) > max_msg_size for body in bodies):
        raise HttpError(413, "MSG_TOO_BIG")
    return bodies


def read_binary(data: bytes, max_msg_size: int, max_body_size: int) -> list[bytes]:
    """An MPUB body without its outer length."""
    count = int.from_bytes(data[:_SIZE], signed=True)
    # Shorter than it says, or none, or more than could fit.
    if len(data) < _SIZE or not 0 < count <= (max_body_size - _SIZE) // 5:
        raise HttpError(413, "BAD_BODY")
    bodies: list[bytes] = []
    position = _SIZE
    for _ in range(count):
        size = int.from_bytes(data[position : position + _SIZE], signed=True)
        start = position + _SIZE
        position = start + size
        if not 0 < size <= max_msg_size or position > len(data):
            raise HttpError(413, "BAD_MESSAGE")
        bodies.append(data[start:position])
    return bodies
