"""Where one publish call goes: its topology, its target, and for keyed messages its turn there."""

from __future__ import annotations

import logging
from time import monotonic

from nsqsmart.client.publishing.shared_state import PublishingState
from nsqsmart.client.shared.arguments import Publication
from nsqsmart.client.shared.errors import NoLeader, OrderingNotSupported, TopicNotExist
from nsqsmart.errors import ClientClosed, PartitionCountChanged, TopicHasNoChannel, TurnTimeout
from nsqsmart.names import Address
from nsqsmart.net.waiters import Waiter
from nsqsmart.policy.answers.lookup import TopicState
from nsqsmart.policy.routing import partition_for
from nsqsmart.policy.topology import Target, Topology

log = logging.getLogger("nsqsmart")


_UNKNOWN_LOOKUPS = 2
_NO_TOPIC = "check its name; a redesigned cluster does not create topics by itself"
_NO_NSQD = (
    "no nsqd has registered there, or the first message would create it: check that address, and "
    "that each nsqd has --lookupd-tcp-address"
)


class Placement:
    """Per-call routing state.

    ``topology`` is the snapshot it uses, None for a call that must look up; ``avoid`` are the nodes
    where it failed since it last paused; ``publication`` is what to send there, without a key where
    that means nothing and need not.
    """

    __slots__ = (
        "_asked",
        "_deadline",
        "_shared",
        "_turn",
        "_unknown_in",
        "avoid",
        "partition",
        "publication",
        "topology",
    )

    def __init__(self, shared: PublishingState, publication: Publication, deadline: float) -> None:
        self.avoid: frozenset[Address] = frozenset()
        self.partition: int | None = None
        self.topology: Topology | None = None
        self._shared = shared
        self.publication = self._asked = publication
        self._deadline = deadline
        self._turn: Waiter | None = None
        self._unknown_in: frozenset[int] = frozenset()

    @property
    def generation(self) -> int:
        """The generation of the topology; 0 without one."""
        return self.topology.generation if self.topology else 0

    def find(self) -> Target:
        """The target to try next; raises what the caller shall see, or NoLeader to look again."""
        self.publication = self._asked
        topology = self.topology
        if topology is None:
            topology = self._shared.directory.get(self._asked.topic, self._deadline)
            self.topology = topology
        if topology.state is not TopicState.FOUND:
            return self._find_unknown(topology)
        if not topology.redesigned:
            self.publication = self._shared.loosen(self._asked)
        if self.publication.key is None and self.publication.partition is None:
            return self._find_any(topology)
        return self._find_keyed(topology)

    def _find_any(self, topology: Topology) -> Target:
        """The target of an unkeyed message, which may go to every node of its topic."""
        if not topology.targets:
            raise NoLeader(f"no partition of topic {topology.topic!r} has a leader")
        return self._shared.pick(topology.targets, self.avoid, now=monotonic())

    def _find_keyed(self, topology: Topology) -> Target:
        """The target of a message for one partition: its leader, once the message has its turn."""
        publication = self.publication
        queued = self._turn is None
        partition = self._keep_to_partition(topology)
        if queued and self._turn and self._is_outdated(topology):
            return self.find()
        leader = topology.led.get(partition)
        if leader is None:
            raise NoLeader(f"partition {partition} of {publication.topic!r} has no leader")
        if self._shared.directory.is_doubted(publication.topic, partition, leader.node.address):
            raise NoLeader(f"{leader.name}, which leads partition {partition}, was just lost")
        return leader

    def release(self) -> None:
        """Give up the turn, or leave the queue for it."""
        if self._turn and self.partition is not None:
            self._shared.turns.give_up((self.publication.topic, self.partition), self._turn)

    def raise_fence(self) -> None:
        """Before a keyed command leaves: whatever ends this call, nothing follows too early."""
        fence = self._shared.config.uncertain_fence
        if fence and self._turn:
            answer_by = min(self._deadline, monotonic() + self._shared.patience_redesigned)
            self._shared.fences[self.publication.topic, self.partition] = answer_by + fence

    def settle_fence(self, *, answered: bool) -> None:
        """The command came to its end, or is now known to have got no answer."""
        fence = self._shared.config.uncertain_fence
        if not fence or not self.publication.keyed:
            return
        place = (self.publication.topic, self.partition)
        if not answered:
            self._shared.fences[place] = monotonic() + fence
        elif self._turn:
            self._shared.fences.pop(place, None)

    def _is_outdated(self, topology: Topology) -> bool:
        """Whether the leader may have moved while others had their turns: then look again."""
        self.topology = self._shared.directory.get(self.publication.topic, self._deadline)
        return self.topology is not topology

    def _keep_to_partition(self, topology: Topology) -> int:
        """The message's one partition; waits for its turn there."""
        topic = self.publication.topic
        if not topology.redesigned:
            raise OrderingNotSupported(
                f"topic {topic!r} is on an original NSQ, which has no partitions",
                hint='publish without key= and partition=; with ordering="best-effort" a key= is '
                "sent without order there",
            )
        partition = self._partition(topology)
        if partition >= topology.partition_num:
            count = topology.partition_num
            raise NoLeader(f"topic {topic!r} has {count} partitions, no {partition}")
        self.partition = partition
        if self._turn is None and self._shared.config.serialize:
            self._turn = Waiter()
            self._shared.turns.take((topic, partition), self._turn, self._deadline)
        self._wait_at_fence(partition)
        return partition

    def _partition(self, topology: Topology) -> int:
        publication, count = self.publication, topology.partition_num
        if publication.partition is not None:
            return publication.partition
        assert publication.key is not None  # noqa: S101 - keyed means one of the two is there
        partition = partition_for(publication.key, count, self._shared.config.sharding)
        before = self._shared.count_changed(publication.topic, count)
        if before or self.partition not in (None, partition):
            raise PartitionCountChanged(
                f"topic {publication.topic!r} now has {count} partitions"
                f"{f', not {before}' if before else ''}; keys have moved",
                hint="publish again, to the key's new partition; there is no order between the two",
            )
        return partition

    def _wait_at_fence(self, partition: int) -> None:
        """Let an unanswered command of this partition come to its end."""
        fences = self._shared.fences
        if not fences:
            return
        left = fences.get((self.publication.topic, partition), 0.0) - monotonic()
        if left <= 0:
            fences.pop((self.publication.topic, partition), None)
            return
        if left > self._deadline - monotonic():
            raise TurnTimeout(
                f"partition {partition} is fenced for {left:.1f} s more: a publish got no answer"
            )
        if self._shared.ending.passed(left):
            raise ClientClosed("the Producer was closed")

    def _find_unknown(self, topology: Topology) -> Target:
        """A topic that no lookup knows, or that has no channel yet."""
        topic = self.publication.topic
        if topology.state is TopicState.NO_CHANNEL:
            raise TopicHasNoChannel(
                f"topic {topic!r} has no channel, and takes no messages without one",
                hint=f"start a consumer, or make one: Admin.create_channel({topic!r}, NAME)",
            )
        nodes = self._shared.directory.nodes_for_new_topic(topic, self._deadline)
        if nodes:
            self.publication = self._shared.loosen(self._asked)
        if nodes and not self.publication.keyed:
            targets = [Target.at(node, None) for node in nodes]
            return self._shared.pick(targets, self.avoid, now=monotonic())
        if nodes:
            self._keep_to_partition(topology)
        self._unknown_in |= {topology.generation}
        discovery = self._shared.directory.discovery
        where, original = discovery.place if discovery else ("none", True)
        unknown = f"no nsqlookupd knows topic {topic!r} (asked: {where})"
        if len(self._unknown_in) >= _UNKNOWN_LOOKUPS:
            raise TopicNotExist(unknown, hint=_NO_NSQD if original else _NO_TOPIC)
        raise NoLeader(unknown)
