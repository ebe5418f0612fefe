"""Which nsqd is connected to, and what is said where that is not clear."""

from __future__ import annotations

import pytest

from nsqsmart.client.pulling.subscription import choose_target
from nsqsmart.errors import ConfigError, DiscoveryError, OrderingNotSupported
from nsqsmart.names import Address
from nsqsmart.policy.answers.lookup import Node, TopicMeta, TopicState
from nsqsmart.policy.topology import Topology

A, B = (Node(Address(host, 4150), Address(host, 4151)) for host in "ab")


def led(*leaders: Node | None) -> Topology:
    known = {number: node for number, node in enumerate(leaders) if node}
    meta = TopicMeta(partition_num=len(leaders))
    return Topology("t", TopicState.FOUND, known, meta=meta, redesigned=True)


def at(*nodes: Node) -> Topology:
    return Topology("t", TopicState.FOUND, nodes=nodes)


@pytest.mark.parametrize(
    ("topology", "partition", "nsqd", "found"),
    [
        (led(A), None, None, ("a:4150", 0)),
        (led(A, B), 1, None, ("b:4150", 1)),
        (led(A, B), 1, "b:4150", ("b:4150", 1)),
        (led(A, B), None, "b:4150", ("b:4150", 1)),
        (led(A, A), 0, "a:4150", ("a:4150", 0)),
        (at(A), None, None, ("a:4150", None)),
        (at(A, B), None, "b:4150", ("b:4150", None)),
    ],
)
def test_the_one_that_is_meant(topology, partition, nsqd, found):
    target = choose_target(topology, partition, nsqd)
    assert (target.name, target.partition) == found


@pytest.mark.parametrize(
    ("topology", "partition", "nsqd", "error", "says"),
    [
        (led(A, B), None, None, ConfigError, "2 partitions: say which, by partition="),
        (led(A, None), None, None, ConfigError, "2 partitions"),
        (at(A, B), None, None, ConfigError, "a:4150, b:4150: say which, by nsqd="),
        (led(A, A), None, "a:4150", ConfigError, "leads partitions 0, 1 of 't': give partition="),
        (led(A), 1, None, ConfigError, "1 partitions, no 1"),
        (at(A), 0, None, OrderingNotSupported, "give nsqd="),
        (at(), None, None, DiscoveryError, "no nsqd has topic"),
        (at(A), None, "b:4150", DiscoveryError, "not at b:4150 but at a:4150"),
        (led(A, None), 1, None, DiscoveryError, "partition 1 of .* has no leader"),
        (led(A, B), 1, "a:4150", DiscoveryError, "led by b:4150, not by a:4150"),
    ],
)
def test_what_is_not_clear_is_said(topology, partition, nsqd, error, says):
    with pytest.raises(error, match=says):
        choose_target(topology, partition, nsqd)
