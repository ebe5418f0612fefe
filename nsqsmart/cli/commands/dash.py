"""``nsqsmart dash``: one page that shows what is in the cluster, on this machine alone.

The page asks this process, and this process asks the servers, while a browser has it open. Its
HTTP server is small: two addresses.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from base64 import b64encode
from collections import deque
from collections.abc import Hashable, Sequence
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from nsqsmart import Admin, AdminConfig, __version__
from nsqsmart.cli.common import flags
from nsqsmart.cli.common.figures import Row, rates, rows_of
from nsqsmart.cli.common.parsing import Commands, Parser
from nsqsmart.errors import ConfigError, NsqError
from nsqsmart.terminal import INTERRUPTED

_SAMPLES = 150
_MOST_TOPICS = 500

_HOST = "127.0.0.1"
_OURS = (_HOST, "localhost")
_PATIENCE = 10.0

_PORT = 4175
_ADMIN_TIMEOUT = "5s"
_ABOUT = """\
Serve a page with topics, channels, depths and rates, and the partitions by node with their
leaders, at http://127.0.0.1:PORT/ until Ctrl-C. Only this machine can see it: to look from another
machine, tunnel the port. The servers are asked only while the page is open.
"""


class ClusterFigures:
    """Asks the servers at most once an *interval*, however many look."""

    def __init__(self, admin: Admin, interval: float) -> None:
        self._admin = admin
        self._interval = interval
        self._asking = threading.Lock()  # guards everything below
        self._asked_at = float("-inf")
        self._rows: dict[Hashable, Row] = {}
        self._pasts: dict[Hashable, deque[tuple[int, float | None]]] = {}
        self._found: dict[str, Any] = {}

    def now(self) -> dict[str, Any]:
        """The figures, at most an interval old; with an ``error`` where there are none."""
        with self._asking:
            began = time.monotonic()
            if began - self._asked_at >= self._interval:
                try:
                    self._found = self._ask(began - self._asked_at)
                except NsqError as error:
                    # What was known last stays on the page, and the reason above it.
                    self._found = {"topics": [], "nodes": [], **self._found, "error": str(error)}
                self._asked_at = time.monotonic()
            return self._found

    def _ask(self, since: float) -> dict[str, Any]:
        stats = self._admin.stats()
        rows = rates(rows_of(stats, by_partition=False), self._rows, since)
        self._rows = {row.place: row for row in rows}
        self._remember(rows)
        names = sorted({row.topic for row in rows})
        return {
            "version": __version__,
            "cluster": repr(self._admin).removeprefix("<Admin ").removesuffix(">"),
            "at": time.time_ns() // 1_000_000,
            "interval": self._interval,
            "nodes": self._nodes(stats),
            "topics": [self._topic(name, rows, stats) for name in names[:_MOST_TOPICS]],
            "left_out": max(0, len(names) - _MOST_TOPICS),
            "error": None,
        }

    def _remember(self, rows: list[Row]) -> None:
        pasts: dict[Hashable, deque[tuple[int, float | None]]] = {}
        for row in rows:
            past = self._pasts.get(row.place) or deque(maxlen=_SAMPLES)
            past.append((row.depth, row.egress if row.channel else row.ingress))
            pasts[row.place] = past
        self._pasts = pasts

    def _nodes(self, stats: Any) -> list[dict[str, Any]]:
        silent = {each.nsqd: each.reason for each in stats.unreachable}
        listed = {
            node.nsqd: {"nsqd": node.nsqd, "version": node.version, "name": node.hostname}
            for node in self._admin.nodes()
        }
        for nsqd in silent:
            listed.setdefault(nsqd, {"nsqd": nsqd, "version": "", "name": ""})
        leads: dict[str, int] = {}
        for entry in stats.topics:
            leads[entry.nsqd] = leads.get(entry.nsqd, 0) + entry.leader
        return [
            {**node, "reason": silent.get(nsqd), "leads": leads.get(nsqd, 0)}
            for nsqd, node in sorted(listed.items())
        ]

    def _topic(self, name: str, rows: list[Row], stats: Any) -> dict[str, Any]:
        own = [row for row in rows if row.topic == name]
        entries = [entry for entry in stats.topics if entry.topic == name]
        return {
            "topic": name,
            "messages": sum(entry.message_count for entry in entries if entry.leader),
            "ingress": max((row.ingress for row in own if row.ingress is not None), default=None),
            "paused": any(entry.paused for entry in entries),
            "partitions": [
                {"partition": entry.partition, "nsqd": entry.nsqd, "leader": entry.leader}
                for entry in entries
            ],
            "channels": [self._channel(row) for row in own if row.channel],
            "waiting": sum(row.depth for row in own if not row.channel),
        }

    def _channel(self, row: Row) -> dict[str, Any]:
        past = self._pasts[row.place]
        return {
            **row.record(),
            "depths": [depth for depth, _ in past],
            "rates": [rate for _, rate in past],
        }


def listen(figures: ClusterFigures, ports: Sequence[int]) -> ThreadingHTTPServer:
    """A server of the page at the first of *ports* that is free; raises ConfigError."""
    handler = _handler(figures)
    for port in ports:
        try:
            return ThreadingHTTPServer((_HOST, port), handler)
        except OSError as error:
            reason = f"--port {port}: {error.strerror}"
    raise ConfigError(reason)


def _handler(figures: ClusterFigures) -> type[BaseHTTPRequestHandler]:
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
                self._answer("application/json", json.dumps(figures.now()).encode())
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


def add_parser(commands: Commands[Parser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("dash", help="a page about the cluster", description=_ABOUT)
    parser.add_argument(
        "--port",
        type=flags.port,
        metavar="PORT",
        help=f"where (default {_PORT}, or any if it is taken)",
    )
    flags.add_seconds(parser, "--interval", "how often the servers are asked (2)", default=2.0)
    flags.add_address(parser)
    flags.add_options(parser, AdminConfig)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    # A page must not hang where an nsqd does.
    options = {"admin_timeout": _ADMIN_TIMEOUT} | flags.client_options(chosen, AdminConfig)
    figures = ClusterFigures(Admin(flags.address_of(chosen), **options), chosen.interval)
    ports = [_PORT, 0] if chosen.port is None else [chosen.port]
    with listen(figures, ports) as server:
        try:
            # Who reads the address may send a signal at once.
            print(
                f"nsqsmart dash: http://127.0.0.1:{server.server_port}/ ; Ctrl-C ends", flush=True
            )
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nnsqsmart dash: ended", file=sys.stderr)
    return INTERRUPTED
