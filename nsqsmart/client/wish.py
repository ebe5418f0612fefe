"""What to subscribe to, and how."""

from __future__ import annotations

from dataclasses import dataclass

from nsqsmart.config import ConsumerConfig
from nsqsmart.net.handshake import Greeting
from nsqsmart.policy.standings import REWIND
from nsqsmart.policy.topology import Target
from nsqsmart.wire import commands


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
