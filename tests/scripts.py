"""A user's scripts, run as processes of their own: for signals, forks, limits and the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.helpers import ROOT


class Program:
    """A script of its own, that is told the cluster's address and speaks line by line."""

    def __init__(self, code: str, url: str) -> None:
        head = "import os, signal, sys, threading, time, nsqsmart\nurl = sys.argv[1]\n"
        # No shell, and nothing of pytest's: as a user's script.
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", head + textwrap.dedent(code), url],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )

    def line(self) -> str:
        """Its next line."""
        return self.process.stdout.readline().strip()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it and its children, which hold its pipes open."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def ends(self, timeout: float = 20) -> tuple[int, str, str]:
        """Exit code, what else it said, and what it complained about."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err


@contextmanager
def programs(url: str) -> Iterator[Callable[[str], Program]]:
    """Begins scripts that are told *url*; all of them end with the block."""
    begun: list[Program] = []

    def begin(code: str) -> Program:
        begun.append(Program(code, url))
        return begun[-1]

    try:
        yield begin
    finally:
        for each in begun:
            each.kill()
