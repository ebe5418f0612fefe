"""What belongs to one process: a child of a fork starts with nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Droppable(Protocol):
    """Something with descriptors that a child inherits."""

    def drop(self) -> None:
        """Close them alone, without a word to the parent's peers."""


T = TypeVar("T", bound=Droppable)


class PerProcess(Generic[T]):
    """One object for each process, keyed by PID; no lock is there to be inherited held."""

    def __init__(self) -> None:
        self._held: dict[int, T] = {}

    def get(self) -> T | None:
        """This process's own."""
        return self._held.get(os.getpid())

    def get_or_make(self, make: Callable[[], T]) -> T:
        """This process's own, made if need be; the parent's is dropped."""
        found = self._held.get(os.getpid())
        if found is None:
            self.drop_inherited()
            # setdefault: two threads may get here at once.
            found = self._held.setdefault(os.getpid(), make())
        return found

    def take(self) -> T | None:
        """This process's own, which is nobody's from now on."""
        self.drop_inherited()
        return self._held.pop(os.getpid(), None)

    def drop_inherited(self) -> None:
        """Close what came with a fork."""
        # A copy first: other threads may be adding theirs.
        for process in [pid for pid in list(self._held) if pid != os.getpid()]:
            inherited = self._held.pop(process, None)
            if inherited:
                inherited.drop()
