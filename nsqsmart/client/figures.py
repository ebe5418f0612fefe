"""What a producer counts by itself, in the words of :mod:`nsqsmart.metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqsmart.client.directory import Directory
from nsqsmart.metrics import Figure

if TYPE_CHECKING:
    from nsqsmart.client.publisher import Publisher


def producer_figures(publisher: Publisher) -> list[Figure]:
    """Connections and missing leaders."""
    found = missing_leaders(publisher.directory)
    for node, stats in publisher.pool.stats().items():
        idle = stats.pool_available
        found.append(Figure("pool_connections", (node, "idle"), idle))
        found.append(Figure("pool_connections", (node, "used"), max(0, stats.pool_size - idle)))
    return found


def missing_leaders(directory: Directory) -> list[Figure]:
    """How many partitions of each topic have no known leader."""
    return [
        Figure("partitions_missing", (topic,), max(0, picture.partition_num - len(picture.leaders)))
        for topic, picture in directory.pictures().items()
        if picture.redesigned
    ]
