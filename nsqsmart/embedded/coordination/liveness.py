"""Which nodes of a redesigned cluster are there: their sessions begin, end and expire.

This is etcd's part, and that of the lookup daemons that watch it (protocol#leader-switch).
"""

from __future__ import annotations

from nsqsmart.embedded.coordination.leadership import Leadership
from nsqsmart.embedded.coordination.topology import ClusterTopology, Slot
from nsqsmart.embedded.nsqd.server import Nsqd
from nsqsmart.embedded.serving.loop import Loop


class Liveness:
    """Is told what happens to nodes, and lets others lead in time.

    *election* is how long, in seconds, a session outlives its node. Public methods take the
    topology's lock; those with an underscore are called with it, unless they say otherwise.
    """

    def __init__(
        self, topology: ClusterTopology, leadership: Leadership, election: float, loop: Loop
    ) -> None:
        self._topology = topology
        self._leadership = leadership
        self._election = election
        self._loop = loop
        self._sessions: dict[Nsqd, int] = {}

    def joined(self, nsqd: Nsqd) -> None:
        """A node is up, for the first time or again."""
        with self._topology.lock:
            self._sessions[nsqd] = self._sessions.get(nsqd, 0) + 1
            self._topology.up.add(nsqd)
            for slot in self._topology.slots.values():
                if nsqd in slot.replicas:
                    self._rejoin(slot, nsqd)

    def _rejoin(self, slot: Slot, nsqd: Nsqd) -> None:
        slot.in_sync.add(nsqd)
        slot.said_farewell.discard(nsqd)
        if slot.leader is None or slot.resigned:
            self._leadership.lead(
                slot, slot.leader if slot.leader in self._topology.alive() else nsqd
            )
        elif slot.leader is nsqd and slot.shard.leader is not nsqd.node:
            self._leadership.lead(slot, nsqd)
        else:
            slot.write_failed = False
            self._leadership.refresh(slot)

    def lost(self, nsqd: Nsqd) -> None:
        """A node is gone without a word; others lead once its session has expired."""
        with self._topology.lock:
            self._topology.up.discard(nsqd)
            session = self._sessions.get(nsqd, 0)
            for slot in self._topology.slots.values():
                if slot.leader is nsqd:
                    self._leadership.dismiss(slot, None)
                if nsqd in slot.in_sync:
                    self._leadership.refresh(slot)
        self._loop.call_later(self._election, lambda: self._expire(nsqd, session))

    def hung(self, nsqd: Nsqd) -> None:
        """A node answers nothing; the lookup daemons notice before its session expires."""
        with self._topology.lock:
            session = self._sessions.get(nsqd, 0)
            for slot in self._topology.slots.values():
                if slot.leader is nsqd:
                    slot.shard.asleep = True
                elif nsqd in slot.in_sync:
                    self._leadership.refresh(slot)
        self._loop.call_later(self._election / 2, lambda: self._unseen(nsqd, session))
        self._loop.call_later(self._election, lambda: self._expire(nsqd, session))

    def woken(self, nsqd: Nsqd) -> None:
        """A hung node goes on; what it lost meanwhile it learns now."""
        with self._topology.lock:
            gone = self._leadership.take_farewells(nsqd)
        for consumer in gone:
            consumer.sink.end()
        self.joined(nsqd)
        for slot in list(self._topology.slots.values()):
            if slot.leader is nsqd and slot.shard.asleep:
                slot.shard.wake()

    def leaving(self, nsqd: Nsqd) -> None:
        """A node ends in order: it hands over what it leads."""
        with self._topology.lock:
            self._sessions[nsqd] = session = self._sessions.get(nsqd, 0) + 1
            self._topology.up.discard(nsqd)
            self._hand_over(nsqd, farewell=True)
        self._loop.call_later(self._election, lambda: self._expire(nsqd, session))

    def _unseen(self, nsqd: Nsqd, session: int) -> None:
        """By the loop, without the lock: the lookup daemons notice a hung node."""
        with self._topology.lock:
            if self._sessions.get(nsqd, 0) == session and nsqd.node.hung:
                self._topology.up.discard(nsqd)

    def _expire(self, nsqd: Nsqd, session: int) -> None:
        """By the loop, without the lock: in-sync sets shrink, followers lead."""
        with self._topology.lock:
            if self._sessions.get(nsqd, 0) == session:
                self._topology.up.discard(nsqd)
                self._hand_over(nsqd)

    def _hand_over(self, nsqd: Nsqd, *, farewell: bool = False) -> None:
        for slot in self._topology.slots.values():
            followers = slot.in_sync - {nsqd}
            needed = slot.leader is not nsqd and len(followers) <= slot.shard.meta.replicas // 2
            if farewell and nsqd in slot.in_sync and needed:
                # Missed by the next write, or left out when its session expires
                # (protocol#lost-quorum).
                slot.said_farewell.add(nsqd)
                self._leadership.refresh(slot)
                continue
            if nsqd in slot.in_sync and (followers or slot.leader is not nsqd):
                slot.in_sync = followers
                slot.write_failed = False
            if slot.leader is nsqd:
                slot.moving = False
                candidates = [
                    each for each in slot.replicas if each in followers & self._topology.alive()
                ]
                self._leadership.lead(slot, candidates[0] if candidates else None)
                if not candidates:
                    slot.in_sync.add(nsqd)
            else:
                self._leadership.refresh(slot)
