"""A partition of each dialect, and consumers that only collect: for the tests of the broker."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from nsqsmart.embedded.broker.channel import BrokerChannel, BrokerLimits
from nsqsmart.embedded.broker.consumer import ChannelConsumer, SubscriptionTerms
from nsqsmart.embedded.broker.ids import RedesignedIds
from nsqsmart.embedded.broker.original_partition import OriginalPartition
from nsqsmart.embedded.broker.partition import RedesignedPartition
from nsqsmart.wire.frames import FrameDecoder
from nsqsmart.wire.messages import RawMessage, decode_message

NOW = 1_800_000_000_000_000_000
"""A timestamp, in nanoseconds."""


class Catcher:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.ended = False

    def put(self, frames: Iterable[bytes]) -> None:
        self.frames += frames

    def deliver(self, frames: list[bytes], *, hold: bool) -> bool:
        self.frames += frames
        self.may_hold = hold
        return True

    def flush(self) -> None:
        """There is nothing to send to."""

    def end(self) -> None:
        self.ended = True


class Client(ChannelConsumer):
    """A consumer whose messages can be read."""

    def __init__(self, number: int = 1, **subscription: Any) -> None:
        self.catcher = Catcher()
        super().__init__(number, self.catcher, SubscriptionTerms(**subscription))

    __slots__ = ("catcher",)

    def take_messages(self) -> list[RawMessage]:
        """What came since the last call."""
        frames = FrameDecoder().feed(b"".join(self.catcher.frames))
        self.catcher.frames.clear()
        return [decode_message(frame.data, self.subscription.layout) for frame in frames]

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.take_messages()]


def redesigned(*, extended: bool = False, **limits: Any) -> RedesignedPartition:
    ids = RedesignedIds(0, coordinated=True)
    return RedesignedPartition(ids, BrokerLimits(**limits), Random(1), extended=extended)


def original(**limits: Any) -> OriginalPartition:
    return OriginalPartition(1, BrokerLimits(**limits), Random(1))


def publish(partition: Any, *bodies: bytes, now: float = 0.0) -> list[bytes]:
    """The keys of the stored messages."""
    start = partition.log.end
    partition.publish([(body, 0, None) for body in bodies], NOW, now)
    return [record.key for record in partition.log.records[start - partition.log.base :]]


def join(channel: BrokerChannel, client: Client, rdy: int = 100, now: float = 0.0) -> Client:
    channel.add(client)
    client.rdy = rdy
    channel.pump(now)
    return client
