"""What is kept under the data path: a clean end keeps messages, a kill loses them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqsmart.embedded.broker.ext import read_header
from nsqsmart.embedded.hosting import NoAnnouncer, OriginalTopics, StandaloneTopics
from nsqsmart.embedded.loop import Loop
from nsqsmart.embedded.options import NsqdOptions
from nsqsmart.embedded.storage import Storage
from nsqsmart.names import Dialect
from tests.unit.embedded.broker import Client, join, publish

Life = Callable[[str], tuple[Any, Storage]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Life]:
    """A life of an nsqd of a dialect, in always the same folder: its topics, and its storage."""
    loop = Loop("nsqsmart-test")

    def start(dialect: str) -> tuple[Any, Storage]:
        options = NsqdOptions(dialect=Dialect(dialect), data_path=tmp_path)
        kind = StandaloneTopics if options.redesigned else OriginalTopics
        topics = kind(object(), options.limits(), loop)
        storage = Storage(options, topics, NoAnnouncer())
        storage.load()
        topics.announcer = storage
        return topics, storage

    yield start
    loop.close()


def shard_of(topics: Any) -> Any:
    """The topic t, made if need be."""
    if isinstance(topics, StandaloneTopics):
        topics.create("t", 0, extended=False)
        return topics.find("t", 0)
    return topics.get("t")


def create_channel(topics: Any, shard: Any, name: str) -> None:
    if isinstance(topics, OriginalTopics):
        topics.create_channel(shard, name)
    else:
        shard.partition.create_channel(name)
        topics.channel_changed(shard, name, there=True)


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


def test_a_kill_loses_messages_and_keeps_topics_and_channels(begin: Life, dialect: str) -> None:
    topics, _ = begin(dialect)
    shard = shard_of(topics)
    create_channel(topics, shard, "c")
    publish(shard.partition, b"a")
    topics, _ = begin(dialect)
    (shard,) = topics.local()
    assert list(shard.partition.channels) == ["c"]
    assert shard.partition.log.records == []


def test_a_kill_after_a_clean_end_does_not_bring_messages_back_twice(begin: Life) -> None:
    topics, storage = begin("original")
    publish(shard_of(topics).partition, b"a")
    storage.save()
    begin("original")
    topics, _ = begin("original")
    assert topics.local()[0].partition.log.records == []


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
    topics.announcer = storage = Storage(options, topics, NoAnnouncer())
    storage.load()
    publish(topics.get("t").partition, b"x")
    storage.save()
    loop.close()
    assert list(tmp_path.iterdir()) == []
