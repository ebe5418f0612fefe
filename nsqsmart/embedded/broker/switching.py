"""What a switch of leaders does to a channel beyond losing its connections (cluster 8)."""

from __future__ import annotations

from nsqsmart.embedded.broker.consumer import Sink
from nsqsmart.embedded.broker.records import encode
from nsqsmart.embedded.broker.redesigned_channel import RedesignedChannel


def forget(channel: RedesignedChannel, *, positions: int, young: bool) -> bool:
    """What another leader does not know (cluster 8); whether the channel is gone altogether.

    The last *positions* of an unordered one; with *young*, a channel that nothing was
    finished of.
    """
    begin = channel.confirmed.position
    if young and begin == channel.began_at:
        channel.began_at = channel.log.end
        channel.move_to(channel.began_at)
        return not channel.ordered
    if positions and not channel.ordered:
        channel.move_to(max(begin - positions, min(begin, channel.began_at), channel.log.base))
    return False


def redeliver(channel: RedesignedChannel) -> list[Sink]:
    """Send what is in hand once more, as its first delivery; returns the sinks to flush."""
    for consumer in channel.consumers:
        layout = consumer.subscription.layout
        held = [record for record, _ in consumer.in_flight.values()]
        consumer.sink.put([encode(record, layout, 1) for record in held])
    return [consumer.sink for consumer in channel.consumers]
