"""Contestants in processes of their own, and rounds in which each has its turn."""

from __future__ import annotations

import http.client
import json
import select
import subprocess
import tempfile
from contextlib import AbstractContextManager
from types import TracebackType
from typing import NamedTuple

from harness import HOST, Nsqd, Sample
from loops import BODY

TOPIC = "contest"
_PATIENCE = 120.0
_HTTP_SECONDS = 10.0


class ContestantFailed(Exception):
    """It did not start, did not answer, or lost messages."""


class Contestant(AbstractContextManager["Contestant"]):
    """A driver process (peers/driver.py), which lives through all rounds."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, bufsize=0
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._said.close()

    def play(self, order: str) -> Sample:
        """One turn."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{order}\n".encode())
        except BrokenPipeError as error:
            raise self._failure() from error
        if not select.select([self._process.stdout], [], [], _PATIENCE)[0]:
            raise ContestantFailed(f"{self.name} has not answered {order!r} in {_PATIENCE:.0f} s")
        answer = self._process.stdout.readline()
        if not answer:
            raise self._failure()
        return Sample(**json.loads(answer))

    def _failure(self) -> ContestantFailed:
        """What it said last."""
        self._process.wait(_PATIENCE)
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"exit code {self._process.returncode}"
        return ContestantFailed(f"{self.name}: {reason}")


class Entry(NamedTuple):
    """A contestant, and what it is asked for (a key of its driver's sessions)."""

    contestant: Contestant
    verb: str


def play_rounds(
    server: Nsqd, entries: dict[str, Entry], count: int, width: int, rounds: int
) -> list[dict[str, Sample]]:
    """Every entry once a round, beginning with another each time."""
    names = list(entries)
    found = []
    for number in range(rounds):
        first = number % len(names)
        order = names[first:] + names[:first]
        turns = {name: play(server, entries[name], count, width) for name in order}
        found.append({name: turns[name] for name in names})
    return found


def play(server: Nsqd, entry: Entry, count: int, width: int) -> Sample:
    """One turn on a topic of its own; every message must have been stored."""
    count = count // width * width
    warm = max(1, count // width // 10) * width
    order = (entry.verb, HOST, server.tcp, TOPIC, count, warm, width, len(BODY))
    ask(server, "POST", f"/topic/create?topic={TOPIC}")
    try:
        sample = entry.contestant.play(" ".join(map(str, order)))
        stored = _stored(server)
    finally:
        ask(server, "POST", f"/topic/delete?topic={TOPIC}")
    if stored != count + warm:
        raise ContestantFailed(
            f"{entry.contestant.name}, {entry.verb}: {stored} of {count + warm} messages stored"
        )
    return sample


def _stored(server: Nsqd) -> int:
    stats = json.loads(ask(server, "GET", f"/stats?format=json&topic={TOPIC}"))
    return sum(int(topic["message_count"]) for topic in stats["topics"])


def version_of(server: Nsqd) -> str:
    """What the nsqd says it is."""
    return str(json.loads(ask(server, "GET", "/info"))["version"])


def ask(server: Nsqd, method: str, path: str) -> bytes:
    """What the nsqd answers over HTTP; ends the program unless it is 200."""
    connection = http.client.HTTPConnection(HOST, server.http, timeout=_HTTP_SECONDS)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise SystemExit(f"the nsqd answered {method} {path} with {response.status}: {body!r}")
    return body
