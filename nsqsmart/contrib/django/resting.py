"""What a relay leaves alone for a while, because it could not be published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_FIRST = 1.0  # seconds
_LONGEST = 30.0

Target = tuple[str, str]
"""Alias and topic."""


@dataclass(slots=True)
class _Rest:
    until: float
    pause: float


class Rests:
    """By lane: keys of other lanes may belong to a partition that takes messages."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rests: dict[tuple[int, Target], _Rest] = {}

    def of(self, lane: int) -> set[Target]:
        """What rests in *lane* now."""
        now = self._clock()
        return {
            target
            for (its, target), rest in self._rests.items()
            if its == lane and rest.until > now
        }

    def failed(self, lane: int, target: Target) -> None:
        """It rests, twice as long as the last time."""
        before = self._rests.get((lane, target))
        pause = _FIRST if before is None else min(2 * before.pause, _LONGEST)
        self._rests[lane, target] = _Rest(self._clock() + pause, pause)

    def went(self, lane: int, target: Target) -> None:
        """It was published: it rests no more."""
        self._rests.pop((lane, target), None)
