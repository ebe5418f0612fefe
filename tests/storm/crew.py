"""The producers and consumers of a storm: half of them are processes, which can be killed."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Protocol

from tests.helpers import ROOT
from tests.storm.actors import ROLES, Spec
from tests.storm.notes import Notes

_TO_END = 90.0


class Hand(Protocol):
    """An actor, wherever it runs; it has another name in each of its lives."""

    def end(self) -> None:
        """End it in order; twice does no harm."""

    def replace(self) -> None:
        """End it, as abruptly as can be, and begin anew."""


class _Lives:
    """Specs for one life after another."""

    def __init__(self, spec: Spec, folder: Path) -> None:
        self._spec, self._folder, self._numbers = spec, folder, count(1)

    def next(self) -> tuple[Spec, Path]:
        """The spec, and the file for its notes."""
        name = f"{self._spec['name']}.{next(self._numbers)}"
        return self._spec | {"name": name}, self._folder / f"{name}.jsonl"


class Inside:
    """In this process: ended in order, for threads cannot be killed."""

    def __init__(self, spec: Spec, folder: Path) -> None:
        self._lives = _Lives(spec, folder)
        self._begin()

    def _begin(self) -> None:
        spec, file = self._lives.next()
        self._notes = Notes(file)
        self._actor = ROLES[spec["role"]](spec, self._notes)
        self._ended = False

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._actor.stop()
            self._notes.close()

    def replace(self) -> None:
        self.end()
        self._begin()


class Outside:
    """In a process of its own: replaced by SIGKILL."""

    def __init__(self, spec: Spec, folder: Path) -> None:
        self._lives, self._folder = _Lives(spec, folder), folder
        self._begin()

    def _begin(self) -> None:
        spec, file = self._lives.next()
        command = [sys.executable, "-m", "tests.storm.worker", str(file), json.dumps(spec)]
        with (self._folder / f"{spec['name']}.log").open("wb") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=output, stderr=output
            )
        self._spec, self._ended = spec, False

    def end(self) -> None:
        if self._ended:
            return
        alive, self._ended = self._process.poll() is None, True
        self._process.terminate()
        self._reap()
        self._tell_its_end(of_itself=not alive or self._process.returncode != 0)

    def replace(self) -> None:
        alive = self._process.poll() is None
        self._process.kill()
        self._reap()
        self._tell_its_end(of_itself=not alive)
        self._begin()

    def _reap(self) -> None:
        try:
            self._process.wait(_TO_END)
        finally:
            self._process.kill()
            self._process.wait()
            if self._process.stdin:
                self._process.stdin.close()

    def _tell_its_end(self, *, of_itself: bool) -> None:
        name = self._spec["name"]
        notes = Notes(self._folder / f"{name}.end.jsonl")
        if self._spec["role"] == "consumer":
            for topic in self._spec["topics"]:
                notes.note("gone", who=f"{name} {topic}")
        if of_itself:
            reason = f"exit code {self._process.returncode}, see {name}.log"
            notes.note("error", who=name, error=reason)
        notes.close()
