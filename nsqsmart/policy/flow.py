"""How many messages each connection may have in flight, and when to hold back.

RDY is a level, not a credit: whoever sends asks here what it should be now. The machine holds the
shares of ``max_in_flight`` and the backoff state; it never does I/O and never reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum, auto

Name = Hashable
_MAX_DOUBLINGS = 30


class FlowState(Enum):
    """FLOWING: every connection has its share. BACKING_OFF: RDY 0 everywhere until a time.
    PROBING: one connection has RDY 1; only the result of a message it brings counts.
    """

    FLOWING = auto()
    BACKING_OFF = auto()
    PROBING = auto()


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """``backoff_multiplier`` and ``max_backoff_duration`` in seconds; the latter 0: no backoff."""

    max_in_flight: int = 200
    backoff_multiplier: float = 1.0
    max_backoff_duration: float = 120.0
    one_each: bool = False
    """Ordered: the server keeps one message in flight per partition, a larger RDY says nothing."""


class FlowControl:
    """Shares of RDY, rotation where there are more connections than RDY, and backoff.

    Not thread-safe: its owner holds one lock around every call but :meth:`target`, which reads
    one dict entry.
    """

    def __init__(self, limits: FlowLimits, choose: Callable[[list[Name]], Name]) -> None:
        self._limits = limits
        self._choose = choose
        self._ceilings: dict[Name, int] = {}
        self._targets: dict[Name, int] = {}
        self._first = 0
        self._probe: Name | None = None
        self._probe_since = 0.0
        self._level = 0
        self._until = 0.0
        self.state = FlowState.FLOWING

    def target(self, name: Name) -> int:
        """What the RDY of that connection should be now; 0 for an unknown one."""
        return self._targets.get(name, 0)

    def due(self) -> float | None:
        """When :meth:`on_time` must be called (the time base of its caller), or None."""
        return self._until if self.state is FlowState.BACKING_OFF else None

    def needs_rotation(self) -> bool:
        """Whether some connection is without RDY only because there are too many of them."""
        return self.state is FlowState.FLOWING and self._shares_wanted() < len(self._ceilings)

    def connect(self, name: Name, max_rdy: int, now: float) -> None:
        """A subscription began; *max_rdy* is what its server granted."""
        self._ceilings[name] = 1 if self._limits.one_each else max_rdy
        if self.state is FlowState.PROBING and self._probe is None:
            self._start_probe(now)
        self._compute()

    def disconnect(self, name: Name, now: float) -> None:
        """A subscription ended."""
        self._ceilings.pop(name, None)
        if self.state is FlowState.PROBING and self._probe == name:
            # Backoff must always end: another connection carries the probe on.
            self._start_probe(now)
        self._compute()

    def rotate(self) -> None:
        """Give the RDY that there is to the next connections in turn."""
        if self.needs_rotation():
            self._first = (self._first + max(1, self._shares_wanted())) % len(self._ceilings)
            self._compute()

    def on_result(self, name: Name, *, ok: bool, delivered_at: float, now: float) -> bool:
        """A handler succeeded or failed on a message of *name*; True if targets changed."""
        if self._limits.max_backoff_duration <= 0 or self._limits.one_each:
            return False
        if self.state is FlowState.FLOWING:
            if ok:
                return False
            self._level = 0
            self._back_off(now)
            return True
        if self.state is not FlowState.PROBING or name != self._probe:
            return False
        if delivered_at < self._probe_since:
            return False  # an answer to a message from before the probe says nothing of now
        if not ok:
            self._level += 1
        elif self._level == 0:
            self.state = FlowState.FLOWING
            self._probe = None
            self._compute()
            return True
        else:
            self._level -= 1
        self._back_off(now)
        return True

    def on_time(self, now: float) -> bool:
        """End the pause of a backoff that is due with a probe; True if targets changed."""
        if self.state is not FlowState.BACKING_OFF or now < self._until:
            return False
        self.state = FlowState.PROBING
        self._start_probe(now)
        self._compute()
        return True

    def _back_off(self, now: float) -> None:
        limits = self._limits
        pause = limits.backoff_multiplier * 2.0 ** min(self._level, _MAX_DOUBLINGS)
        self.state = FlowState.BACKING_OFF
        self._until = now + min(pause, limits.max_backoff_duration)
        self._probe = None
        self._compute()

    def _start_probe(self, now: float) -> None:
        names = list(self._ceilings)
        self._probe = self._choose(names) if names else None
        self._probe_since = now

    def _shares_wanted(self) -> int:
        return min(len(self._ceilings), self._limits.max_in_flight)

    def _compute(self) -> None:
        if self.state is not FlowState.FLOWING:
            probe = self._probe if self.state is FlowState.PROBING else None
            self._targets = {name: int(name == probe) for name in self._ceilings}
            return
        names = list(self._ceilings)
        count, total = len(names), self._limits.max_in_flight
        targets: dict[Name, int] = {}
        for place, name in enumerate(names):
            if count <= total:
                # The remainder goes to the first ones, so that the sum is max_in_flight.
                share = total // count + (place < total % count)
            else:
                share = int((place - self._first) % count < total)
            targets[name] = min(share, self._ceilings[name])
        self._targets = targets
