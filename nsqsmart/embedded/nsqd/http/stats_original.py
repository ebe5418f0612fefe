"""/stats of an original nsqd (protocol#http)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsqsmart.embedded.broker.original_channel import OriginalChannel
from nsqsmart.embedded.broker.records import RECORD_OVERHEAD
from nsqsmart.embedded.nsqd.hosting import OriginalShard, OriginalTopics
from nsqsmart.embedded.nsqd.http.stats_clients import NO_LATENCY, clients, connections, describe
from nsqsmart.embedded.nsqd.node import Node
from nsqsmart.embedded.nsqd.tcp.connection import Connection

_MEMORY = (
    "heap_objects",
    "heap_idle_bytes",
    "heap_in_use_bytes",
    "heap_released_bytes",
    "gc_pause_usec_100",
    "gc_pause_usec_99",
    "gc_pause_usec_95",
    "next_gc_bytes",
    "gc_total_runs",
)
"""What Go says of its heap; here there is none, and each is 0."""
_FALSE = ("false", "0")


def _publisher(connection: Connection, wanted: str) -> dict[str, Any]:
    """A client that has published; with the counts of the *wanted* topic alone, if one is."""
    counts = [
        {"topic": topic, "count": count}
        for topic, count in connection.published.items()
        if wanted in ("", topic)
    ]
    # The real server stops after one, whichever it is.
    return describe(connection, None) | ({"pub_counts": counts[:1]} if counts else {})


def original_stats(node: Node, topics: OriginalTopics, query: Mapping[str, str]) -> dict[str, Any]:
    """The document of an original nsqd."""
    known = connections(node)
    with_clients = query.get("include_clients") not in _FALSE
    wanted, channel = query.get("topic", ""), query.get("channel", "")
    shards = sorted(topics.local(), key=lambda each: each.meta.name)
    chosen = [shard for shard in shards if wanted in ("", shard.meta.name)]
    listed: list[Any] | None = None
    publishers: list[Any] | None = None
    # A topic that is not there leaves even the producers out.
    if chosen or not wanted:
        shown = known if with_clients else None
        having = [shard for shard in chosen if not channel or channel in shard.partition.channels]
        listed = [_original_topic(shard, channel, shown) for shard in having]
        if with_clients:
            published = [each for each in known.values() if each.published]
            publishers = [_publisher(each, wanted) for each in published] or None
    document: dict[str, Any] = {
        "version": node.options.version,
        "health": "OK",
        "start_time": node.started,
        "topics": listed,
    }
    if query.get("include_mem") not in _FALSE:
        document["memory"] = dict.fromkeys(_MEMORY, 0)
    return document | {"producers": publishers}


def _original_topic(
    shard: OriginalShard, wanted: str, known: dict[int, Connection] | None
) -> dict[str, Any]:
    partition, log = shard.partition, shard.partition.log
    return {
        "topic_name": shard.meta.name,
        "channels": [
            _original_channel(channel, None if known is None else clients(channel, known))
            for name, channel in sorted(partition.channels.items())
            if wanted in ("", name)
        ],
        "depth": partition.depth(),
        "backend_depth": partition.depth_on_disk(),
        "message_count": log.end,
        "message_bytes": log.next_offset - RECORD_OVERHEAD * log.end,
        "paused": partition.paused,
        "e2e_processing_latency": NO_LATENCY,
    }


def _original_channel(
    channel: OriginalChannel, shown: list[dict[str, Any]] | None
) -> dict[str, Any]:
    return {
        "channel_name": channel.name,
        "depth": channel.depth(),
        "backend_depth": channel.depth_on_disk(),
        "in_flight_count": channel.in_flight_count,
        "deferred_count": len(channel.deferred),
        "message_count": channel.log.visible - channel.began_at,
        "requeue_count": channel.requeue_count,
        "timeout_count": channel.timeout_count,
        "client_count": len(channel.consumers),
        "clients": shown,
        "paused": channel.paused,
        "e2e_processing_latency": NO_LATENCY,
    }
