"""Real programs as processes, and what tests ask of them over HTTP."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

_V1 = {"Accept": "application/vnd.nsq; version=1.0"}
_TO_END = 60


class Programs:
    """Processes with output in files of *folder*; all of them end with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, list[str]] = {}

    def start(self, name: str, program: str | Path, *flags: str) -> Path:
        """Run *program* in a folder of its own, which is returned."""
        home = self._folder / name
        home.mkdir(exist_ok=True)
        self._commands[name] = [str(program), *(flag.format(home=home) for flag in flags)]
        self.restart(name)
        return home

    def home(self, name: str) -> Path:
        """The folder that it runs in."""
        return self._folder / name

    def restart(self, name: str) -> None:
        """Run it again, as it was run before."""
        home = self._folder / name
        with (home / "output").open("ab") as output:
            self._running[name] = subprocess.Popen(
                self._commands[name], stdout=output, stderr=output, cwd=home
            )

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def terminate(self, name: str) -> None:
        """SIGTERM; returns when it has ended."""
        process = self._running[name]
        process.terminate()
        process.wait(_TO_END)
        del self._running[name]

    def hang(self, name: str) -> None:
        """SIGSTOP."""
        self._running[name].send_signal(signal.SIGSTOP)

    def wake(self, name: str) -> None:
        """SIGCONT."""
        self._running[name].send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill whatever runs."""
        for name in list(self._running):
            self.kill(name)


def get(port: int | None, path: str) -> tuple[int, Any]:
    """Status and JSON document of a GET; (0, None) if no server answers."""
    return _ask("GET", port, path)


def post(port: int | None, path: str) -> tuple[int, Any]:
    """Status and JSON document of a POST."""
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
    """Ports that no program uses now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()
