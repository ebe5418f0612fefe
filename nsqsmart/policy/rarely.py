"""When to log again what was logged before: at once, and then rarely."""

from __future__ import annotations

from collections.abc import Hashable

_MOST_KEYS = 1000


class Rarely:
    """Remembers by key when something was logged last; *interval* in seconds.

    Not thread-safe beyond single dictionary operations: two threads may both log a line.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._logged_at: dict[Hashable, float] = {}

    def is_due(self, key: Hashable, now: float) -> bool:
        """Whether to log *key* at *now* (seconds of any one clock); notes it if so."""
        last = self._logged_at.get(key)
        if last is not None and now < last + self._interval:
            return False
        if len(self._logged_at) >= _MOST_KEYS:
            self._logged_at.clear()
        self._logged_at[key] = now
        return True

    def forget(self, key: Hashable) -> None:
        """It is over: the next time is logged at once."""
        self._logged_at.pop(key, None)
