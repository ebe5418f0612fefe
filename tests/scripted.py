"""Lookups and nsqds that say over HTTP what a test wants them to say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import nsqsmart
from tests.peers import Peer, Talk, http_answer

HA, IO = "0.3.7-HA.1.13.0", "1.3.0"
OK = (200, None)
NOT_LEADER = (400, {"message": "E_FAILED_ON_NOT_LEADER"})
NOT_FOUND = (404, {"message": "NOT_FOUND"})
NO_TOPIC = (404, {"message": "TOPIC_NOT_FOUND"})
NO_CHANNEL = (404, {"message": "CHANNEL_NOT_FOUND"})
KEY_NOT_FOUND = (500, {"message": "Key not found"})
SILENCE = (0, None)
QUICK = {
    "lookupd_min_refresh_interval": 0.01,
    "max_retry_pause": 0.05,
    "lookupd_request_timeout": 5,
    "admin_timeout": 10,
}

Reply = tuple[int, Any]


class Asked(NamedTuple):
    """One request."""

    server: str
    method: str
    path: str
    query: dict[str, str]
    body: bytes


class Server:
    """Answers each path as told: *answers* in turn, the last one again and again."""

    def __init__(self, name: str, requests: list[Asked]) -> None:
        self.name = name
        self.answers: dict[str, list[Reply]] = {}
        self._requests = requests
        self.peer = Peer(self._play)

    @property
    def port(self) -> int:
        return self.peer.address[1]

    def say(self, path: str, *answers: Reply) -> None:
        self.answers[path] = list(answers)

    def _play(self, talk: Talk) -> None:
        method, target, _ = talk.line().decode().split()
        size = 0
        while line := talk.line().strip().lower():
            if line.startswith(b"content-length:"):
                size = int(line.partition(b":")[2])
        parts = urlsplit(target)
        asked = Asked(self.name, method, parts.path, dict(parse_qsl(parts.query)), talk.read(size))
        self._requests.append(asked)
        left = self.answers.get(parts.path, [NOT_FOUND])
        status, document = left.pop(0) if len(left) > 1 else left[0]
        if not status:
            talk.stall()
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        talk.send(http_answer(status, b"" if document is None else body))


class World:
    """Lookups and nsqds that are scripts, and what they were asked."""

    def __init__(self, stack: ExitStack, dialect: str) -> None:
        self.requests: list[Asked] = []
        self._stack = stack
        self._dialect = dialect
        self.lookups = [self._start(f"l{number}") for number in range(2)]
        self.nsqds = [self._start(f"n{number}") for number in range(2)]
        self.lists_nodes()
        self.leads(0)

    def _start(self, name: str) -> Server:
        server = Server(name, self.requests)
        self._stack.enter_context(server.peer)
        return server

    @property
    def url(self) -> str:
        return "nsq+lookupd://" + ",".join(f"127.0.0.1:{each.port}" for each in self.lookups)

    def admin(self, **options: object) -> nsqsmart.Admin:
        return nsqsmart.Admin(self.url, **(QUICK | options))

    def everywhere(self, path: str, *answers: Reply) -> None:
        for lookup in self.lookups:
            lookup.say(path, *answers)

    def entry(self, number: int, version: str, **values: object) -> dict[str, Any]:
        """An nsqd; no server listens on its TCP port."""
        return {
            "broadcast_address": "127.0.0.1",
            "tcp_port": 4150 + number,
            "http_port": self.nsqds[number].port,
            "version": version,
            "hostname": f"host{number}",
        } | values

    def lists_nodes(self, *topics: str, **values: object) -> None:
        """Both nsqds are listed, with *topics* for the first one."""
        version = IO if self._dialect == "original" else HA
        listed = [
            self.entry(number, version, topics=list(topics) if number == 0 else [], **values)
            for number in range(2)
        ]
        self.everywhere("/nodes", (200, {"producers": listed}))
        self.everywhere("/topics", (200, {"topics": list(topics)}))

    def leads(self, number: int) -> None:
        """Which lookup leads."""
        if self._dialect == "original":
            self.everywhere("/listlookup", NOT_FOUND)
            self.everywhere("/lookup", NO_TOPIC)
            return
        nodes = [{"NodeIP": "127.0.0.1", "HttpPort": str(each.port)} for each in self.lookups]
        known = {"lookupdleader": nodes[number], "lookupdnodes": nodes}
        self.everywhere("/listlookup", (200, known))

    def led(self, *leaders: int | None, meta: dict[str, Any] | None = None) -> Reply:
        """A lookup answer: which nsqd leads partition 0, 1, ..."""
        partitions = {
            str(number): self.entry(nsqd, HA)
            for number, nsqd in enumerate(leaders)
            if nsqd is not None
        }
        full = {"partition_num": len(leaders), "replica": 1} | (meta or {})
        return 200, {"meta": full, "partitions": partitions, "producers": []}

    def posts(self) -> list[str]:
        """Who was asked to change something, in order, with the partition."""
        return [
            asked.server + asked.query.get("partition", "").strip("*")
            for asked in self.requests
            if asked.method == "POST"
        ]


@contextmanager
def scripted(dialect: str) -> Iterator[World]:
    """Lookups and nsqds of that dialect, which end with the block."""
    with ExitStack() as stack:
        yield World(stack, dialect)
