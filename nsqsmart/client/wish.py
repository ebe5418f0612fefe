"""What to subscribe to, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from nsqsmart.client.delivery import Arrival, Source
from nsqsmart.client.message import Detailed, Message
from nsqsmart.client.trace_log import Line
from nsqsmart.config import ConsumerConfig
from nsqsmart.names import Dialect
from nsqsmart.net.connection import Connection
from nsqsmart.net.handshake import Greeting
from nsqsmart.policy.standings import REWIND
from nsqsmart.policy.topology import Target
from nsqsmart.wire import commands
from nsqsmart.wire.deliveries import DeliveryDecoder
from nsqsmart.wire.messages import MessageLayout


@dataclass(frozen=True, slots=True)
class Wish:
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
        make = partial(Arrival, source, None if self.ordered else ack), Message, Detailed._from_raw
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
