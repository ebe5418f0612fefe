"""A position in the log, ordered or not, with tags."""

from __future__ import annotations

import pytest

from nsqsmart.embedded.broker.ext import make_filter, read_header
from nsqsmart.embedded.broker.partition import RedesignedPartition
from nsqsmart.embedded.broker.redesigned_channel import RedesignedChannel
from nsqsmart.wire.ext import TAG
from nsqsmart.wire.messages import MessageLayout
from tests.unit.embedded.broker import NOW, Client, join, publish, redesigned


def channel_of(partition: RedesignedPartition, name: str = "c") -> RedesignedChannel:
    channel = partition.create_channel(name)
    assert isinstance(channel, RedesignedChannel)
    return channel


def test_messages_come_with_their_place_when_asked_for() -> None:
    partition = redesigned()
    channel = channel_of(partition)
    client = join(channel, Client(layout=MessageLayout(extended=False, detailed=True)))
    publish(partition, b"hello", b"hi")
    places = [(message.offset, message.size) for message in client.take_messages()]
    assert places == [(0, 35), (35, 32)]


def test_the_confirm_position_follows_the_first_that_is_missing() -> None:
    partition = redesigned()
    channel = channel_of(partition)
    client = join(channel, Client())
    a, b, c = publish(partition, b"a", b"b", b"c")
    channel.finish_many(client, [c])
    channel.finish_many(client, [b])
    assert (channel.confirmed.position, channel.depth()) == (0, 3)
    channel.finish_many(client, [a])
    assert (channel.confirmed.position, channel.depth()) == (3, 0)


def test_too_many_gaps_stop_reading_until_one_closes() -> None:
    partition = redesigned(max_confirm_window=2)
    channel = channel_of(partition)
    client = join(channel, Client(), rdy=7)
    keys = publish(partition, *[b"%d" % number for number in range(8)])
    client.take_messages()
    channel.finish_many(client, [keys[1], keys[3], keys[5]])
    channel.pump(0)
    assert client.bodies() == []
    channel.finish_many(client, [keys[0]])
    channel.pump(0)
    assert client.bodies() == [b"7"]


def test_requeued_at_once_it_comes_again_before_what_was_not_read() -> None:
    partition = redesigned()
    channel = channel_of(partition)
    client = join(channel, Client(), rdy=1)
    (key, _) = publish(partition, b"a", b"b")
    client.take_messages()
    assert channel.requeue(client, key, 0, 0.0) is None
    channel.pump(0)
    (again,) = client.take_messages()
    assert (again.body, again.attempts) == (b"a", 2)


def test_nobody_owns_a_deferred_message() -> None:
    partition = redesigned()
    channel = channel_of(partition)
    client = join(channel, Client(7))
    (key,) = publish(partition, b"a")
    assert channel.requeue(client, key, 60.0, 0.0) is None
    assert channel.requeue(client, key, 60.0, 0.0) == "Message is deferred"
    owner = "client does not own message : 0 vs 7"
    assert channel.finish_many(client, [key]) == [(0, owner)]
    assert channel.touch(client, key, 0.0) == owner
    partition.expire(60.0)
    assert [message.attempts for message in client.take_messages()][-1] == 2


def test_answers_of_others_are_refused_with_both_names() -> None:
    partition = redesigned()
    channel = channel_of(partition)
    join(channel, Client(3))
    other = Client(4)
    channel.add(other)
    (key,) = publish(partition, b"a")
    assert channel.finish_many(other, [key, b"none"]) == [
        (0, "client does not own message : 3 vs 4"),
        (1, "Message ID not in flight"),
    ]
    assert other.errors == 2


def test_hundreds_of_hasty_attempts_are_too_much() -> None:
    partition = redesigned()
    channel = channel_of(partition)
    client = join(channel, Client())
    (key,) = publish(partition, b"a")
    now = 0.0
    for _ in range(100):
        assert channel.requeue(client, key, 0, now) is None
        channel.pump(now)
    assert channel.requeue(client, key, 0, now + 0.05) == "Message too much requeue"
    assert channel.requeue(client, key, 0, now + 0.2) is None


