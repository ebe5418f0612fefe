"""Real programs as processes, and what tests ask of them over HTTP."""

from __future__ import annotations

import json
import socket
import subprocess
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

_V1 = {"Accept": "application/vnd.nsq; version=1.0"}


class Programs:
    """Processes with output in files of *folder*; all of them end with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, program: str | Path, *flags: str) -> Path:
        """Run *program* in a folder of its own, which is returned."""
        home = self._folder / name
        home.mkdir(exist_ok=True)
        command = [str(program), *(flag.format(home=home) for flag in flags)]
        with (home / "output").open("ab") as output:
            self._running[name] = subprocess.Popen(command, stdout=output, stderr=output, cwd=home)
        return home

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def end(self) -> None:
        """Kill whatever runs."""
        for name in list(self._running):
            self.kill(name)


def get(port: int | None, path: str) -> tuple[int, Any]:
    """Status and JSON document; (0, None) if nobody answers."""
    return _ask("GET", port, path)


def post(port: int | None, path: str) -> tuple[int, Any]:
    """The same, by POST."""
    return _ask("POST", port, path)


def _ask(method: str, port: int | None, path: str) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers=_V1)
        answer = connection.getresponse()
        body = answer.read()
    except OSError:
        return 0, None
    finally:
        connection.close()
    try:
        return answer.status, json.loads(body)
    except ValueError:
        return answer.status, None


def free_ports(count: int) -> list[int]:
    """Ports that nobody has just now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()
