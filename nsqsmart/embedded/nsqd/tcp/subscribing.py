"""SUB, SUB_ADVANCED and SUB_ORDERED (protocol#sub); every refusal is fatal."""

from __future__ import annotations

from nsqsmart.embedded.broker.consumer import ChannelConsumer, SubscriptionTerms
from nsqsmart.embedded.broker.ext import make_filter
from nsqsmart.embedded.broker.redesigned_channel import RedesignedChannel
from nsqsmart.embedded.gotext import quote, shown
from nsqsmart.embedded.nsqd.hosting import (
    DEFAULT,
    OriginalTopics,
    RedesignedHosting,
    RedesignedShard,
)
from nsqsmart.embedded.nsqd.offsets import OffsetRefused, Position, find_index, parse_position
from nsqsmart.embedded.nsqd.refusals import (
    BAD_TOPIC,
    INVALID,
    CommandRefused,
    not_leader,
    not_writable,
    topic_not_exist,
)
from nsqsmart.embedded.nsqd.tcp.connection import ClientConnection, ClientState
from nsqsmart.embedded.nsqd.tcp.identifying import check_auth
from nsqsmart.embedded.nsqd.tcp.publishing_redesigned import parse_partition
from nsqsmart.names import is_valid_name
from nsqsmart.wire.answers import SUB_EXTEND_FORBIDDEN, SUB_EXTEND_NEED, SUB_ORDER_IS_MUST
from nsqsmart.wire.command_decoder import CommandLine
from nsqsmart.wire.frames import OK
from nsqsmart.wire.messages import MessageLayout

_NAMES = 2
_WITH_PARTITION = 3
_WITH_START = 4


def _check(connection: ClientConnection, command: CommandLine) -> tuple[str, str]:
    """State and names, as both dialects check them; topic and channel."""
    if connection.state is not ClientState.INIT:
        raise CommandRefused(INVALID, "cannot SUB in current state")
    if not connection.settled.heartbeat_interval:
        raise CommandRefused(INVALID, "cannot SUB with heartbeats disabled")
    params = command.params
    if len(params) < _NAMES:
        raise CommandRefused(INVALID, "SUB insufficient number of parameters")
    topic, channel = shown(params[0]), shown(params[1])
    if not is_valid_name(topic):
        raise CommandRefused(BAD_TOPIC, f"SUB topic name {quote(params[0])} is not valid")
    if not is_valid_name(channel):
        raise CommandRefused("E_BAD_CHANNEL", f"SUB channel name {quote(params[1])} is not valid")
    return topic, channel


SUBSCRIBED_BUFFER = 4096
"""Bytes to which the output buffer of a redesigned nsqd grows with the first subscription."""


class OriginalSubscribing:
    """SUB makes the topic and the channel."""

    def __init__(self, topics: OriginalTopics) -> None:
        self._topics = topics

    def sub(self, connection: ClientConnection, command: CommandLine) -> bytes:
        """SUB."""
        topic, name = _check(connection, command)
        check_auth(connection, "SUB", topic, name)
        shard = self._topics.get(topic)
        self._topics.create_channel(shard, name)
        settled = connection.settled
        subscription = SubscriptionTerms(
            msg_timeout=settled.msg_timeout / 1000, sample_rate=settled.sample_rate
        )
        limit = connection.node.options.max_channel_consumers
        with shard.lock:
            channel = shard.partition.create_channel(name)
            if limit and len(channel.consumers) >= limit:
                text = f"SUB failed consumers for {topic}:{name} exceeds limit of {limit}"
                raise CommandRefused("E_SUB_FAILED", text)
            consumer = ChannelConsumer(connection.number, connection.outbox, subscription)
            channel.add(consumer)
        connection.buffer_output(settled.output_buffer_size)
        connection.consumer, connection.channel, connection.shard = consumer, channel, shard
        connection.state = ClientState.SUBSCRIBED
        return OK

    def leave(self, connection: ClientConnection) -> None:
        """The connection is gone; an ephemeral channel goes with its last consumer."""
        shard, channel = connection.shard, connection.channel
        if shard is None or channel.ephemeral is False or channel.consumers:
            return
        self._topics.delete_channel(shard, channel.name)


