"""What may happen a thousand times a second is logged at once, and then rarely."""

from __future__ import annotations

import threading
from time import monotonic

_PAUSE = 60.0


class Seldom:
    """Says when to tell of something: the first time, then at most once in *pause* seconds."""

    def __init__(self, pause: float = _PAUSE) -> None:
        self._pause = pause
        self._lock = threading.Lock()  # guards the two below
        self._next = 0.0
        self._untold = 0

    def tell(self, count: int = 1) -> int | None:
        """It happened *count* times: how often since it was told last, or None if too early."""
        now = monotonic()
        with self._lock:
            self._untold += count
            if now < self._next:
                return None
            self._next = now + self._pause
            untold, self._untold = self._untold, 0
            return untold
