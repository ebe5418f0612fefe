"""What a directory knows of one topic."""

from __future__ import annotations

from weakref import ref

from nsqsmart.names import Address
from nsqsmart.net.tokens import Token
from nsqsmart.policy.lookup_answers import TopicState
from nsqsmart.policy.topology import Refused, Topology

_LONGEST = 60.0  # seconds between two polls that fail


class Entry:
    """The picture, and who asks for another one.

    A lookup under way is known by the token of the call that makes it, which nobody else keeps
    alive: one that was interrupted is over, even if it could not say so.
    """

    __slots__ = (
        "asked_at",
        "doubted",
        "failure",
        "failures",
        "flight",
        "landed",
        "led",
        "needed",
        "refused",
        "stale_at",
        "told_at",
        "topology",
        "waiting",
    )

    def __init__(self) -> None:
        self.topology: Topology | None = None
        self.failure = ""
        self.failures = 0
        self.refused: set[Refused] = set()
        self.doubted: set[Refused] = set()
        self.needed = False
        """Whether an error has proved the picture wrong, and the lookups were not asked since."""
        self.flight: ref[Token] | None = None
        self.landed = 0
        self.led: dict[int, Address] = {}  # who was seen to lead last
        self.waiting: set[Token] = set()
        self.asked_at = -3600.0
        self.stale_at = 0.0
        self.told_at = 0.0

    @property
    def flying(self) -> bool:
        """Whether the lookups are being asked."""
        return self.flight is not None and self.flight() is not None

    @property
    def serves(self) -> bool:
        """Whether there is a picture that calls can go on with, old as it may be."""
        topology = self.topology
        usable = topology is not None and topology.state is TopicState.FOUND
        return usable and not self.needed and bool(topology and topology.targets)

    def mistrust(self, refused: Refused | None, *, lost: bool) -> None:
        """The picture is wrong: an error has proved it of *refused*, or a leader is missing.

        *lost*: it does not even answer.
        """
        if refused:
            self.refused.add(refused)
            if lost:
                self.doubted.add(refused)
        targets = self.topology.targets if self.topology else ()
        if refused is None or refused in {(each.partition, each.address) for each in targets}:
            # Else a newer picture is there already.
            self.needed = True
            self.stale_at = 0.0

    def land(self, topology: Topology, now: float, interval: float) -> None:
        """The lookups have answered."""
        self.topology = topology
        self.refused.clear()
        self.failures = 0
        self._landed("", now + interval)

    def may_tell(self, now: float) -> bool:
        """Whether to log that they have not: when it begins, and then rarely."""
        tell = not self.failure or now >= self.told_at + _LONGEST
        if tell:
            self.told_at = now
        return tell

    def fail(self, failure: str, now: float, interval: float) -> None:
        """They have not: the old picture serves, and is asked for less and less often."""
        doublings = min(self.failures, 10)
        self.failures += 1
        self._landed(failure, now + max(interval, min(_LONGEST, interval * 2.0**doublings)))

    def _landed(self, failure: str, stale_at: float) -> None:
        self.stale_at = stale_at
        self.failure = failure
        self.doubted.clear()
        self.needed = False

    def note_leaders(self, topology: Topology) -> int:
        """How many partitions have another leader than they were last seen to have."""
        now = {number: node.address for number, node in topology.leaders.items()}
        moved = sum(self.led.get(number, leader) != leader for number, leader in now.items())
        self.led |= now
        return moved
