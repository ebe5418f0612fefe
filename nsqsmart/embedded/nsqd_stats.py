"""/stats of both dialects (protocol 8, cluster 13)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsqsmart.embedded.broker.channel import Channel
from nsqsmart.embedded.broker.consumer import Consumer
from nsqsmart.embedded.broker.records import RECORD_OVERHEAD
from nsqsmart.embedded.broker.redesigned_channel import RedesignedChannel
from nsqsmart.embedded.connection import Connection
from nsqsmart.embedded.hosting import (
    OriginalShard,
    OriginalTopics,
    RedesignedHosting,
    RedesignedShard,
)
from nsqsmart.embedded.node import Node

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
_NO_LATENCY = {"count": 0, "percentiles": None}
_FALSE = ("false", "0")
_NANOSECONDS = 1_000_000_000


def _connections(node: Node) -> dict[int, Connection]:
    served = (getattr(each, "connection", None) for each in node.connections())
    return {each.number: each for each in served if isinstance(each, Connection)}


def _client(node: Node, connection: Connection, consumer: Consumer | None) -> dict[str, Any]:
    """One client; a producer has no consumer."""
    settled = connection.settled
    holding = 0 if consumer is None else consumer.holding
    client: dict[str, Any] = {
        "client_id": settled.client_id,
        "hostname": settled.hostname,
        "version": "V2",
        "remote_address": f"{connection.peer[0]}:{connection.peer[1]}",
        "state": int(connection.state),
        "ready_count": 0 if consumer is None else consumer.rdy,
        "in_flight_count": holding,
        "message_count": 0 if consumer is None else consumer.delivered,
        "finish_count": 0 if consumer is None else consumer.finished,
        "requeue_count": 0 if consumer is None else consumer.requeued,
        "connect_ts": connection.connected_at,
        "sample_rate": settled.sample_rate,
        "deflate": settled.deflate,
        "snappy": settled.snappy,
        "user_agent": settled.user_agent,
        **_authority(connection),
        "tls": connection.layers.tls is not None,
        "tls_cipher_suite": "",
        "tls_version": "",
        "tls_negotiated_protocol": "",
        "tls_negotiated_protocol_is_mutual": False,
    }
    if node.options.redesigned:
        client |= {
            "name": settled.client_id,
            "desired_tag": settled.desired_tag,
            "msg_timeout": settled.msg_timeout * 1_000_000,
            "output_buffer_size": settled.output_buffer_size,
            "output_buffer_timeout": settled.output_buffer_timeout,
            "timeout_count": 0 if consumer is None else consumer.timed_out,
        }
    return client


def _authority(connection: Connection) -> dict[str, Any]:
    """Who it is, if an auth server said so."""
    authority = connection.authority
    if authority is None or not authority.grants:
        return {}
    identity = {"auth_identity": authority.identity, "auth_identity_url": authority.identity_url}
    return {"authed": True} | {name: value for name, value in identity.items() if value}


def _publisher(node: Node, connection: Connection, wanted: str) -> dict[str, Any]:
    """A client that has published; with the counts of the *wanted* topic alone, if one is."""
    counts = [
        {"topic": topic, "count": count}
        for topic, count in connection.published.items()
        if wanted in ("", topic)
    ]
    # The real server stops after one, whichever it is.
    return _client(node, connection, None) | ({"pub_counts": counts[:1]} if counts else {})


def _clients(node: Node, channel: Channel, known: dict[int, Connection]) -> list[dict[str, Any]]:
    return [
        _client(node, known[consumer.id], consumer)
        for consumer in list(channel.consumers)
        if consumer.id in known
    ]


def original_stats(node: Node, topics: OriginalTopics, query: Mapping[str, str]) -> dict[str, Any]:
    """The document of an original nsqd."""
    known = _connections(node)
    with_clients = query.get("include_clients") not in _FALSE
    wanted, channel = query.get("topic", ""), query.get("channel", "")
    shards = sorted(topics.local(), key=lambda each: each.meta.name)
    chosen = [shard for shard in shards if wanted in ("", shard.meta.name)]
    listed: list[Any] | None = None
    publishers: list[Any] | None = None
    # A topic that is not there leaves even the producers out.
    if chosen or not wanted:
        clients = known if with_clients else None
        having = [shard for shard in chosen if not channel or channel in shard.partition.channels]
        listed = [_original_topic(node, shard, channel, clients) for shard in having]
        if with_clients:
            published = [each for each in known.values() if each.published]
            publishers = [_publisher(node, each, wanted) for each in published] or None
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
    node: Node, shard: OriginalShard, wanted: str, known: dict[int, Connection] | None
) -> dict[str, Any]:
    partition, log = shard.partition, shard.partition.log
    return {
        "topic_name": shard.meta.name,
        "channels": [
            _original_channel(channel, None if known is None else _clients(node, channel, known))
            for name, channel in sorted(partition.channels.items())
            if wanted in ("", name)
        ],
        "depth": partition.depth(),
        "backend_depth": 0,
        "message_count": log.end,
        "message_bytes": log.next_offset - RECORD_OVERHEAD * log.end,
        "paused": partition.paused,
        "e2e_processing_latency": _NO_LATENCY,
    }


def _original_channel(channel: Channel, clients: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {
        "channel_name": channel.name,
        "depth": channel.depth(),
        "backend_depth": 0,
        "in_flight_count": channel.in_flight_count,
        "deferred_count": len(channel.deferred),
        "message_count": channel.log.visible - channel.began_at,
        "requeue_count": channel.requeue_count,
        "timeout_count": channel.timeout_count,
        "client_count": len(channel.consumers),
        "clients": clients,
        "paused": channel.paused,
        "e2e_processing_latency": _NO_LATENCY,
    }


def redesigned_stats(
    node: Node, hosting: RedesignedHosting, query: Mapping[str, str]
) -> dict[str, Any]:
    """The document of a redesigned nsqd: one entry per local partition, led here or not."""
    known = _connections(node)
    with_clients = query.get("needClients") == "true"
    leaders_only = query.get("leaderOnly") == "true"
    topics = []
    for shard in hosting.local():
        leads = shard.leader is node
        wanted = query.get("topic") in (None, "", shard.meta.name)
        wanted = wanted and query.get("partition", "") in ("", str(shard.number))
        if wanted and (leads or not leaders_only):
            channels = _redesigned_channels(node, shard, query, known if with_clients else None)
            topics.append(_redesigned_topic(shard, channels, leads=leads))
    return {
        "version": node.options.version,
        "health": "OK",
        "start_time": node.started,
        "topics": topics,
    }


def _redesigned_topic(
    shard: RedesignedShard, channels: list[dict[str, Any]], *, leads: bool
) -> dict[str, Any]:
    meta, log = shard.meta, shard.partition.log
    return {
        "topic_name": meta.name,
        "topic_full_name": f"{meta.name}-{shard.number}",
        "topic_partition": str(shard.number),
        "channels": channels,
        # Bytes here, messages in the channels (protocol 8).
        "depth": log.next_offset,
        "backend_depth": log.next_offset,
        "backend_start": log.start_offset,
        "message_count": log.end,
        "is_leader": leads,
        "is_multi_ordered": meta.ordered,
        "is_multi_part": meta.multi_part,
        "is_ext": meta.extended,
        "is_channel_auto_create_disabled": not meta.channel_auto_create,
        "hourly_pubsize": 0,
        "pub_failed_cnt": 0,
        "client_pub_stats": None,
        "e2e_processing_latency": _NO_LATENCY,
    }


def _redesigned_channels(
    node: Node,
    shard: RedesignedShard,
    query: Mapping[str, str],
    known: dict[int, Connection] | None,
) -> list[dict[str, Any]]:
    wanted = query.get("channel")
    found = []
    with shard.lock:
        for name, channel in sorted(shard.partition.channels.items()):
            if wanted not in (None, "", name):
                continue
            assert isinstance(channel, RedesignedChannel)  # noqa: S101 - told to the type checker
            clients = None if known is None else _clients(node, channel, known)
            found.append(_redesigned_channel(channel, clients))
    return found


def _redesigned_channel(
    channel: RedesignedChannel, clients: list[dict[str, Any]] | None
) -> dict[str, Any]:
    log, position = channel.log, channel.confirmed.position
    oldest = log.read(max(position, log.base), position + 1)
    return {
        "channel_name": channel.name,
        "depth": channel.depth(),
        "depth_size": log.next_offset - oldest[0].offset if oldest else 0,
        "depth_ts_nano": oldest[0].timestamp if oldest else 0,
        "backlogs": max(0, log.end - channel.backlog.cursor),
        "backend_depth": channel.depth(),
        "in_flight_count": channel.in_flight_count,
        "deferred_count": len(channel.deferred),
        "message_count": log.end - channel.began_at,
        "requeue_count": channel.requeue_count,
        "timeout_count": channel.timeout_count,
        "client_num": len(channel.consumers),
        "clients": clients,
        "paused": channel.paused,
        "skipped": channel.skipped,
        "delayed_queue_count": 0,
        "delayed_queue_recent": "",
        "is_ordered": channel.ordered,
        "e2e_processing_latency": _NO_LATENCY,
    }
