"""A copy of the checkout, in which one mutant at a time is tried."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from tests.helpers import ROOT
from tests.mutants.mutant import Mutant

_LEFT_OUT = shutil.ignore_patterns(
    ".git",
    ".venv",
    "build",
    "dist",
    "*.egg-info",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
    ".benchmarks",
    ".coverage*",
)
_PASSED, _FAILED = 0, 1

CAUGHT, CAUGHT_BY_TIME = "caught", "caught (timeout)"
SURVIVED, TIMED_OUT, NO_TEST = "SURVIVED", "TIMED OUT", "NO TEST RAN"
STALE = "DOES NOT APPLY"
GOOD = frozenset({CAUGHT, CAUGHT_BY_TIME})


class Verdict(NamedTuple):
    """What came of one mutant; ``detail`` is what pytest said, where that matters."""

    mutant: Mutant
    word: str
    seconds: float
    detail: str = ""

    @property
    def good(self) -> bool:
        """Whether a test noticed."""
        return self.word in GOOD


class Copy:
    """A copy of the checkout in *folder*; one mutant at a time."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.root = folder / "copy"
        self._output = folder / "output"
        shutil.copytree(ROOT, self.root, ignore=_LEFT_OUT)
        # Programs that tests start import what the tests do: what is installed must not win.
        self._environment = os.environ | {"PYTHONPATH": str(self.root)}
        self._running: subprocess.Popen[bytes] | None = None
        self._check_import(folder)

    def _check_import(self, elsewhere: Path) -> None:
        command = [sys.executable, "-c", "import nsqsmart; print(nsqsmart.__file__)"]
        found = subprocess.run(
            command, cwd=elsewhere, env=self._environment, capture_output=True, text=True
        ).stdout.strip()
        if not Path(found).is_relative_to(self.root):
            raise RuntimeError(f"the tests would import {found or 'nothing'}, not {self.root}")

    def judge(self, mutant: Mutant, limit: float) -> Verdict:
        """Whether the tests of *mutant* notice it within *limit* seconds."""
        began = monotonic()
        try:
            with self._broken(mutant):
                code = self._run(mutant.tests, limit)
        except ValueError as error:
            return Verdict(mutant, STALE, monotonic() - began, str(error))
        word = _word(mutant, code)
        said = "" if word in GOOD or word == SURVIVED else self._output.read_text()
        return Verdict(mutant, word, monotonic() - began, said)

    @contextlib.contextmanager
    def _broken(self, mutant: Mutant) -> Iterator[None]:
        file = self.root / mutant.file
        source = file.read_text()
        try:
            self._write(file, mutant.apply(source))
            yield
        finally:
            self._write(file, source)

    def _write(self, file: Path, source: str) -> None:
        file.write_text(source)
        # Compiled files are told apart by size and second: two of the same second look alike.
        shutil.rmtree(file.parent / "__pycache__", ignore_errors=True)

    def _run(self, tests: tuple[str, ...], limit: float) -> int | None:
        """The exit code of pytest; None if it did not end in time."""
        options = ["-p", "no:cacheprovider", "-x", "-q", "-n", "0", "--timeout=0"]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        # A file: a process that inherits a pipe and outlives the tests would keep it open.
        with self._output.open("w") as output:
            self._running = run = subprocess.Popen(
                command,
                cwd=self.root,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return run.wait(limit)
            except subprocess.TimeoutExpired:
                return None
            finally:
                self.end()
                run.wait()
                self._running = None

    def end(self) -> None:
        """End the tests that run, if any; from any thread."""
        running = self._running
        if running is not None:
            # The group: a test that hangs may have started programs.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


def _word(mutant: Mutant, code: int | None) -> str:
    """What the exit *code* says of *mutant*."""
    if code is None:
        return CAUGHT_BY_TIME if mutant.hangs else TIMED_OUT
    # 2 to 5: interrupted, an error while collecting, bad usage, nothing collected.
    return {_PASSED: SURVIVED, _FAILED: CAUGHT}.get(code, NO_TEST)
