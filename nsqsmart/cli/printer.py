"""Lines for people: plain in a pipe, with a moving bar on a terminal."""

from __future__ import annotations

import os
import sys
from typing import TextIO

_BAR = 24


class Printer:
    """Prints the numbered steps of a story; silent when a program reads the result.

    The bar needs a terminal; ``NO_COLOR`` and *plain* switch it off.
    """

    def __init__(self, *, plain: bool, silent: bool, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._silent = silent
        self._live = not plain and self._out.isatty() and "NO_COLOR" not in os.environ
        self._bar_shown = False

    def line(self, text: str = "") -> None:
        """One line."""
        if not self._silent:
            self._clear()
            print(text, file=self._out, flush=True)

    def step(self, number: int, title: str, text: str) -> None:
        """A step of the story that has been made."""
        self.line(f" {number} {title:<12} {text}")

    def bar(self, title: str, done: int, total: int) -> None:
        """How far it is; drawn over on a terminal, nothing elsewhere."""
        if self._silent or not self._live:
            return
        filled = _BAR * done // max(1, total)
        bar = "█" * filled + "░" * (_BAR - filled)
        self._out.write(f"\r   {title:<12} {bar}  {done:,}/{total:,} ")
        self._out.flush()
        self._bar_shown = True

    def _clear(self) -> None:
        if self._bar_shown:
            self._out.write("\r\x1b[K")
            self._bar_shown = False
