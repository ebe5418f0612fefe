"""Many connections at once to one nsqd."""

from __future__ import annotations

from collections import Counter

import pytest

from nsqsmart.embedded import Cluster
from nsqsmart.wire import commands
from tests.helpers import eventually
from tests.integration.embedded.rawclient import RawClient

CONNECTIONS = 200
TURNS = 20


def publish(producers: list[RawClient], partition: int | None) -> set[bytes]:
    """Publish from all connections at once, in turns; returns what was acknowledged."""
    sent: set[bytes] = set()
    for turn in range(TURNS):
        for number, producer in enumerate(producers):
            body = b"%d-%d" % (turn, number)
            sent.add(body)
            producer.send(commands.pub("t", body, partition))
        for producer in producers:
            assert producer.response() == b"OK"
    return sent


def consume(consumers: list[RawClient], count: int) -> Counter[bytes]:
    """How often each body came."""
    seen: Counter[bytes] = Counter()
    while seen.total() < count:
        for consumer in consumers:
            while not consumer.silent(0):
                message = consumer.message()
                seen[message.body] += 1
                consumer.finish(message)
    return seen


@pytest.mark.parametrize("dialect", ["redesigned", "original"])
def test_two_hundred_connections_publish_and_consume(connect, dialect) -> None:
    partition = 0 if dialect == "redesigned" else None
    with Cluster(dialect=dialect, nsqds=1, lookupds=0) as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        clients = [connect(cluster.nsqds[0], patience=20) for _ in range(CONNECTIONS)]
        producers, consumers = clients[::2], clients[1::2]
        for consumer in consumers:
            consumer.subscribe(commands.sub("t", "c", partition), 2)
        sent = publish(producers, partition)
        assert consume(consumers, len(sent)) == Counter(sent)
        # The last FINs are on their way.
        eventually(lambda: len(cluster.log.of("FIN")) == len(sent))
        for consumer in consumers:
            assert consumer.silent(0)
