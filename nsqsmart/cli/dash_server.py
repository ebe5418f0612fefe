"""The page's own small HTTP server: two addresses, for this machine alone."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Protocol

from nsqsmart.errors import ConfigError

_HOST = "127.0.0.1"
_OURS = (_HOST, "localhost")
_PATIENCE = 10.0


class Source(Protocol):
    """What the page shows."""

    def now(self) -> dict[str, object]:
        """The figures."""


def listen(source: Source, ports: Sequence[int]) -> ThreadingHTTPServer:
    """A server of the page at the first of *ports* that is free; raises ConfigError."""
    handler = _handler(source)
    for port in ports:
        try:
            return ThreadingHTTPServer((_HOST, port), handler)
        except OSError as error:
            reason = f"--port {port}: {error.strerror}"
    raise ConfigError(reason)


def _handler(source: Source) -> type[BaseHTTPRequestHandler]:
    page = files("nsqsmart.cli").joinpath("pages", "dash.html").read_text("utf-8")
    policy = _policy(page)

    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE
        server_version, sys_version = "nsqsmart", ""

        def do_GET(self) -> None:
            # A page of another site, whose name resolves to this machine, must not read it.
            if self.headers.get("Host", "").rpartition(":")[0] not in _OURS:
                self.send_error(HTTPStatus.FORBIDDEN, "this page is for this machine alone")
            elif self.path == "/":
                self._answer("text/html; charset=utf-8", page.encode())
            elif self.path == "/figures.json":
                self._answer("application/json", json.dumps(source.now()).encode())
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _answer(self, kind: str, body: bytes) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Security-Policy", policy)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A line for every look is not read."""

    return Handler


def _policy(page: str) -> str:
    """Only the script that is in *page* runs, and it asks only this server."""
    script = page.partition("<script>")[2].partition("</script>")[0]
    code = b64encode(sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{code}'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
