"""How much RDY one connection needs: as much as keeps its handlers busy, and no more.

A client with a low RDY is saturated, so nsqd sends each message at once instead of holding it in
its output buffer; and a slow handler leaves messages to others. With a backlog the need grows with
RDY itself, so RDY reaches the whole share in a few ticks (decisions#28).
"""

from __future__ import annotations

import math

PERIOD = 0.02
"""Seconds between two looks."""
_MARGIN = 0.001
_ROUND_TRIPS = 1.25
_ROOM = 2.0
_QUIET_TICKS = 10
_MEMORY = 0.1
_IDLE = 0.01


class Governor:
    """One connection's need of RDY, 1 or more.

    It is how many messages are on their way or being handled on average (Little's law): the rate
    times round trip and a margin, and those that handlers run on. RDY is twice that; it rises
    at once, at least doubling, and halves after ten ticks in which less would have done.
    """

    __slots__ = ("_busy", "_quiet", "level", "resting")

    def __init__(self) -> None:
        self.level = 1
        self.resting = True
        """Whether silence changes nothing any more."""
        self._quiet = 0
        self._busy = 0.0

    def tick(self, messages: int, elapsed: float, round_trip: float, busy: int) -> None:
        """Look at the last *elapsed* seconds, in which *messages* came.

        *round_trip* to the server is in seconds; *busy* of its messages are in a handler now, not
        in the inbox.
        """
        elapsed = max(elapsed, PERIOD / 10)
        # Just now is no average: a trickle is caught in a short handler now and then.
        self._busy -= math.expm1(-elapsed / _MEMORY) * (busy - self._busy)
        need = messages / elapsed * (_ROUND_TRIPS * round_trip + _MARGIN) + self._busy
        wanted = max(1, math.ceil(_ROOM * need))
        if wanted > self.level:
            self.level = max(wanted, 2 * self.level)
            self._quiet = 0
        elif wanted == self.level:
            self._quiet = 0
        else:
            self._quiet += 1
            if self._quiet >= _QUIET_TICKS:
                self.level, self._quiet = max(wanted, self.level // 2), 0
        self.resting = self.level == 1 and not messages and self._busy < _IDLE

    def within(self, most: int) -> int:
        """The RDY it needs, at most *most*: all that the connection could ever have."""
        # What it asks for beyond that it would have to give back later.
        self.level = min(self.level, max(1, most))
        return min(self.level, most)
