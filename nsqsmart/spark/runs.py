"""How an AvailableNow run knows that it is at its end."""

from __future__ import annotations

from time import monotonic

from nsqsmart.spark.survey import Sight

_EMPTY_EPOCHS = 2
PATIENCE = 10.0
"""Seconds without lookups, after which a run ends with what it has."""


class Run:
    """How much there was when the run began, and how much of it was read."""

    def __init__(self) -> None:
        self._target: int | None = None
        self._read = 0
        self._empty = 0

    def see(self, sight: Sight) -> None:
        """The first sight is the target."""
        if self._target is None:
            self._target = sight.waiting + sight.held

    def count(self, rows: int | None) -> None:
        """An epoch was committed; those from before the run do not count."""
        if rows is None or self._target is None:
            return
        self._read += rows
        self._empty = 0 if rows else self._empty + 1

    def is_over(self) -> bool:
        """Whether all of it was read, or others read it."""
        done = self._target is not None and self._read >= self._target
        return done or self._empty >= _EMPTY_EPOCHS

    def is_out_of_patience(self, sight: Sight | None, msg_timeout: float, since: float) -> bool:
        """Whether nothing came for so long, since the last epoch at *since*, that nothing will."""
        if sight is not None and not sight.held:
            return True
        # What a dead consumer held comes back after its msg_timeout, which may be ours.
        patience = PATIENCE if sight is None else msg_timeout + PATIENCE
        return monotonic() - since > patience

    def why(self) -> str:
        """For the log."""
        return f"{self._read} of {self._target} messages read, the others are held by others"