class RedesignedSubscribing:
    """The verb says whether messages come with offsets, and whether in order."""

    def __init__(self, hosting: RedesignedHosting) -> None:
        self._hosting = hosting

    def sub(self, connection: ClientConnection, command: CommandLine) -> bytes:
        """SUB: plain messages."""
        return self._subscribe(connection, command, detailed=False, ordered=False)

    def sub_ordered(self, connection: ClientConnection, command: CommandLine) -> bytes:
        """SUB_ORDERED: one message at a time, with its place in the log."""
        return self._subscribe(connection, command, detailed=True, ordered=True)

    def sub_advanced(self, connection: ClientConnection, command: CommandLine) -> bytes:
        """SUB_ADVANCED: with the place in the log, and a fifth token for where to begin."""
        start: Position | None = None
        if len(command.params) >= _WITH_START and command.params[_WITH_PARTITION]:
            try:
                start = parse_position(command.params[_WITH_PARTITION])
            except (OffsetRefused, ValueError) as error:
                raise CommandRefused(INVALID, str(error)) from error
        return self._subscribe(connection, command, detailed=True, ordered=False, start=start)

    def _subscribe(
        self,
        connection: ClientConnection,
        command: CommandLine,
        *,
        detailed: bool,
        ordered: bool,
        start: Position | None = None,
    ) -> bytes:
        topic, name = _check(connection, command)
        partition = DEFAULT
        if len(command.params) == _WITH_PARTITION:
            partition = parse_partition(command.params[_NAMES])
        check_auth(connection, "SUB", topic, name)
        shard = self._hosting.find(topic, partition)
        if shard is None:
            raise topic_not_exist()
        self._check_kind(connection, shard, ordered=ordered)
        with shard.lock:
            channel = self._enter(connection, shard, name, detailed=detailed)
            if ordered:
                if connection.settled.sample_rate:
                    text = "order consume is not allowed while sample rate is not 0"
                    raise CommandRefused(INVALID, text)
                channel.set_ordered(ordered=True)
            if start is not None and len(channel.consumers) == 1:
                coordinated = self._hosting.coordinated
                try:
                    channel.move_to(find_index(shard, start, coordinated=coordinated))
                except OffsetRefused as error:
                    raise CommandRefused(INVALID, str(error)) from error
        self._hosting.channel_changed(shard, name, there=True)
        return OK

    @staticmethod
    def _check_kind(connection: ClientConnection, shard: RedesignedShard, *, ordered: bool) -> None:
        if shard.meta.ordered and not ordered:
            text = "this topic is configured only allow ordered sub"
            raise CommandRefused(SUB_ORDER_IS_MUST, text)
        supports = connection.settled.extend_support
        compatible = connection.node.options.allow_sub_ext_compatible
        if shard.meta.extended and not supports and not compatible:
            text = "this topic is extended and should identify as extend support."
            raise CommandRefused(SUB_EXTEND_NEED, text)
        if not shard.meta.extended and supports:
            text = "this topic is not extended and should not identify as extend support."
            raise CommandRefused(SUB_EXTEND_FORBIDDEN, text)

    def _enter(
        self, connection: ClientConnection, shard: RedesignedShard, name: str, *, detailed: bool
    ) -> RedesignedChannel:
        """Join the channel; called with the lock."""
        if shard.leader is not connection.node:
            raise not_leader(fatal=True)
        if name not in shard.partition.channels and not shard.meta.channel_auto_create:
            text = "channel is not registered under topic."
            raise CommandRefused("E_SUB_CHANNEL_NOT_REGISTERED", text)
        if not shard.consumable:
            raise not_writable(fatal=True)
        settled, extended = connection.settled, shard.meta.extended
        subscription = SubscriptionTerms(
            msg_timeout=settled.msg_timeout / 1000,
            layout=MessageLayout(extended and settled.extend_support, detailed),
            sample_rate=settled.sample_rate,
            tag=settled.desired_tag if extended else "",
            address=connection.remote_address,
            wants=make_filter(settled.ext_filter) if extended else None,
        )
        channel = shard.partition.create_channel(name)
        assert isinstance(channel, RedesignedChannel)  # noqa: S101 - told to the type checker
        consumer = ChannelConsumer(connection.number, connection.outbox, subscription)
        channel.add(consumer)
        connection.buffer_output(max(settled.output_buffer_size, SUBSCRIBED_BUFFER))
        connection.consumer, connection.channel, connection.shard = consumer, channel, shard
        connection.state = ClientState.SUBSCRIBED
        return channel

    def leave(self, connection: ClientConnection) -> None:
        """The connection is gone; an ephemeral channel goes with its last consumer."""
        shard, channel = connection.shard, connection.channel
        if shard is None or not channel.ephemeral or channel.consumers:
            return
        with shard.lock:
            shard.partition.delete_channel(channel.name)
        self._hosting.channel_changed(shard, channel.name, there=False)
