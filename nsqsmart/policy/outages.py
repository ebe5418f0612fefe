"""Nodes that failed lately: avoided for a while, then tried by one caller at a time (half-open).

A matter of unkeyed messages alone: a keyed one has no other place to go.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

N = TypeVar("N", bound=Hashable)

_PAUSE = 1.0
_MAX_PAUSE = 30.0


class _Outage(NamedTuple):
    failures: int
    until: float
    probed: bool = False


class Outages(Generic[N]):
    """Which nodes to avoid; times are monotonic seconds.

    The pause is 1 s at first and doubles to 30 s with every probe that fails: what forty threads
    say at once is one failure. Every method is one operation on a dict, so threads need no lock;
    two that probe at once do no harm.
    """

    def __init__(self) -> None:
        self.nodes: dict[N, _Outage] = {}
        """Empty for as long as everything works."""

    def failed(self, node: N, now: float) -> None:
        """*node* did not answer, or cannot be reached."""
        known = self.nodes.get(node)
        if known and now < known.until and not known.probed:
            return
        failures = known.failures + 1 if known else 1
        pause = min(_MAX_PAUSE, _PAUSE * 2 ** min(failures - 1, 10))
        self.nodes[node] = _Outage(failures, now + pause)

    def worked(self, node: N) -> None:
        """*node* answered: it is no longer avoided."""
        self.nodes.pop(node, None)

    def avoided(self, now: float) -> frozenset[N]:
        """The nodes whose pause is not over."""
        return frozenset(node for node, outage in list(self.nodes.items()) if now < outage.until)

    def probe(self, node: N, now: float) -> None:
        """A caller tries *node* now: the others wait for its result, for one more pause at most."""
        known = self.nodes.get(node)
        if known and now >= known.until:
            pause = min(_MAX_PAUSE, _PAUSE * 2 ** min(known.failures - 1, 10))
            self.nodes[node] = known._replace(until=now + pause, probed=True)
