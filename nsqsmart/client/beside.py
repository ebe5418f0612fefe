"""Work that nobody waits for, on transient daemon threads."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from nsqsmart.net.threads import Thread, spawn


class Beside:
    """The threads of one client: each ends with its work, and none is started ahead of it."""

    def __init__(self) -> None:
        self._threads: tuple[Thread, ...] = ()

    def do(self, name: str, call: Callable[[], object]) -> bool:
        """Have *call* made; whether it will be, for a process that ends starts no thread."""
        try:
            thread = spawn(name, call)
        except RuntimeError:
            return False
        self._threads = (*(each for each in self._threads if each.is_alive()), thread)
        return True

    def join(self, seconds: float) -> None:
        """Let them end, for so long at most."""
        until = monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - monotonic()))
