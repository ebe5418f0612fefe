"""The little that a server asks of others over HTTP; the library's own client is not for here."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

_MAX_REPLY = 1024 * 1024
_PIECE = 64 * 1024


def dial(address: tuple[str, int], timeout: float) -> socket.socket:
    """A connection whose every wait ends after *timeout* seconds; raises OSError."""
    refused: OSError = ConnectionError("the name has no address")
    for family, kind, protocol, _, where in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(timeout)
            sock.connect(where)
        except OSError as error:
            sock.close()
            refused = error
        else:
            return sock
    raise refused


def get_json(address: tuple[str, int], target: str, timeout: float) -> Any:
    """A JSON document by GET, at most a MiB, in *timeout* seconds.

    Raises OSError, and ValueError for anything but a 200 with such a document.
    """
    deadline = time.monotonic() + timeout
    with dial(address, timeout) as sock:
        accept = "application/vnd.nsq; version=1.0"
        head = f"GET {target} HTTP/1.0\r\nHost: {address[0]}\r\nAccept: {accept}\r\n\r\n"
        sock.sendall(head.encode())
        data = b""
        while piece := sock.recv(_PIECE):
            data += piece
            left = deadline - time.monotonic()
            if len(data) > _MAX_REPLY or left <= 0:
                raise TimeoutError(f"{address} answers too much, or too slowly")
            sock.settimeout(left)
    head_bytes, _, body = data.partition(b"\r\n\r\n")
    if head_bytes.split(b" ", 2)[1:2] != [b"200"]:
        raise ValueError(f"{address} answered {head_bytes[:100]!r}")
    return json.loads(body)
