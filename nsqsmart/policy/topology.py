"""The picture of a topic: who leads which partition. Immutable, replaced whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from nsqsmart.names import Address, Dialect
from nsqsmart.policy.lookup_answers import LookupAnswer, Node, TopicMeta, TopicState


class Target(NamedTuple):
    """Where a command goes: an nsqd, and its partition (None on an original nsqd)."""

    node: Node
    partition: int | None

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
    ``generation`` grows by one with every picture; ``taken_at`` is monotonic seconds.
    """

    topic: str
    state: TopicState = TopicState.UNKNOWN
    leaders: Mapping[int, Node] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    meta: TopicMeta = TopicMeta()
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
    def targets(self) -> tuple[Target, ...]:
        """Every place to publish to or subscribe at."""
        led = tuple(Target(self.leaders[number], number) for number in sorted(self.leaders))
        return led + tuple(Target(node, None) for node in self.nodes)


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
) -> Topology:
    """One picture out of what every lookup answered.

    Original answers are united by address. Partitions have one leader each: the majority's, then
    the first answer's (the caller puts the leading lookup first) that differs from the node that
    just refused. A partition that no answer lists keeps its last known node unless an error has
    proved that one wrong: a 200 with missing partitions is partial knowledge, seen for seconds
    after the cluster's store returns (cluster 7).
    """
    found = [answer for answer in answers if answer.state is TopicState.FOUND]
    generation = previous.generation + 1 if previous else 1
    if not found:
        state = _state(answers)
        redesigned = any(a.redesigned for a in answers) or bool(previous and previous.redesigned)
        return Topology(
            topic, state, redesigned=redesigned, generation=generation, taken_at=now
        )
    leaders = _leaders(found, previous, refused)
    led_at = {node.address for answer in found for node in answer.leaders.values()}
    # A redesigned answer names its leaders a second time as producers; what remains is old nsqds.
    nodes = {
        node.address: node
        for answer in found
        for node in answer.producers
        if node.address not in led_at and not _is_redesigned(node)
    }
    return Topology(
        topic,
        TopicState.FOUND,
        leaders,
        tuple(nodes.values()),
        max((answer.meta for answer in found), key=lambda meta: meta.partition_num),
        any(answer.redesigned for answer in found),
        generation,
        now,
        sum(answer.skipped for answer in answers),
    )


def direct(topic: str, addresses: Sequence[Address]) -> Topology:
    """The picture when the nsqds were named by hand: no partitions, original dialect."""
    nodes = tuple(Node(address, Address(address.host, 0)) for address in addresses)
    return Topology(topic, TopicState.FOUND, nodes=nodes, generation=1)


def _state(answers: Sequence[LookupAnswer]) -> TopicState:
    states = {answer.state for answer in answers}
    return TopicState.NO_CHANNEL if TopicState.NO_CHANNEL in states else TopicState.UNKNOWN


def _is_redesigned(node: Node) -> bool:
    return "HA" in node.version


def _leaders(
    found: Sequence[LookupAnswer], previous: Topology | None, refused: Collection[Refused]
) -> dict[int, Node]:
    leaders = {
        number: node
        for number, node in (previous.leaders.items() if previous else ())
        if Refused(number, node.address) not in refused
    }
    for number in {number for answer in found for number in answer.leaders}:
        named = [answer.leaders[number] for answer in found if number in answer.leaders]
        leaders[number] = _elect(number, named, refused)
    return leaders


def _elect(number: int, named: Sequence[Node], refused: Collection[Refused]) -> Node:
    votes = Counter(node.address for node in named)
    most = max(votes.values())
    tied = [node for node in named if votes[node.address] == most]
    fresh = [node for node in tied if Refused(number, node.address) not in refused]
    return (fresh or tied)[0]