def test_a_lost_connection_gives_back_at_once_and_this_delivery_does_not_count() -> None:
    partition = redesigned()
    channel = channel_of(partition)
    lost = join(channel, Client(1))
    publish(partition, b"a", b"b")
    other = join(channel, Client(2))
    channel.remove(lost, 0.0)
    channel.pump(0)
    messages = [(message.body, message.attempts) for message in other.take_messages()]
    assert messages == [(b"a", 1), (b"b", 1)]
    channel.remove(lost, 0.0)


def test_ordered_means_one_message_out_over_all_connections() -> None:
    partition = redesigned()
    channel = channel_of(partition)
    channel.set_ordered(ordered=True)
    clients = [join(channel, Client(number)) for number in (1, 2)]
    keys = publish(partition, b"a", b"b", b"c")
    seen: list[bytes] = []
    for key in keys:
        (holder,) = [client for client in clients if client.holding]
        seen += [body for client in clients for body in client.bodies()]
        assert channel.requeue(holder, key, 60.0, 0.0) is None  # swallowed
        assert holder.holding == 1
        channel.finish_many(holder, [key])
        channel.pump(0)
    assert seen == [b"a", b"b", b"c"]


def test_becoming_ordered_reads_again_what_was_not_finished() -> None:
    partition = redesigned()
    channel = channel_of(partition)
    client = join(channel, Client())
    _, b, _ = publish(partition, b"a", b"b", b"c")
    channel.finish_many(client, [b])
    client.take_messages()
    channel.set_ordered(ordered=True)
    seen = []
    for _ in range(2):
        channel.pump(0)
        (message,) = client.take_messages()
        seen.append(message.body)
        channel.finish_many(client, [message.id[:8]])
    assert seen == [b"a", b"c"]
    assert channel.depth() == 0


def test_skipping_discards_until_it_ends() -> None:
    partition = redesigned()
    channel = channel_of(partition)
    client = join(channel, Client())
    channel.skipped = True
    publish(partition, b"a")
    assert (client.bodies(), channel.depth()) == ([], 0)
    channel.skipped = False
    publish(partition, b"b")
    assert client.bodies() == [b"b"]


@pytest.mark.parametrize(("index", "bodies"), [(0, [b"a", b"b"]), (1, [b"b"]), (2, [])])
def test_a_channel_can_be_set_anywhere(index: int, bodies: list[bytes]) -> None:
    partition = redesigned()
    channel = channel_of(partition)
    client = join(channel, Client())
    publish(partition, b"a", b"b")
    client.take_messages()
    channel.move_to(index)
    channel.pump(0)
    assert client.bodies() == bodies
    assert channel.in_flight_count == len(bodies)


def tagged(partition: RedesignedPartition, *tags: str) -> None:
    headers = [read_header(f'{{"{TAG}":"{tag}"}}'.encode())[0] for tag in tags]
    partition.publish([(ext.tag.encode(), 0, ext) for ext in headers], NOW, 0.0)


def test_tags_choose_and_orphaned_tags_go_to_who_has_none() -> None:
    partition = redesigned(extended=True)
    channel = channel_of(partition)
    red, plain = join(channel, Client(1, tag="red"), rdy=1), join(channel, Client(2))
    tagged(partition, "red", "blue", "red")
    assert (red.bodies(), plain.bodies()) == ([b"red"], [b"blue"])
    channel.remove(red, 0.0)
    channel.pump(0)
    messages = [(message.body, message.attempts) for message in plain.take_messages()]
    assert messages == [(b"red", 1), (b"red", 1)]


def test_what_a_filter_does_not_want_is_finished() -> None:
    partition = redesigned(extended=True)
    channel = channel_of(partition)
    wants = make_filter({"type": 1, "filter_ext_key": TAG, "filter_data": "red"})
    client = join(channel, Client(wants=wants))
    tagged(partition, "red", "blue")
    assert client.bodies() == [b"red"]
    assert channel.confirmed.above == {1}


def test_another_leader_knows_the_confirm_position_only() -> None:
    partition = redesigned()
    channel = channel_of(partition)
    client = join(channel, Client())
    a, b, _ = publish(partition, b"a", b"b", b"c")
    channel.finish_many(client, [a])
    channel.requeue(client, b, 60.0, 0.0)
    assert partition.fail_over() == [client]
    successor = join(channel, Client(2))
    messages = [(message.body, message.attempts) for message in successor.take_messages()]
    assert messages == [(b"b", 1), (b"c", 1)]
    (key,) = publish(partition, b"d")
    assert int.from_bytes(key) == 2 + 3 + 1
