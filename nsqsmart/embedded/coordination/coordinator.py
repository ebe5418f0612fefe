"""Who leads what in a redesigned cluster.

One object plays etcd, the leading nsqlookupd and the coordinators of the nsqds: ``topology`` has
topics and partitions, ``leadership`` their leaders, ``liveness`` the nodes that are up.
"""

from __future__ import annotations

from nsqsmart.embedded.coordination.leadership import Leadership
from nsqsmart.embedded.coordination.liveness import Liveness
from nsqsmart.embedded.coordination.topology import ClusterTopology
from nsqsmart.embedded.nsqd.hosting import RedesignedHosting, RedesignedShard
from nsqsmart.embedded.nsqd.server import Nsqd
from nsqsmart.embedded.script import Script
from nsqsmart.embedded.serving.loop import Loop


class Coordinator:
    """The three parts, over the same nodes."""

    def __init__(self, nsqds: list[Nsqd], script: Script, loop: Loop) -> None:
        self.topology = ClusterTopology(nsqds, script, loop)
        self.leadership = Leadership(self.topology, script, loop)
        self.liveness = Liveness(self.topology, self.leadership, script.election_delay, loop)
        self.topology.appoint = self.leadership.appoint

    def delete_topic(self, topic: str) -> None:
        """Forget a topic; its consumers are disconnected without a frame.

        Raises :class:`~nsqsmart.embedded.coordination.topology.CoordinatorRefused`.
        """
        for slot in self.topology.remove_topic(topic):
            with self.topology.lock:
                self.leadership.dismiss(slot, None)


class ClusterHosting(RedesignedHosting):
    """The partitions of one node of a cluster."""

    coordinated = True

    def __init__(self, nsqd: Nsqd, topology: ClusterTopology) -> None:
        self._nsqd = nsqd
        self._topology = topology

    def find(self, topic: str, partition: int) -> RedesignedShard | None:
        """The partition if the node is a replica; for -1 the first that it leads."""
        return self._topology.find(self._nsqd, topic, partition)

    def local(self) -> list[RedesignedShard]:
        """The partitions that the node is a replica of."""
        slots = list(self._topology.slots.values())
        return [slot.shard for slot in slots if self._nsqd in slot.replicas]

    def in_sync(self, topic: str, partition: int) -> list[str]:
        """As far as the coordinator knows: a member that died is one until it is missed."""
        slot = self._topology.slots.get((topic, partition))
        if slot is None or self._nsqd not in slot.replicas:
            return []
        return sorted(member.node.distributed_id for member in list(slot.in_sync))
