"""The files of the queues: which there are, and those of the real program."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.embedded.broker import Client, join, publish
from tests.unit.embedded.lives import Life, create_channel, shard_of


def test_an_ephemeral_queue_drops_what_memory_has_no_room_for(begin: Life, tmp_path: Path) -> None:
    topics, _ = begin("original", mem_queue_size=2)
    shard = shard_of(topics)
    create_channel(topics, shard, "c#ephemeral")
    channel = shard.partition.channels["c#ephemeral"]
    publish(shard.partition, b"a", b"b", b"c")
    publish(shard.partition, b"d")
    assert (channel.depth(), channel.depth_on_disk()) == (2, 0)
    assert join(channel, Client()).bodies() == [b"a", b"b"]
    ephemeral = topics.get("e#ephemeral")
    publish(ephemeral.partition, b"a", b"b", b"c")
    assert ephemeral.partition.depth() == 2
    create_channel(topics, ephemeral, "c")
    assert join(ephemeral.partition.channels["c"], Client()).bodies() == [b"a", b"b"]
    assert not list(tmp_path.glob("*ephemeral*"))


def test_a_deleted_channel_leaves_no_file(begin: Life, tmp_path: Path) -> None:
    topics, _ = begin("original", mem_queue_size=0)
    shard = shard_of(topics)
    create_channel(topics, shard, "c")
    publish(shard.partition, b"a")
    assert (tmp_path / "t:c.diskqueue.000000.dat").exists()
    topics.delete_channel(shard, "c")
    publish(shard.partition, b"b")
    assert [path.name for path in tmp_path.glob("*.000000.dat")] == ["t.diskqueue.000000.dat"]
    topics.delete("t")
    assert [path.name for path in tmp_path.iterdir()] == ["nsqd.dat"]


def test_files_of_a_real_original_nsqd_are_understood(begin: Life, tmp_path: Path) -> None:
    def message(number: int, attempts: int) -> bytes:
        data = (10**18).to_bytes(8) + attempts.to_bytes(2) + b"%016x" % number + b"body %d" % number
        return len(data).to_bytes(4) + data

    topic = {"name": "t", "paused": False, "channels": [{"name": "c", "paused": False}]}
    (tmp_path / "nsqd.dat").write_text(json.dumps({"version": "1.3.0", "topics": [topic]}))
    first = message(1, 1)
    (tmp_path / "t:c.diskqueue.000003.dat").write_bytes(first + message(2, 0))
    (tmp_path / "t:c.diskqueue.000004.dat").write_bytes(message(3, 4))
    meta = f"2\n3,{len(first)}\n4,{len(message(3, 4))}\n"
    (tmp_path / "t:c.diskqueue.meta.dat").write_text(meta)
    topics, _ = begin("original")
    messages = join(topics.local()[0].partition.channels["c"], Client()).take_messages()
    assert [(each.body, each.attempts) for each in messages] == [(b"body 2", 1), (b"body 3", 5)]
