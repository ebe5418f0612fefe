"""Where plain messages of a topic may go, with what is the same for every one of them."""

from __future__ import annotations

from typing import NamedTuple

from nsqsmart.client.receipt import Receipt
from nsqsmart.policy.topology import Target, Topology
from nsqsmart.wire import commands


class Route(NamedTuple):
    """A target, the first lines of PUB and MPUB, and the receipt of a message stored at once."""

    target: Target
    line: bytes
    batch_line: bytes
    receipt: Receipt


def make_routes(topology: Topology) -> tuple[Route, ...]:
    """One for each target of *topology*."""
    topic = topology.topic
    return tuple(
        Route(
            target,
            commands.prefix("PUB", topic, target.partition),
            commands.prefix("MPUB", topic, target.partition),
            Receipt(topic, target.partition, target.name),
        )
        for target in topology.targets
    )
