"""What a job says while it runs, and the summary at its end."""

from __future__ import annotations

import json
import os
import sys
from time import monotonic
from typing import Any

_QUIET = 10.0


class Console:
    """Lines for people on stdout; with *as_json* on stderr, and one JSON object on stdout.

    Progress goes to stderr: one line drawn over and over on a terminal, elsewhere a line at most
    every ten seconds.
    """

    def __init__(self, *, as_json: bool, silent: bool = False) -> None:
        self._as_json = as_json
        self._silent = silent
        self._began = self._told = monotonic()
        self._live = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        self._drawn = False

    @property
    def seconds(self) -> float:
        """For how long the job runs."""
        return round(monotonic() - self._began, 1)

    def say(self, text: str = "") -> None:
        """One line."""
        if self._silent:
            return
        self._clear()
        print(text, file=sys.stderr if self._as_json else sys.stdout, flush=True)

    def progress(self, text: str) -> None:
        """How far it is."""
        if self._silent:
            return
        if self._live:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._drawn = True
        elif monotonic() - self._told >= _QUIET:
            self._told = monotonic()
            print(text, file=sys.stderr, flush=True)

    def finish(self, summary: dict[str, Any], *lines: str) -> int:
        """The end: *lines* for people, *summary* for a program; returns the exit code."""
        self._clear()
        for line in lines:
            self.say(line)
        if self._as_json:
            print(json.dumps({**summary, "seconds": self.seconds}), flush=True)
        return 0 if summary["ok"] else 1

    def _clear(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False
