"""The copies of the first message of an ordered channel."""

from __future__ import annotations

from nsqsmart.embedded.broker.redesigned_channel import NOT_IN_FLIGHT
from tests.unit.embedded.broker import Client, join, publish, redesigned


def ordered(copies: int):
    """A partition, its ordered channel and its only consumer."""
    partition = redesigned()
    partition.ordered_copies = copies
    channel = partition.create_channel("c")
    channel.set_ordered(ordered=True)
    return partition, channel, join(channel, Client())


def test_a_fin_that_is_too_early_fails_and_brings_the_next_copy() -> None:
    partition, channel, client = ordered(2)
    first, second = publish(partition, b"a", b"b")
    for _ in range(2):
        assert client.bodies() == [b"a"]
        assert channel.finish_many(client, [first]) == [(0, NOT_IN_FLIGHT)]
        channel.pump(0.0)
    (last,) = client.take_messages()
    assert (last.body, last.attempts) == (b"a", 1)
    assert channel.finish_many(client, [first]) == []
    channel.pump(0.0)
    assert client.bodies() == [b"b"]
    assert channel.finish_many(client, [second]) == []


def test_without_a_fin_the_copy_comes_a_moment_later() -> None:
    partition, channel, client = ordered(1)
    (first,) = publish(partition, b"a")
    assert client.bodies() == [b"a"]
    assert partition.alarm.at == channel.next_due() == 0.001
    partition.expire(0.0005)
    assert client.bodies() == []
    partition.expire(0.001)
    assert client.bodies() == [b"a"]
    # The one FIN of a client that takes copies for what they are is enough.
    assert channel.finish_many(client, [first]) == []


def test_a_consumer_that_leaves_between_two_copies_loses_nothing() -> None:
    partition, channel, client = ordered(1)
    publish(partition, b"a")
    channel.remove(client, 0.0)
    successor = join(channel, Client(2))
    partition.expire(1.0)
    assert successor.bodies() == [b"a"]


def test_the_next_leader_does_it_again() -> None:
    partition, channel, client = ordered(1)
    publish(partition, b"a")
    assert client.bodies() == [b"a"]
    partition.fail_over()
    successor = join(channel, Client(2))
    partition.expire(1.0)
    assert successor.bodies() == [b"a", b"a"]
