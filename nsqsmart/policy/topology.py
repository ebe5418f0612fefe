"""The topology of a topic: which nsqd leads which partition. Immutable, replaced whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from nsqsmart.names import Address, Dialect
from nsqsmart.policy.answers.lookup import LookupAnswer, Node, TopicMeta, TopicState


class Target(NamedTuple):
    """Where a command goes: an nsqd, and its partition (None on an original nsqd)."""

    node: Node
    partition: int | None
    name: str

    @classmethod
    def at(cls, node: Node, partition: int | None) -> Target:
        """The target at *node*; its name is the address as text."""
        return cls(node, partition, str(node.address))

    @property
    def address(self) -> Address:
        """The nsqd's TCP address."""
        return self.node.address


@dataclass(frozen=True)
class Topology:
    """One topic as the lookups see it.

    ``state`` is UNKNOWN when no lookup knows the topic, NO_CHANNEL when a redesigned lookup
    withholds it from writers. ``partition_num`` (0 on an original cluster) comes from the
    topic's metadata and is what keys are mapped by, however many leaders are listed.
    ``generation`` grows by one with every snapshot; ``taken_at`` is monotonic seconds.
    """

    topic: str
    state: TopicState = TopicState.UNKNOWN
    leaders: Mapping[int, Node] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    meta: TopicMeta = field(default_factory=TopicMeta)
    redesigned: bool = False
    generation: int = 0
    taken_at: float = 0.0
    skipped: int = 0

    @property
    def dialect(self) -> Dialect:
        """REDESIGNED once partitions were seen."""
        return Dialect.REDESIGNED if self.redesigned else Dialect.ORIGINAL

    @cached_property
    def partition_num(self) -> int:
        """How many partitions the topic has, listed or not."""
        return self.meta.partition_num or (max(self.leaders, default=-1) + 1)

    @cached_property
    def lacks_leaders(self) -> bool:
        """Whether some partition has no leader: one that crashed is replaced.

        See protocol#dead-leader.
        """
        return self.redesigned and len(self.leaders) < self.partition_num

    @cached_property
    def led(self) -> dict[int, Target]:
        """The leader of each partition that has one."""
        return {number: Target.at(self.leaders[number], number) for number in sorted(self.leaders)}

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        """Every place to publish to or subscribe at."""
        return (*self.led.values(), *(Target.at(node, None) for node in self.nodes))


class Refused(NamedTuple):
    """A leader that an error has proved wrong or dead."""

    partition: int | None
    address: Address


def merge(
    topic: str,
    answers: Sequence[LookupAnswer],
    previous: Topology | None,
    *,
    now: float,
    refused: Collection[Refused] = (),
    keeps: bool = False,
) -> Topology:
    """Merge the answers of all lookups into one topology.

    Original answers are united by address. Partitions have one leader each: the majority's, then
    the first answer's (the caller puts the leading lookup first) that differs from the node that
    just refused. A partition that no answer lists keeps its last known node unless an error has
    proved that one wrong: a 200 with missing partitions, or none, is partial knowledge, seen for
    seconds after etcd returns (protocol#lost-lookup). So is a 200 without the partition count,
    which keys are mapped by: the last known one holds.

    With *keeps* original nsqds stay too where no lookup knows any: one that was restarted has
    forgotten them until they register again. An error proves that one of them is gone.
    """
    found = [answer for answer in answers if answer.state is TopicState.FOUND]
    generation = previous.generation + 1 if previous else 1
    redesigned = any(a.redesigned for a in found or answers)
    redesigned = redesigned or bool(previous and previous.redesigned)
    skipped = sum(answer.skipped for answer in answers)
    meta = _meta(found, previous)
    leaders = _kept(previous, refused, meta.partition_num) | _named(found, refused)
    nodes = _nodes(found)
    if keeps and not found and _state(answers) is TopicState.UNKNOWN:
        nodes = _remembered(previous, refused)
    if not found and not nodes and not (leaders and any(map(_is_empty, answers))):
        return Topology(
            topic,
            _state(answers),
            redesigned=redesigned,
            generation=generation,
            taken_at=now,
            skipped=skipped,
        )
    return Topology(
        topic,
        TopicState.FOUND,
        leaders,
        nodes,
        meta,
        redesigned,
        generation,
        now,
        skipped,
    )


def direct(topic: str, addresses: Sequence[Address]) -> Topology:
    """The topology of nsqds that were named by hand: no partitions, original dialect."""
    nodes = tuple(Node(address, Address(address.host, 0)) for address in addresses)
    return Topology(topic, TopicState.FOUND, nodes=nodes, generation=1)


def _state(answers: Sequence[LookupAnswer]) -> TopicState:
    states = {answer.state for answer in answers}
    return TopicState.NO_CHANNEL if TopicState.NO_CHANNEL in states else TopicState.UNKNOWN


def _meta(found: Sequence[LookupAnswer], previous: Topology | None) -> TopicMeta:
    told = [answer.meta for answer in found if answer.meta.partition_num]
    if told:
        return max(told, key=lambda meta: meta.partition_num)
    return previous.meta if previous else TopicMeta()


def _nodes(found: Sequence[LookupAnswer]) -> tuple[Node, ...]:
    """The original nsqds: a redesigned answer names its leaders a second time as producers."""
    led_at = {node.address for answer in found for node in answer.leaders.values()}
    nodes = {
        node.address: node
        for answer in found
        for node in answer.producers
        if node.address not in led_at and node.dialect is Dialect.ORIGINAL
    }
    return tuple(nodes.values())


def _remembered(previous: Topology | None, refused: Collection[Refused]) -> tuple[Node, ...]:
    nodes = previous.nodes if previous else ()
    return tuple(node for node in nodes if Refused(None, node.address) not in refused)


def _is_empty(answer: LookupAnswer) -> bool:
    """Whether a redesigned lookup answered 200 and listed nothing."""
    return answer.redesigned and answer.state is TopicState.UNKNOWN


def _kept(
    previous: Topology | None, refused: Collection[Refused], partition_num: int
) -> dict[int, Node]:
    """The last known leaders, as far as neither an error nor the partition count denies them."""
    return {
        number: node
        for number, node in (previous.leaders.items() if previous else ())
        if Refused(number, node.address) not in refused and number < (partition_num or number + 1)
    }


def _named(found: Sequence[LookupAnswer], refused: Collection[Refused]) -> dict[int, Node]:
    named: dict[int, list[Node]] = {}
    for answer in found:
        for number, node in answer.leaders.items():
            named.setdefault(number, []).append(node)
    return {number: _elect(number, nodes, refused) for number, nodes in named.items()}


def _elect(number: int, named: Sequence[Node], refused: Collection[Refused]) -> Node:
    votes = Counter(node.address for node in named)
    most = max(votes.values())
    tied = [node for node in named if votes[node.address] == most]
    fresh = [node for node in tied if Refused(number, node.address) not in refused]
    return (fresh or tied)[0]
