"""/stats of a redesigned nsqd (protocol#http, protocol#stats)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from nsqsmart.embedded.broker.redesigned_channel import RedesignedChannel
from nsqsmart.embedded.nsqd.hosting import RedesignedHosting, RedesignedShard
from nsqsmart.embedded.nsqd.http.stats_clients import NO_LATENCY, clients, connections
from nsqsmart.embedded.nsqd.node import Node
from nsqsmart.embedded.nsqd.tcp.connection import Connection

_NANOSECONDS = 1_000_000_000
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
# Counts by size and by latency; nothing is measured here.
_CHANNEL_BUCKETS, _TOPIC_BUCKETS = 12, 16


def redesigned_stats(
    node: Node, hosting: RedesignedHosting, query: Mapping[str, str]
) -> dict[str, Any]:
    """The document of a redesigned nsqd: one entry per local partition, led here or not."""
    wanted, partition = query.get("topic", ""), query.get("partition", "")
    asked = query.get("needClients", "")
    # A request that names a topic gets its clients, unless it says no.
    with_clients = asked == "true" or bool(wanted and not asked)
    known = connections(node) if with_clients else None
    leaders_only = query.get("leaderOnly") in _TRUE
    topics = [
        _topic(node, shard, query.get("channel", ""), known)
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


def _topic(
    node: Node, shard: RedesignedShard, wanted: str, known: dict[int, Connection] | None
) -> dict[str, Any]:
    meta, log = shard.meta, shard.partition.log
    channels = _channels(shard, wanted, known)
    publishers = [
        _publisher(each, count)
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
        "e2e_processing_latency": NO_LATENCY,
    }


def _publisher(connection: Connection, count: int) -> dict[str, Any]:
    return {
        "remote_address": connection.remote_address,
        "user_agent": connection.settled.user_agent,
        "protocol": "tcp",
        "pub_count": count,
        "err_count": 0,
        "last_pub_ts": connection.last_command_at(),
    }


def _channels(
    shard: RedesignedShard, wanted: str, known: dict[int, Connection] | None
) -> list[dict[str, Any]]:
    """All of them, or the *wanted* one; a name that is not there wants none in particular."""
    with shard.lock:
        channels = shard.partition.channels
        names = [wanted] if wanted in channels else sorted(channels)
        return [_channel(channels[name], known) for name in names]


def _channel(channel: RedesignedChannel, known: dict[int, Connection] | None) -> dict[str, Any]:
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
        "clients": None if known is None else clients(channel, known),
        "client_num": len(channel.consumers),
        "paused": channel.paused,
        "skipped": channel.skipped,
        "zan_test_skipped": channel.tests_skipped,
        "delayed_queue_count": 0,
        "delayed_queue_recent": _shown(0),
        "delayed_queue_recent_nano": 0,
        "e2e_processing_latency": NO_LATENCY,
        "msg_consume_latency_stats": [0] * _CHANNEL_BUCKETS,
        "msg_delivery_latency_stats": [0] * _CHANNEL_BUCKETS,
    }


def _shown(nanoseconds: int) -> str:
    """A time as Go prints it."""
    whole, rest = divmod(nanoseconds, _NANOSECONDS)
    fraction = f".{rest:09}".rstrip("0").rstrip(".")
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"
