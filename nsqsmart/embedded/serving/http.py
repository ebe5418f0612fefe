"""As much of HTTP/1.1 as the servers' interfaces need; no framework, so that starting is quick."""

from __future__ import annotations

import json
import logging
import re
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import BufferedReader
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from nsqsmart.embedded.serving.connections import Connections, Served, reader_of

log = logging.getLogger(__name__)

_MAX_HEAD = 64 * 1024
_LINGER_RST = struct.pack("ii", 1, 0)
_REASONS = {
    100: "Continue",
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    413: "Request Entity Too Large",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_REQUEST_LINE = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.([01])")
V1_ACCEPT = "application/vnd.nsq; version=1.0"
_JSON = "application/json; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"


class Request(NamedTuple):
    """One request; header names in lower case, query values as the first one given."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    chunked: bool = False

    @property
    def wants_v1(self) -> bool:
        """Whether the client asked for the newer envelope, exactly (protocol#envelopes)."""
        return self.headers.get("accept") == V1_ACCEPT

    @property
    def without_blanks(self) -> Request:
        """The request without its empty arguments, which redesigned servers ignore."""
        return self._replace(query={name: value for name, value in self.query.items() if value})


class Response(NamedTuple):
    """One answer."""

    status: int = 200
    body: bytes = b""
    content_type: str = _TEXT
    v1: bool = False


class HttpError(Exception):
    """An answer other than 200: *status* and the servers' *text*."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")
        self.status = status
        self.text = text


def dumps(document: Any) -> bytes:
    """JSON without spaces, as Go writes it; half a surrogate pair is no character."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace")


def v1_reply(data: Any) -> Response:
    """The newer envelope: the document itself; text and nothing stay what they are."""
    if data is None:
        return Response(v1=True)
    if isinstance(data, str):
        return Response(body=data.encode(), v1=True)
    return Response(body=dumps(data), content_type=_JSON, v1=True)


def v1_failure(error: HttpError, *, escaped: bool) -> Response:
    """The newer envelope of an error; redesigned servers do not escape (protocol#envelopes)."""
    if escaped:
        body = dumps({"message": error.text})
    else:
        body = b'{"message":"%s"}' % error.text.encode("utf-8", "surrogateescape")
    return Response(error.status, body, _JSON, v1=True)


def legacy_reply(data: Any) -> Response:
    """The older envelope of redesigned servers; text is sent bare."""
    if isinstance(data, str):
        return Response(body=data.encode())
    document = {"status_code": 200, "status_txt": "OK", "data": data}
    return Response(body=dumps(document), content_type=_JSON)


def legacy_failure(error: HttpError) -> Response:
    """The older envelope of an error: always 500 (protocol#envelopes)."""
    document = {"status_code": 500, "status_txt": error.text, "data": None}
    return Response(500, dumps(document), _JSON)


Handler = Callable[[Request], Any]


class HttpRoute(NamedTuple):
    """What a path does; *negotiated* ones choose the envelope by the Accept header."""

    methods: tuple[str, ...]
    handler: Handler
    negotiated: bool = False


class Router:
    """The paths of one server."""

    def __init__(self, routes: Mapping[str, HttpRoute], *, escaped: bool) -> None:
        self._routes = routes
        self._escaped = escaped

    def answer(self, request: Request) -> Response:
        """Carry out a request."""
        route = self._routes.get(request.path) or self._routes.get(_family(request.path))
        if route is None:
            return v1_failure(HttpError(404, "NOT_FOUND"), escaped=self._escaped)
        if request.method not in route.methods:
            return v1_failure(HttpError(405, "METHOD_NOT_ALLOWED"), escaped=self._escaped)
        legacy = route.negotiated and not request.wants_v1
        try:
            data = route.handler(request)
        except HttpError as error:
            return legacy_failure(error) if legacy else v1_failure(error, escaped=self._escaped)
        except Exception:
            log.exception("a handler of %s failed", request.path)
            return v1_failure(HttpError(500, "INTERNAL_ERROR"), escaped=self._escaped)
        if isinstance(data, Response):
            return data
        return legacy_reply(data) if legacy else v1_reply(data)


def _family(path: str) -> str:
    """The route of everything below a path, ``/config/*``."""
    head, _, name = path.rpartition("/")
    return f"{head}/*" if name else path


class ResetConnection(Exception):
    """Raised instead of an answer: the connection ends by RST."""


class _Gone(Exception):
    """The client has left, or must."""


class HttpConnection(Served):
    """One HTTP client."""

    def __init__(
        self, sock: socket.socket, server: HttpServer, context: ssl.SSLContext | None
    ) -> None:
        super().__init__(sock, server.connections, "http")
        self._server = server
        self._context = context

    def _serve(self) -> None:
        try:
            if self._context is not None:
                self._sock = self._context.wrap_socket(self._sock, server_side=True)
            with reader_of(self._sock) as stream:
                while self._serve_one(stream):
                    pass
        except ResetConnection:
            with suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RST)
        except (_Gone, OSError, ValueError):
            pass
        finally:
            self._sock.close()

    def _serve_one(self, stream: BufferedReader) -> bool:
        """One request; whether the connection stays."""
        head = _read_head(stream)
        match = _REQUEST_LINE.fullmatch(head[0])
        if match is None:
            self._send(Response(400, b"400 Bad Request"), keep=False)
            return False
        headers = {
            name.strip().lower().decode("latin-1"): value.strip().decode("latin-1")
            for name, _, value in (line.partition(b":") for line in head[1:])
        }
        connection = headers.get("connection", "").lower()
        keep = connection == "keep-alive" if match[3] == b"0" else connection != "close"
        response = self._server.answer(self._request(stream, match, headers))
        if response is None:
            return False
        self._send(response, keep=keep)
        return keep

    def _request(
        self, stream: BufferedReader, match: re.Match[bytes], headers: dict[str, str]
    ) -> Request:
        target = match[2].decode("latin-1")
        path, _, query = target.partition("?")
        if headers.get("expect", "").lower() == "100-continue":
            self._sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        if chunked:
            body = self._read_chunks(stream)
        else:
            size = int(headers.get("content-length", 0))
            body = self._read(stream, size, self._server.max_body)
        values: dict[str, str] = {}
        for name, value in parse_qsl(query, keep_blank_values=True):
            values.setdefault(name, value)
        return Request(match[1].decode(), path, values, headers, body, chunked)

    def _read(self, stream: BufferedReader, count: int, limit: int) -> bytes:
        if not 0 <= count <= limit:
            # What follows is not read: the answer, and the end.
            self._send(Response(413, b""), keep=False)
            raise _Gone
        data = stream.read(count)
        if len(data) < count:
            raise _Gone
        return data

    def _read_chunks(self, stream: BufferedReader) -> bytes:
        pieces: list[bytes] = []
        left = self._server.max_body
        while size := int(_read_line(stream).partition(b";")[0], 16):
            pieces.append(self._read(stream, size, left))
            left -= size
            _read_line(stream)
        while _read_line(stream):
            pass
        return b"".join(pieces)

    def _send(self, response: Response, *, keep: bool) -> None:
        reason = _REASONS.get(response.status, "Unknown")
        lines = [
            f"HTTP/1.1 {response.status} {reason}",
            f"Content-Type: {response.content_type}",
            f"Content-Length: {len(response.body)}",
        ]
        if response.v1:
            lines.append("X-Nsq-Content-Type: nsq; version=1.0")
        if not keep:
            lines.append("Connection: close")
        self._sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + response.body)


def _read_head(stream: BufferedReader) -> list[bytes]:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline(_MAX_HEAD)
        head += line
        if not line or len(head) > _MAX_HEAD:
            raise _Gone
    return head[:-4].split(b"\r\n")


def _read_line(stream: BufferedReader) -> bytes:
    line = stream.readline(_MAX_HEAD)
    if not line.endswith(b"\r\n"):
        raise _Gone
    return line[:-2]


class HttpServer:
    """Answers every connection it is given; *answer* runs on the connection's thread.

    Where it returns None, the connection ends unanswered.
    """

    def __init__(self, answer: Callable[[Request], Response | None], max_body: int) -> None:
        self.answer = answer
        self.max_body = max_body
        self.connections = Connections()

    def serve(self, sock: socket.socket, context: ssl.SSLContext | None = None) -> None:
        """Begin to answer a client."""
        HttpConnection(sock, self, context).start()
