"""/stats of an nsqd of either dialect (protocol#http, protocol#stats)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from nsqsmart.embedded.broker.channel import BrokerChannel
from nsqsmart.embedded.broker.consumer import LIMITED_RDY, ChannelConsumer
from nsqsmart.embedded.broker.original_channel import OriginalChannel
from nsqsmart.embedded.broker.records import RECORD_OVERHEAD
from nsqsmart.embedded.broker.redesigned_channel import RedesignedChannel
from nsqsmart.embedded.nsqd.hosting import (
    OriginalShard,
    OriginalTopics,
    RedesignedHosting,
    RedesignedShard,
)
from nsqsmart.embedded.nsqd.node import NsqdNode
from nsqsmart.embedded.nsqd.tcp.connection import ClientConnection
from nsqsmart.embedded.nsqd.tcp.subscribing import SUBSCRIBED_BUFFER

_NO_LATENCY = {"count": 0, "percentiles": None}
_NANOSECONDS_PER_MS = 1_000_000
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
_NANOSECONDS = 1_000_000_000
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
# Counts by size and by latency; nothing is measured here.
_CHANNEL_BUCKETS, _TOPIC_BUCKETS = 12, 16


def _original_publisher(connection: ClientConnection, wanted: str) -> dict[str, Any]:
    """A client that has published; with the counts of the *wanted* topic alone, if one is."""
    counts = [
        {"topic": topic, "count": count}
        for topic, count in connection.published.items()
        if wanted in ("", topic)
    ]
    # The real server stops after one, whichever it is.
    return _describe(connection, None) | ({"pub_counts": counts[:1]} if counts else {})


def original_stats(
    node: NsqdNode, topics: OriginalTopics, query: Mapping[str, str]
) -> dict[str, Any]:
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
        shown = known if with_clients else None
        having = [shard for shard in chosen if not channel or channel in shard.partition.channels]
        listed = [_original_topic(shard, channel, shown) for shard in having]
        if with_clients:
            published = [each for each in known.values() if each.published]
            publishers = [_original_publisher(each, wanted) for each in published] or None
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
    shard: OriginalShard, wanted: str, known: dict[int, ClientConnection] | None
) -> dict[str, Any]:
    partition, log = shard.partition, shard.partition.log
    return {
        "topic_name": shard.meta.name,
        "channels": [
            _original_channel(channel, None if known is None else _clients(channel, known))
            for name, channel in sorted(partition.channels.items())
            if wanted in ("", name)
        ],
        "depth": partition.depth(),
        "backend_depth": partition.depth_on_disk(),
        "message_count": log.end,
        "message_bytes": log.next_offset - RECORD_OVERHEAD * log.end,
        "paused": partition.paused,
        "e2e_processing_latency": _NO_LATENCY,
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
        "e2e_processing_latency": _NO_LATENCY,
    }


def redesigned_stats(
    node: NsqdNode, hosting: RedesignedHosting, query: Mapping[str, str]
) -> dict[str, Any]:
    """The document of a redesigned nsqd: one entry per local partition, led here or not."""
    wanted, partition = query.get("topic", ""), query.get("partition", "")
    asked = query.get("needClients", "")
    # A request that names a topic gets its clients, unless it says no.
    with_clients = asked == "true" or bool(wanted and not asked)
    known = _connections(node) if with_clients else None
    leaders_only = query.get("leaderOnly") in _TRUE
    topics = [
        _redesigned_topic(node, shard, query.get("channel", ""), known)
        for shard in hosting.local()
        if wanted in ("", shard.meta.name)
        and partition in ("", str(shard.number))
        and (shard.leader is node or not leaders_only)
    ]
    return {
        "version": node.options.version,
        "health": "OK",
        "start_time": node.started,
        "topics": topics,
    }


def _redesigned_topic(
    node: NsqdNode, shard: RedesignedShard, wanted: str, known: dict[int, ClientConnection] | None
) -> dict[str, Any]:
    meta, log = shard.meta, shard.partition.log
    channels = _redesigned_channels(shard, wanted, known)
    publishers = [
        _redesigned_publisher(each, count)
        for each in (known or {}).values()
        if (count := each.published[meta.name])
    ]
    return {
        "topic_name": meta.name,
        "topic_full_name": f"{meta.name}-{shard.number}",
        "topic_partition": str(shard.number),
        "channels": channels,
        "channel_num": len(shard.partition.channels),
        # Bytes here, messages in the channels (protocol#http).
        "depth": log.next_offset,
        "backend_depth": log.next_offset,
        "backend_start": log.start_offset,
        "message_count": log.end,
        "is_leader": shard.leader is node,
        "hourly_pubsize": 0,
        "client_pub_stats": None if known is None else publishers,
        "client_num": len(publishers),
        "msg_size_stats": [0] * _TOPIC_BUCKETS,
        "msg_write_latency_stats": [0] * _TOPIC_BUCKETS,
        "is_multi_ordered": meta.ordered,
        "is_multi_part": meta.multi_part,
        "is_ext": meta.extended,
        "is_channel_auto_create_disabled": not meta.channel_auto_create,
        "statsd_name": f"{meta.name}.{shard.number}" if meta.multi_part else meta.name,
        "pub_failed_cnt": 0,
        "e2e_processing_latency": _NO_LATENCY,
    }


def _redesigned_publisher(connection: ClientConnection, count: int) -> dict[str, Any]:
    return {
        "remote_address": connection.remote_address,
        "user_agent": connection.settled.user_agent,
        "protocol": "tcp",
        "pub_count": count,
        "err_count": 0,
        "last_pub_ts": connection.last_command_at(),
    }


def _redesigned_channels(
    shard: RedesignedShard, wanted: str, known: dict[int, ClientConnection] | None
) -> list[dict[str, Any]]:
    """All of them, or the *wanted* one; a name that is not there wants none in particular."""
    with shard.lock:
        channels = shard.partition.channels
        names = [wanted] if wanted in channels else sorted(channels)
        return [_redesigned_channel(channels[name], known) for name in names]


def _redesigned_channel(
    channel: RedesignedChannel, known: dict[int, ClientConnection] | None
) -> dict[str, Any]:
    log, position = channel.log, channel.confirmed.position
    oldest = log.read(max(position, log.base), position + 1)
    since = oldest[0].timestamp if oldest else 0
    return {
        "channel_name": channel.name,
        "backlogs": max(0, log.end - channel.backlog.cursor),
        "depth": channel.depth(),
        "depth_size": log.next_offset - oldest[0].offset if oldest else 0,
        "depth_ts": _shown(since),
        "depth_ts_nano": since,
        "backend_depth": channel.depth(),
        "hourly_subsize": 0,
        "in_flight_count": channel.in_flight_count,
        "deferred_count": len(channel.deferred),
        "deferred_from_delay_count": 0,
        "message_count": log.end,
        "requeue_count": channel.requeue_count,
        "timeout_count": channel.timeout_count,
        "clients": None if known is None else _clients(channel, known),
        "client_num": len(channel.consumers),
        "paused": channel.paused,
        "skipped": channel.skipped,
        "zan_test_skipped": channel.tests_skipped,
        "delayed_queue_count": 0,
        "delayed_queue_recent": _shown(0),
        "delayed_queue_recent_nano": 0,
        "e2e_processing_latency": _NO_LATENCY,
        "msg_consume_latency_stats": [0] * _CHANNEL_BUCKETS,
        "msg_delivery_latency_stats": [0] * _CHANNEL_BUCKETS,
    }


def _shown(nanoseconds: int) -> str:
    """A time as Go prints it."""
    whole, rest = divmod(nanoseconds, _NANOSECONDS)
    fraction = f".{rest:09}".rstrip("0").rstrip(".")
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


def _connections(node: NsqdNode) -> dict[int, ClientConnection]:
    """The clients of *node* by their number."""
    served = (getattr(each, "connection", None) for each in node.connections.every())
    return {each.number: each for each in served if isinstance(each, ClientConnection)}


def _describe(connection: ClientConnection, consumer: ChannelConsumer | None) -> dict[str, Any]:
    """One client; a producer has no consumer."""
    settled = connection.settled
    document: dict[str, Any] = {
        "client_id": settled.client_id,
        "hostname": settled.hostname,
        "version": "V2",
        "remote_address": connection.remote_address,
        "state": int(connection.state),
        "ready_count": 0 if consumer is None else consumer.rdy,
        "in_flight_count": 0 if consumer is None else consumer.holding,
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
    if connection.node.options.redesigned:
        document |= _only_redesigned(connection, consumer)
    return document


def _only_redesigned(
    connection: ClientConnection, consumer: ChannelConsumer | None
) -> dict[str, Any]:
    """What only a redesigned nsqd says, times in nanoseconds."""
    settled = connection.settled
    return {
        "name": settled.client_id,
        "desired_tag": settled.desired_tag,
        "msg_timeout": settled.msg_timeout * _NANOSECONDS_PER_MS,
        "output_buffer_size": max(settled.output_buffer_size, SUBSCRIBED_BUFFER),
        "output_buffer_timeout": settled.output_buffer_timeout * _NANOSECONDS_PER_MS,
        "timeout_count": 0 if consumer is None else consumer.timed_out,
        "deferred_count": 0,
        "ext_filter": settled.ext_filter or {},
        "limited_rdy": LIMITED_RDY if consumer is None else consumer.most,
    }


def _authority(connection: ClientConnection) -> dict[str, Any]:
    """Who it is, if an auth server said so."""
    authority = connection.authority
    if authority is None or not authority.grants:
        return {}
    identity = {"auth_identity": authority.identity, "auth_identity_url": authority.identity_url}
    return {"authed": True} | {name: value for name, value in identity.items() if value}


def _clients(channel: BrokerChannel, known: dict[int, ClientConnection]) -> list[dict[str, Any]]:
    """The consumers of *channel*."""
    return [
        _describe(known[consumer.id], consumer)
        for consumer in list(channel.consumers)
        if consumer.id in known
    ]
