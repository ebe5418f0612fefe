"""Lives of an nsqd in one folder: for the tests of what is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nsqsmart.embedded.nsqd.disk.storage import Storage
from nsqsmart.embedded.nsqd.hosting import OriginalTopics, StandaloneTopics

Life = Callable[..., tuple[Any, Storage]]


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
