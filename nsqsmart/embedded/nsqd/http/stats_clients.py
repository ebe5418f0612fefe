"""Clients, as both /stats show them."""

from __future__ import annotations

from typing import Any

from nsqsmart.embedded.broker.channel import Channel
from nsqsmart.embedded.broker.consumer import LIMITED_RDY, Consumer
from nsqsmart.embedded.nsqd.node import Node
from nsqsmart.embedded.nsqd.tcp.connection import Connection
from nsqsmart.embedded.nsqd.tcp.subscribing import SUBSCRIBED_BUFFER

NO_LATENCY = {"count": 0, "percentiles": None}
_NANOSECONDS_PER_MS = 1_000_000


def connections(node: Node) -> dict[int, Connection]:
    """The clients of *node* by their number."""
    served = (getattr(each, "connection", None) for each in node.connections.every())
    return {each.number: each for each in served if isinstance(each, Connection)}


def describe(connection: Connection, consumer: Consumer | None) -> dict[str, Any]:
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
        document |= _redesigned(connection, consumer)
    return document


def _redesigned(connection: Connection, consumer: Consumer | None) -> dict[str, Any]:
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


def _authority(connection: Connection) -> dict[str, Any]:
    """Who it is, if an auth server said so."""
    authority = connection.authority
    if authority is None or not authority.grants:
        return {}
    identity = {"auth_identity": authority.identity, "auth_identity_url": authority.identity_url}
    return {"authed": True} | {name: value for name, value in identity.items() if value}


def clients(channel: Channel, known: dict[int, Connection]) -> list[dict[str, Any]]:
    """The consumers of *channel*."""
    return [
        describe(known[consumer.id], consumer)
        for consumer in list(channel.consumers)
        if consumer.id in known
    ]
