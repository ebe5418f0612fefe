"""Servers to run commands against, and commands as programs of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqsmart.cli import main
from nsqsmart.embedded import Cluster
from tests.helpers import ROOT

Popen = subprocess.Popen[bytes]


@pytest.fixture(params=["original", "redesigned"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One nsqd of either dialect, which makes topics on first use."""
    with Cluster(dialect=request.param, auto_create=True) as cluster:
        yield cluster


@pytest.fixture
def redesigned() -> Iterator[Cluster]:
    """Two redesigned nsqds."""
    with Cluster(nsqds=2, auto_create=True) as cluster:
        yield cluster


class Commands:
    """Runs ``nsqsmart`` in this process, or as a program."""

    def __init__(self, capture: pytest.CaptureFixture[str], folder: Path) -> None:
        self._capture = capture
        self._folder = folder
        self._running: list[Popen] = []

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        """Exit code, stdout and stderr, in this process."""
        self._capture.readouterr()
        try:
            code = main([str(each) for each in arguments])
        except SystemExit as error:
            code = int(error.code or 0)
        out, err = self._capture.readouterr()
        assert "Traceback" not in err, err
        return code, out, err

    def records(self, *arguments: object) -> list[Any]:
        """The JSON lines of a command that must succeed."""
        code, out, err = self(*arguments, "--json")
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    def start(self, *arguments: object, **keywords: Any) -> Popen:
        """As a program, with pipes."""
        keywords = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | keywords
        # What is left in a buffer at the end is part of how a program ends.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
        program = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "nsqsmart", *map(str, arguments)],
            cwd=self._folder,
            env={**environment, "PYTHONPATH": str(ROOT)},
            **keywords,
        )
        self._running.append(program)
        return program

    def run(self, *arguments: object, stdin: bytes = b"") -> tuple[int, bytes, str]:
        """As a program that ends by itself."""
        program = self.start(*arguments)
        out, err = program.communicate(stdin, timeout=30)
        assert b"Traceback" not in err, err
        return program.returncode, out, err.decode()

    def end(self) -> None:
        """Kill what still runs."""
        for program in self._running:
            if program.poll() is None:
                program.kill()
            program.wait()
            for pipe in (program.stdin, program.stdout, program.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.fixture
def nsqsmart(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Commands]:
    """The command."""
    commands = Commands(capfd, tmp_path)
    yield commands
    commands.end()


@pytest.fixture
def bodies() -> Callable[[Cluster, str], list[bytes]]:
    """What is stored in a topic."""
    return lambda cluster, topic: [each.body for each in cluster.stored(topic)]
