"""Faults of an embedded cluster by name, and everything as it was afterwards."""

from __future__ import annotations

import difflib
from typing import Any, Final

from nsqsmart.embedded import Cluster, faults

ACTIONS: Final = tuple(
    name
    for name in vars(faults.Fault)
    if not name.startswith("_") and name not in faults.ONLY_PROXIES | {"spent"}
)
"""What may happen: the methods of :class:`nsqsmart.embedded.faults.Fault` for a server."""


class Mischief:
    """Does harm to *cluster*; :meth:`mend` ends it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __call__(
        self,
        command: str,
        action: str,
        *arguments: Any,
        nth: int = 1,
        times: int = 1,
        **more: Any,
    ) -> faults.Fault:
        """Have *action* done on the *nth* such command from now on, and on the next ones.

        Args:
            command: a verb (``PUB``), a frame (``MESSAGE``) or a path (``/lookup``).
            action: ``"reply"``, ``"reset"``, ``"store_then_reset"``, ``"delay"``, ...; *arguments*
                are those of the method of :class:`nsqsmart.embedded.faults.Fault`.
            times: how often; ``nsqsmart.embedded.faults.ALWAYS`` does not end.
            **more: ``topic``, ``partition`` and ``nsqd`` say where.

        Returns the fault, whose ``acted`` counts. Raises ValueError for one that could never act.
        """
        if action not in ACTIONS:
            near = difflib.get_close_matches(action, ACTIONS, n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"faults know no {action!r}{hint} (known: {', '.join(ACTIONS)})")
        fault = faults.on(command, nth=nth, times=times, **more)
        return self._cluster.faults.add(getattr(fault, action)(*arguments))

    def move_leader(self, topic: str, partition: int = 0) -> None:
        """Let another replica lead; the topic needs two."""
        self._cluster.move_leader(topic, partition)

    def clear(self) -> None:
        """End every fault."""
        self._cluster.faults.clear()

    def mend(self) -> None:
        """End every fault, wake what hangs, start what was killed."""
        self.clear()
        cluster = self._cluster
        for nsqd in cluster.nsqds:
            if nsqd.listening:
                cluster.wake(nsqd)
            else:
                cluster.restart(nsqd)
        for lookupd in cluster.lookupds:
            if not lookupd.listening:
                cluster.restart(lookupd)
