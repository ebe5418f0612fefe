"""A log and its channels."""

from __future__ import annotations

from math import inf

from tests.unit.embedded.broker import Client, join, original, publish, redesigned


def test_every_channel_gets_every_message() -> None:
    for partition in (original(), redesigned()):
        clients = [join(partition.create_channel(name), Client()) for name in ("a", "b")]
        publish(partition, b"x", b"y")
        assert [client.bodies() for client in clients] == [[b"x", b"y"]] * 2


def test_the_first_original_channel_takes_what_the_topic_kept() -> None:
    partition = original()
    publish(partition, b"kept")
    partition.publish_deferred(b"later", 1, 0.0, 5.0)
    assert partition.depth() == 2
    first = join(partition.create_channel("first"), Client())
    second = join(partition.create_channel("second"), Client())
    assert (first.bodies(), second.bodies()) == ([b"kept"], [])
    partition.expire(5.0)
    assert (first.bodies(), second.bodies()) == ([b"later"], [])
    assert partition.depth() == 0


def test_without_channels_an_original_topic_keeps_messages_again() -> None:
    partition = original()
    client = join(partition.create_channel("c"), Client())
    publish(partition, b"a")
    assert partition.delete_channel("c") == [client]
    assert partition.delete_channel("c") == []
    publish(partition, b"b")
    assert join(partition.create_channel("c"), Client()).bodies() == [b"b"]


def test_a_new_redesigned_channel_begins_at_the_end_or_where_it_is_told() -> None:
    partition = redesigned()
    publish(partition, b"a")
    assert join(partition.create_channel("c"), Client()).bodies() == []
    assert join(partition.create_channel("d", start=0), Client()).bodies() == [b"a"]
    partition.from_oldest = True
    assert join(partition.create_channel("e"), Client()).bodies() == [b"a"]


def test_a_channel_is_made_once() -> None:
    partition = redesigned()
    assert partition.create_channel("c") is partition.create_channel("c", start=0)


def test_a_paused_original_topic_keeps_its_messages() -> None:
    partition = original()
    client = join(partition.create_channel("c"), Client())
    partition.pause(paused=True)
    publish(partition, b"a")
    assert (client.bodies(), partition.depth(), partition.paused) == ([], 1, True)
    partition.empty()
    publish(partition, b"b")
    partition.pause(paused=False)
    partition.pump(0)
    assert client.bodies() == [b"b"]


def test_emptying_a_topic_without_channels_forgets_what_it_kept() -> None:
    partition = original()
    publish(partition, b"a")
    partition.publish_deferred(b"later", 1, 0.0, 5.0)
    partition.empty()
    client = join(partition.create_channel("c"), Client())
    partition.expire(5.0)
    assert client.bodies() == []


def test_the_alarm_says_when_to_look_and_rests_when_nothing_is_due() -> None:
    partition = redesigned()
    channel = partition.create_channel("c")
    client = join(channel, Client(msg_timeout=10.0))
    assert partition.alarm.at == inf
    (key,) = publish(partition, b"a", now=5.0)
    assert partition.alarm.at == 15.0
    channel.finish_many(client, [key])
    partition.expire(15.0)
    assert partition.alarm.at == inf


def test_the_sinks_to_flush_are_those_that_got_something() -> None:
    partition = redesigned()
    channel = partition.create_channel("c")
    client, idle = join(channel, Client(1)), join(channel, Client(2), rdy=0)
    _, woken = partition.publish([(b"a", 0, None)], 1, 0.0)
    assert set(woken) == {client.sink}
    assert idle.sink not in woken
