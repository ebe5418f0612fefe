"""Background work on daemon threads, each of which ends with its work."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from nsqsmart.net.threads import Thread, spawn


class Beside:
    """The background threads of one client; none is started before there is work."""

    def __init__(self) -> None:
        self._threads: tuple[Thread, ...] = ()

    def do(self, name: str, call: Callable[[], object]) -> bool:
        """Run *call* in a thread; False if none can start, as in a process that ends."""
        try:
            thread = spawn(name, call)
        except RuntimeError:
            return False
        self._threads = (*(each for each in self._threads if each.is_alive()), thread)
        return True

    def join(self, seconds: float) -> None:
        """Wait at most *seconds* until the threads have ended."""
        until = monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - monotonic()))
