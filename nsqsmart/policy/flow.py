"""How many messages each connection may have in flight, and when to hold back.

RDY is a level, not a credit: before it is sent, this state machine says what it should be now. It
holds the shares of ``max_in_flight`` and the backoff state; it never does I/O or reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import Enum, auto

Name = object
_MAX_DOUBLINGS = 30


class FlowState(Enum):
    """FLOWING: every connection has its share. BACKING_OFF: RDY 0 everywhere until a time.
    PROBING: one connection at a time has RDY 1; only the result of a message it brings counts.
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

    Not thread-safe: its owner holds one lock around every call.
    """

    def __init__(self, limits: FlowLimits, choose: Callable[[list[Name]], Name]) -> None:
        self._limits = limits
        self._choose = choose
        self._ceilings: dict[Name, int] = {}  # where RDY is scarce, the first ones have it
        self._targets: dict[Name, int] = {}
        self._probe: Name | None = None
        self._probes: set[Name] = set()
        self._probe_since = 0.0
        self._level = 0
        self._until = 0.0
        self._expected = 0
        self.state = FlowState.FLOWING

    def target(self, name: Name) -> int:
        """What the RDY of that connection should be now; 0 for an unknown one."""
        return self._targets.get(name, 0)

    def shares(self) -> dict[Name, int]:
        """The target RDY of each connection; the one that has waited longest comes first."""
        return dict(self._targets)

    def due(self) -> float | None:
        """When :meth:`on_time` must be called (the time base of its caller), or None."""
        return self._until if self.state is FlowState.BACKING_OFF else None

    def needs_rotation(self) -> bool:
        """Whether some connection is without RDY only because others have all there is."""
        if self.state is FlowState.BACKING_OFF or not self._limits.max_in_flight:
            return False
        total = 1 if self.state is FlowState.PROBING else self._limits.max_in_flight
        return len(self._ceilings) > total

    def set_max_in_flight(self, count: int) -> None:
        """Share out *count* from now on; 0 stops every connection, and a probe too."""
        self._limits = replace(self._limits, max_in_flight=count)
        self._compute()

    def expect(self, count: int) -> None:
        """Share among *count* connections, though fewer are there yet; 0: among those there are."""
        self._expected = count
        self._compute()

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

    def served(self) -> list[Name]:
        """The connections that have RDY while others wait for it; empty if there is enough."""
        if not self.needs_rotation():
            return []
        if self.state is FlowState.PROBING:
            return [self._probe]
        return list(self._ceilings)[: self._limits.max_in_flight]

    def rotate(self, over: Collection[Name] | None = None) -> bool:
        """Let the next ones in turn have the RDY of those of *over*, or of all; True if changed.

        The probe moves on too: where it waits there may be no message, while others have many.
        """
        ending = [name for name in self.served() if over is None or name in over]
        # To the end of the queue: a turn does not depend on connections that come and go.
        for name in ending:
            self._ceilings[name] = self._ceilings.pop(name)
        if ending and self.state is FlowState.PROBING:
            self._probe = next(iter(self._ceilings))
            self._probes.add(self._probe)
        self._compute()
        return bool(ending)

    def on_result(self, name: Name, *, ok: bool, delivered_at: float, now: float) -> bool:
        """A handler succeeded or failed on a message of *name*; True if targets changed."""
        if self._limits.max_backoff_duration <= 0 or self._limits.one_each:
            return False
        if self.state is FlowState.FLOWING:
            if ok:
                return False
            self._level = 0
        elif name not in self._probes or delivered_at < self._probe_since:
            return False  # an answer to a message from before the probe says nothing of now
        elif ok and self._level == 0:
            self.state = FlowState.FLOWING
            self._end_probe()
            return True
        elif ok:
            self._level -= 1
        elif self._pause() < self._limits.max_backoff_duration:
            # Beyond the longest pause a level would only be one more on the way back.
            self._level = min(self._level + 1, _MAX_DOUBLINGS)
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
        self.state = FlowState.BACKING_OFF
        self._until = now + self._pause()
        self._end_probe()

    def _pause(self) -> float:
        pause = self._limits.backoff_multiplier * 2.0**self._level
        return min(pause, self._limits.max_backoff_duration)

    def _start_probe(self, now: float) -> None:
        names = list(self._ceilings)
        self._probe = self._choose(names) if names else None
        self._probes = {self._probe} if names else set()
        self._probe_since = now

    def _end_probe(self) -> None:
        self._probe = None
        self._probes = set()
        self._compute()

    def _compute(self) -> None:
        if self.state is FlowState.FLOWING:
            count = max(len(self._ceilings), self._expected)
            total = self._limits.max_in_flight
            # The remainder goes to the first ones, so that the sum is max_in_flight.
            shares = {
                name: total // count + (place < total % count)
                for place, name in enumerate(self._ceilings)
            }
        else:
            one = min(1, self._limits.max_in_flight)
            shares = {name: one * (name == self._probe) for name in self._ceilings}
        self._targets = {name: min(shares[name], most) for name, most in self._ceilings.items()}
