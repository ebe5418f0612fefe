"""One queue, first come first served."""

from __future__ import annotations

from nsqsmart.embedded.broker.original_channel import OriginalChannel
from nsqsmart.embedded.broker.original_partition import OriginalPartition
from tests.unit.embedded.broker import Client, join, original, publish


def channel_of(partition: OriginalPartition, name: str = "c") -> OriginalChannel:
    channel = partition.create_channel(name)
    assert isinstance(channel, OriginalChannel)
    return channel


def test_rdy_bounds_what_is_out_and_an_answer_makes_room() -> None:
    partition = original()
    channel = channel_of(partition)
    client = join(channel, Client(), rdy=2)
    first, *_ = publish(partition, b"a", b"b", b"c")
    assert client.bodies() == [b"a", b"b"]
    assert (channel.depth(), channel.in_flight_count) == (1, 2)
    assert channel.finish_many(client, [first]) == []
    channel.pump(0)
    assert client.bodies() == [b"c"]


def test_consumers_share() -> None:
    partition = original()
    channel = channel_of(partition)
    clients = [join(channel, Client(number)) for number in (1, 2)]
    publish(partition, *[b"%d" % number for number in range(10)])
    shares = [client.bodies() for client in clients]
    assert sorted(shares[0] + shares[1]) == [b"%d" % number for number in range(10)]
    assert all(len(share) == 5 for share in shares)


def test_a_paused_channel_sends_nothing() -> None:
    partition = original()
    channel = channel_of(partition)
    client = join(channel, Client())
    channel.paused = True
    publish(partition, b"a")
    assert client.bodies() == []
    channel.paused = False
    channel.pump(0)
    assert client.bodies() == [b"a"]


def test_what_is_requeued_goes_behind_what_waits_and_counts_on() -> None:
    partition = original()
    channel = channel_of(partition)
    client = join(channel, Client(), rdy=1)
    (key, *_) = publish(partition, b"a", b"b")
    client.take_messages()
    assert channel.requeue(client, key, 0, 0) is None
    channel.pump(0)
    (b,) = client.take_messages()
    assert (b.body, b.attempts, channel.requeue_count) == (b"b", 1, 1)
    channel.finish_many(client, [b.id])
    channel.pump(0)
    (again,) = client.take_messages()
    assert (again.body, again.attempts, again.id) == (b"a", 2, key)


def test_a_delay_is_kept_and_clamped() -> None:
    partition = original(max_requeue_delay=60.0)
    channel = channel_of(partition)
    client = join(channel, Client())
    key, other = publish(partition, b"a", b"b")
    client.take_messages()
    channel.requeue(client, key, 5.0, 10.0)
    channel.requeue(client, other, 1000.0, 10.0)
    assert (len(channel.deferred), partition.alarm.at) == (2, 15.0)
    partition.expire(14.9)
    assert client.bodies() == []
    partition.expire(15.0)
    assert [message.attempts for message in client.take_messages()] == [2]
    assert partition.alarm.at == 70.0


def test_what_is_published_deferred_is_delivered_once_and_then_only() -> None:
    partition = original()
    channel = channel_of(partition)
    client = join(channel, Client())
    partition.publish_deferred(b"later", 1, 0.0, 5.0)
    publish(partition, b"now")
    assert client.bodies() == [b"now"]
    assert channel.depth() == 0
    partition.expire(5.0)
    (message,) = client.take_messages()
    assert (message.body, message.attempts) == (b"later", 1)
    assert channel.finish_many(client, [message.id]) == []
    assert (channel.confirmed.position, channel.in_flight_count) == (1, 1)


def test_a_timeout_puts_it_back_and_the_late_answer_is_refused() -> None:
    partition = original()
    channel = channel_of(partition)
    late = join(channel, Client(1, msg_timeout=10.0))
    (key,) = publish(partition, b"a")
    assert partition.alarm.at == 10.0
    late.rdy = 0
    partition.expire(10.0)
    assert (channel.timeout_count, channel.depth(), late.timed_out) == (1, 1, 1)
    assert channel.finish_many(late, [key]) == [(0, "ID not in flight")]
    other = join(channel, Client(2))
    assert [message.attempts for message in other.take_messages()] == [2]
    assert channel.finish_many(late, [key]) == [(0, "client does not own message")]


def test_touching_gives_a_fresh_timeout_up_to_a_limit() -> None:
    partition = original(max_msg_timeout=15.0)
    channel = channel_of(partition)
    client = join(channel, Client(msg_timeout=10.0))
    (key,) = publish(partition, b"a")
    client.take_messages()
    assert channel.touch(client, key, 4.0) is None
    partition.expire(13.9)
    assert client.bodies() == []
    channel.touch(client, key, 13.0)
    partition.expire(14.9)
    assert client.holding == 1
    partition.expire(15.0)
    assert client.bodies() == [b"a"]
    assert channel.touch(client, b"x" * 16, 0) == "ID not in flight"


def test_messages_of_a_lost_connection_wait_for_their_timeout() -> None:
    partition = original()
    channel = channel_of(partition)
    lost, other = Client(1, msg_timeout=10.0), Client(2)
    join(channel, lost)
    (key,) = publish(partition, b"a")
    channel.remove(lost, 1.0)
    join(channel, other)
    assert other.bodies() == []
    assert channel.in_flight_count == 1
    assert channel.finish_many(other, [key]) == [(0, "client does not own message")]
    assert channel.next_due() == 10.0
    partition.expire(10.0)
    assert [message.attempts for message in other.take_messages()] == [2]


def test_emptying_forgets_what_waits_and_what_is_out() -> None:
    partition = original()
    channel = channel_of(partition)
    client = join(channel, Client(), rdy=1)
    key, _ = publish(partition, b"a", b"b")
    channel.empty()
    assert (channel.depth(), channel.in_flight_count) == (0, 0)
    assert channel.finish_many(client, [key]) == [(0, "ID not in flight")]
    client.take_messages()
    publish(partition, b"c")
    assert client.bodies() == [b"c"]


def test_sampling_drops_what_nobody_gets() -> None:
    partition = original()
    channel = channel_of(partition)
    client = join(channel, Client(sample_rate=50), rdy=2500)
    publish(partition, *[b"x"] * 1000)
    assert 400 < len(client.bodies()) < 620
    assert channel.depth() == 0
