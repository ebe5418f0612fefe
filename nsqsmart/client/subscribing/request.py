"""What to subscribe to and how, and what a refused SUB means."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from nsqsmart.client.messages.message import Detailed, Message, ReadBatch, Source
from nsqsmart.client.shared.trace_log import Line
from nsqsmart.config import ConsumerConfig
from nsqsmart.errors import (
    ConfigError,
    ConnectError,
    NotAuthorized,
    NsqError,
    OrderingNotSupported,
    ProtocolError,
    ServerError,
    SubscribeError,
)
from nsqsmart.names import Dialect
from nsqsmart.net.connection import Connection
from nsqsmart.net.handshake import Greeting, make_greeting
from nsqsmart.policy.answers.lookup import TopicState
from nsqsmart.policy.channel_positions import REWIND
from nsqsmart.policy.topology import Target, Topology
from nsqsmart.wire import answers, commands
from nsqsmart.wire.deliveries import DeliveryDecoder
from nsqsmart.wire.messages import MessageLayout

_MISMATCH = frozenset(
    {answers.SUB_EXTEND_NEED, answers.SUB_EXTEND_FORBIDDEN, answers.SUB_ORDER_IS_MUST}
)


@dataclass(slots=True)
class Assumptions:
    """What SUB must agree with the topic on; None follows the lookup's metadata."""

    extended: bool | None = None
    ordered: bool | None = None

    def is_extended(self, topology: Topology) -> bool:
        """Whether to identify with ``extend_support``."""
        return topology.meta.extended if self.extended is None else self.extended

    def is_ordered(self, topology: Topology, config: ConsumerConfig) -> bool:
        """Whether to use SUB_ORDERED."""
        if config.force_ordered:
            return True
        if config.ordered is False:
            return False
        return topology.meta.ordered if self.ordered is None else self.ordered

    def flip(self, code: str) -> bool:
        """Correct what the server contradicts; False if it was corrected before."""
        before = (self.extended, self.ordered)
        if code == answers.SUB_EXTEND_NEED and self.extended is None:
            self.extended = True
        elif code == answers.SUB_EXTEND_FORBIDDEN and self.extended is None:
            self.extended = False
        elif code == answers.SUB_ORDER_IS_MUST and self.ordered is None:
            self.ordered = True
        return (self.extended, self.ordered) != before


def greeting_for(config: ConsumerConfig, *, extended: bool) -> Greeting:
    """What a consumer says of itself to the nsqds of a topic; only extended ones can filter."""
    return make_greeting(
        config,
        extend_support=extended,
        desired_tag=config.desired_tag,
        ext_filter=config.ext_filter if extended else None,
    )


def check_ordered(topology: Topology, config: ConsumerConfig) -> None:
    """Refuse ``ordered=True`` where it would mark the channel, or means nothing.

    And ``ordered=False`` where every nsqd would refuse it.
    """
    if topology.state is not TopicState.FOUND:
        return
    if config.ordered is False and topology.meta.ordered:
        raise ConfigError(
            f"topic {topology.topic!r} is an ordered one, and its nsqds refuse ordered=False: "
            'use ordered="auto"'
        )
    if config.ordered is not True:
        return
    if not topology.redesigned:
        raise OrderingNotSupported(
            f"topic {topology.topic!r} is on an original NSQ, which has no ordered topics",
            hint='use ordered="auto"',
        )
    if not topology.meta.ordered and not config.force_ordered:
        raise ConfigError(
            f"topic {topology.topic!r} is not an ordered one: subscribing in order would mark the "
            "channel until an operator resets it; say force_ordered=True if you want that"
        )


def check_connection(connection: Connection) -> None:
    """Refuse a connection that can bring no message, or that its nsqd soon breaks."""
    if connection.grant.max_rdy_count < 1:
        raise ConnectError(
            f"{connection.address} grants max_rdy_count 0, so no message can be asked for: "
            "raise its --max-rdy-count",
            permanent=True,
        )
    if connection.expires_at < math.inf:
        raise ConnectError(
            f"{connection.address} breaks TLS connections after 5 s, so nothing can be consumed "
            "through it; set tls_lifetime=0 if your nsqd has the fix",
            permanent=True,
        )


def is_moved(reason: NsqError) -> bool:
    """Whether to look up again before the next try."""
    if isinstance(reason, ServerError):
        return reason.code in answers.MOVED
    return True


def is_mismatch(reason: NsqError) -> bool:
    """Whether an assumption about the topic was wrong."""
    return isinstance(reason, ServerError) and reason.code in _MISMATCH


def permanent_error(reason: NsqError, topic: str, channel: str) -> SubscribeError | None:
    """What start() raises for a refusal that will come again; None if it may pass."""
    what = f"subscribing to {topic!r}/{channel!r}: {reason}"
    if isinstance(reason, ServerError):
        if reason.code in answers.UNAUTHORIZED:
            return NotAuthorized(what, code=reason.code)
        if reason.code in answers.MOVED or is_mismatch(reason):
            return None
        return SubscribeError(what, code=reason.code)
    # A server that is not an nsqd may be listed beside real ones.
    is_nsqd = not isinstance(reason.__cause__, ProtocolError)
    if isinstance(reason, ConnectError) and reason.permanent and is_nsqd:
        return SubscribeError(what, code=type(reason).__name__)
    return None


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """What to subscribe to, and how."""

    topic: str
    channel: str
    target: Target
    ordered: bool
    greeting: Greeting
    config: ConsumerConfig

    @property
    def detailed(self) -> bool:
        """Whether messages carry offset and size."""
        redesigned = self.target.partition is not None
        config = self.config
        wanted = config.positions or config.start_at is not None
        return redesigned and (self.ordered or wanted or config.on_channel_lost == REWIND)

    def command(self) -> bytes:
        """The subscribe command."""
        verb = commands.sub
        if self.ordered:
            verb = commands.sub_ordered
        elif self.detailed:
            verb = commands.sub_advanced
        return verb(self.topic, self.channel, self.target.partition)

    def decoder(
        self, source: Source[Message], ack: Callable[[bytes], bool] | None = None
    ) -> DeliveryDecoder[Message]:
        """What makes messages of *source* from its bytes; *ack* is for those that are unordered."""
        layout = MessageLayout(self.greeting.offer.extend_support, self.detailed)
        make = (
            partial(ReadBatch, source, None if self.ordered else ack),
            Message,
            Detailed._from_raw,
        )
        return DeliveryDecoder(layout, *make, self.config.max_frame_size)

    def line(self, connection: Connection) -> Line:
        """The connection, as the trace log names it."""
        partition = self.target.partition
        # Dialled by hand, a redesigned nsqd is known by its version alone.
        redesigned = partition is not None or connection.grant.dialect is Dialect.REDESIGNED
        return Line(
            self.topic,
            self.channel,
            partition,
            self.target.name,
            connection.transport.socket.local,
            self.greeting.offer.client_id,
            redesigned,
        )
