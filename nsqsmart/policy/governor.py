"""How much of its share of RDY one connection should use: as much as it needs, and no more.

A client with a low RDY is saturated, so nsqd sends each message at once instead of holding it in
its output buffer; and a slow handler leaves messages to others. With a backlog the need grows with
RDY itself, so RDY reaches the whole share in a few ticks (reference: performance 2.7).
"""

from __future__ import annotations

import math

PERIOD = 0.02
"""Seconds between two looks."""
_MARGIN = 0.001
_ROUND_TRIPS = 1.25
_ROOM = 2.0
_QUIET_TICKS = 10


class Governor:
    """One connection's RDY between 1 and its share.

    The need is how many messages are on their way or being handled on average (Little's law): the
    rate times round trip, handler and a margin. RDY is twice that; it rises at once, at least
    doubling, and halves after ten ticks in which less would have done.
    """

    __slots__ = ("_quiet", "_rate", "level")

    def __init__(self) -> None:
        self.level = 1
        self._quiet = 0
        self._rate = 0.0

    def tick(self, messages: int, elapsed: float, round_trip: float, handling: float) -> bool:
        """Look at the last *elapsed* seconds, in which *messages* came; True if the level changed.

        *round_trip* to the server and *handling* of one message are seconds.
        """
        cycle = _ROUND_TRIPS * round_trip + handling + _MARGIN
        elapsed = max(elapsed, PERIOD / 10)
        # One message in a tick is no rate where a handler takes many ticks.
        weight = -math.expm1(-elapsed / max(PERIOD / 4, cycle))
        self._rate += weight * (messages / elapsed - self._rate)
        need = self._rate * cycle
        wanted = max(1, math.ceil(_ROOM * need))
        before = self.level
        if wanted > before:
            self.level = max(wanted, 2 * before)
            self._quiet = 0
        elif wanted == before:
            self._quiet = 0
        else:
            self._quiet += 1
            if self._quiet >= _QUIET_TICKS:
                self.level, self._quiet = max(wanted, before // 2), 0
        return self.level != before

    def within(self, share: int) -> int:
        """The RDY to be set; *share* is what the connection may have, 0 for nothing now."""
        # What it asks for beyond its share it would have to give back later.
        self.level = min(self.level, max(1, share))
        return min(self.level, share)

    @property
    def resting(self) -> bool:
        """Whether silence changes nothing any more."""
        return self.level == 1 and self._rate < 1.0
