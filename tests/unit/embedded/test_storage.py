"""What is kept under the data path: a clean end keeps messages, a kill loses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nsqsmart.embedded.broker.ext import read_header
from nsqsmart.embedded.nsqd.disk.storage import Storage
from nsqsmart.embedded.nsqd.hosting import Announcer, OriginalTopics
from nsqsmart.embedded.nsqd.options import NsqdOptions
from nsqsmart.embedded.serving.loop import Loop
from nsqsmart.names import Dialect
from tests.unit.embedded.broker import Client, join, publish
from tests.unit.embedded.lives import Life, create_channel, shard_of


@pytest.fixture(params=["original", "redesigned"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_clean_end_keeps_what_was_not_finished(begin: Life, dialect: str) -> None:
    topics, storage = begin(dialect)
    shard = shard_of(topics)
    create_channel(topics, shard, "c")
    client = join(shard.partition.channels["c"], Client(), rdy=2)
    first, second, _ = publish(shard.partition, b"a", b"b", b"c")
    shard.partition.channels["c"].finish_many(client, [second])
    storage.save()
    topics, _ = begin(dialect)
    (shard,) = topics.local()
    successor = join(shard.partition.channels["c"], Client())
    messages = successor.take_messages()
    assert [message.body for message in messages] == [b"a", b"c"]
    assert first in messages[0].id


def test_a_kill_loses_what_is_in_memory_and_keeps_topics_and_channels(begin: Life) -> None:
    topics, _ = begin("original")
    shard = shard_of(topics)
    create_channel(topics, shard, "c")
    publish(shard.partition, b"a")
    topics, _ = begin("original")
    (shard,) = topics.local()
    assert list(shard.partition.channels) == ["c"]
    assert shard.partition.log.records == []


def test_a_redesigned_nsqd_loses_nothing_at_a_kill(begin: Life, tmp_path: Path) -> None:
    topics, storage = begin("redesigned")
    shard = shard_of(topics)
    create_channel(topics, shard, "c")
    client = join(shard.partition.channels["c"], Client(), rdy=1)
    first, _, _ = publish(shard.partition, b"a", b"b", b"c")
    shard.partition.channels["c"].finish_many(client, [first])
    storage.sync()
    storage.close()
    # Killed in the middle of a write.
    with (tmp_path / "t-0.messages").open("ab") as file:
        file.write(b"half a record")
    topics, _ = begin("redesigned")
    (shard,) = topics.local()
    assert join(shard.partition.channels["c"], Client()).bodies() == [b"b", b"c"]
    publish(shard.partition, b"d")
    topics, _ = begin("redesigned")
    assert join(topics.local()[0].partition.channels["c"], Client()).bodies() == [b"b", b"c", b"d"]


def test_what_memory_has_no_room_for_survives_a_kill(begin: Life) -> None:
    topics, _ = begin("original", mem_queue_size=2)
    shard = shard_of(topics)
    create_channel(topics, shard, "c")
    create_channel(topics, shard, "d")
    join(shard.partition.channels["d"], Client(), rdy=1)
    for body in (b"a", b"b", b"c", b"d", b"e"):
        publish(shard.partition, body)
    topics, _ = begin("original", mem_queue_size=2)
    (shard,) = topics.local()
    assert join(shard.partition.channels["c"], Client()).bodies() == [b"c", b"d", b"e"]
    assert join(shard.partition.channels["d"], Client()).bodies() == [b"d", b"e"]


def test_without_a_memory_queue_nothing_is_lost_at_a_kill(begin: Life) -> None:
    topics, storage = begin("original", mem_queue_size=0)
    shard = shard_of(topics)
    publish(shard.partition, b"before any channel")
    create_channel(topics, shard, "c")
    client = join(shard.partition.channels["c"], Client(), rdy=2)
    done, _, _ = publish(shard.partition, b"a", b"b", b"c")
    shard.partition.channels["c"].finish_many(client, [done])
    shard.partition.channels["c"].finish_many(client, [client.take_messages()[0].id])
    storage.sync()
    topics, storage = begin("original", mem_queue_size=0)
    channel = topics.local()[0].partition.channels["c"]
    messages = join(channel, Client()).take_messages()
    assert [message.body for message in messages] == [b"b", b"c"]
    # Finished, and noted: the queue is empty now.
    channel.finish_many(channel.consumers[0], [message.id for message in messages])
    storage.sync()
    topics, _ = begin("original", mem_queue_size=0)
    assert topics.local()[0].partition.channels["c"].depth() == 0


def test_a_topic_keeps_its_overflow_while_it_has_no_channel_or_is_paused(begin: Life) -> None:
    topics, _ = begin("original", mem_queue_size=1)
    publish(shard_of(topics).partition, b"a", b"b", b"c")
    topics, storage = begin("original", mem_queue_size=1)
    shard = shard_of(topics)
    assert (shard.partition.depth(), shard.partition.depth_on_disk()) == (2, 2)
    create_channel(topics, shard, "c")
    shard.partition.pause(paused=True)
    publish(shard.partition, b"d", b"e")
    assert (shard.partition.depth(), shard.partition.depth_on_disk()) == (2, 1)
    storage.save()
    topics, _ = begin("original", mem_queue_size=1)
    (shard,) = topics.local()
    channel = shard.partition.channels["c"]
    assert (channel.depth(), shard.partition.depth()) == (2, 2)
    shard.partition.pause(paused=False)
    assert join(channel, Client()).bodies() == [b"b", b"c", b"d", b"e"]


def test_a_clean_end_keeps_what_is_in_flight_or_deferred_and_counts_deliveries(begin: Life) -> None:
    topics, storage = begin("original")
    shard = shard_of(topics)
    create_channel(topics, shard, "c")
    channel = shard.partition.channels["c"]
    client = join(channel, Client(), rdy=3)
    publish(shard.partition, b"held", b"deferred", b"again")
    shard.partition.publish_deferred(b"later", 10**18 * 2, 0.0, 60.0)
    held, deferred, again = client.take_messages()
    channel.requeue(client, deferred.id, 60.0, 0.0)
    channel.requeue(client, again.id, 0.0, 0.0)
    channel.pump(0.0)
    assert [message.attempts for message in client.take_messages()] == [2]
    storage.save()
    topics, _ = begin("original")
    messages = join(topics.local()[0].partition.channels["c"], Client()).take_messages()
    found = {message.body: message.attempts for message in messages}
    assert found == {b"held": 2, b"deferred": 2, b"again": 3, b"later": 1}
    assert held.id == messages[0].id


def test_what_is_on_disk_after_a_clean_end_survives_a_kill_too(begin: Life) -> None:
    topics, storage = begin("original")
    publish(shard_of(topics).partition, b"a")
    storage.save()
    for _ in range(2):
        topics, storage = begin("original")
        assert topics.local()[0].partition.depth_on_disk() == 1
    create_channel(topics, topics.local()[0], "c")
    channel = topics.local()[0].partition.channels["c"]
    client = join(channel, Client())
    channel.finish_many(client, [client.take_messages()[0].id])
    storage.sync()
    topics, _ = begin("original")
    assert topics.local()[0].partition.channels["c"].depth() == 0


def test_places_ids_and_headers_are_those_of_before(begin: Life) -> None:
    topics, storage = begin("redesigned")
    topics.create("t", 0, extended=True)
    header, _ = read_header(b'{"##client_dispatch_tag":"red"}')
    (before,), _ = topics.find("t", 0).partition.publish([(b"x", 9, header)], 5, 0.0)
    storage.save()
    topics, _ = begin("redesigned")
    shard = topics.find("t", 0)
    (record,) = shard.partition.log.records
    assert (record.id, record.offset, record.size) == (before.id, before.offset, before.size)
    assert (record.ext.tag, shard.meta.extended) == ("red", True)


def test_what_is_ephemeral_is_not_written(begin: Life, tmp_path: Path) -> None:
    topics, storage = begin("original")
    create_channel(topics, topics.get("t"), "c#ephemeral")
    publish(topics.get("e#ephemeral").partition, b"x")
    storage.save()
    (topic,) = json.loads((tmp_path / "nsqd.dat").read_text())["topics"]
    assert (topic["name"], topic["channels"]) == ("t", [])
    assert [path.name for path in tmp_path.iterdir()] == ["nsqd.dat"]


def test_pauses_are_kept(begin: Life) -> None:
    topics, storage = begin("original")
    shard = topics.get("t")
    create_channel(topics, shard, "c")
    shard.partition.pause(paused=True)
    shard.partition.channels["c"].paused = True
    storage.save()
    topics, _ = begin("original")
    (shard,) = topics.local()
    assert shard.partition.paused
    assert shard.partition.channels["c"].paused


def test_the_file_of_a_real_redesigned_nsqd_is_understood(begin: Life, tmp_path: Path) -> None:
    topic = {
        "name": "t",
        "partition": 3,
        "ordered": True,
        "ext": True,
        "disbale_channel_auto_create": True,
        "channels": [{"name": "reg", "paused": False}],
    }
    document = {"version": "x", "topics": [topic, {"name": "$"}]}
    (tmp_path / "nsqd.0.dat").write_text(json.dumps(document))
    topics, _ = begin("redesigned")
    (shard,) = topics.local()
    meta = shard.meta
    assert (shard.number, meta.ordered, meta.extended) == (3, True, True)
    assert not meta.channel_auto_create
    assert list(shard.partition.channels) == ["reg"]


def test_without_a_data_path_nothing_is_kept(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    loop = Loop("nsqsmart-test")
    options = NsqdOptions(dialect=Dialect.ORIGINAL)
    topics = OriginalTopics(object(), options.limits(), loop)
    topics.announcer = storage = Storage(options, topics, Announcer())
    storage.load()
    publish(topics.get("t").partition, b"x")
    storage.save()
    loop.close()
    assert list(tmp_path.iterdir()) == []
