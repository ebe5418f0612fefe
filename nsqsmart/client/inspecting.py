"""What a producer knows of itself, and how it tries what it has not used yet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from time import monotonic
from typing import Any

from nsqsmart.client.health import Health
from nsqsmart.client.machinery import Machinery
from nsqsmart.errors import ConnectError, DiscoveryError, TransportError
from nsqsmart.names import Address
from nsqsmart.policy.routing import Key, Sharding, partition_for


def warm(machinery: Machinery, topics: Iterable[str], deadline: float) -> None:
    """Look *topics* up and open a connection to every nsqd they are on."""
    publisher = machinery.publisher
    addresses: dict[Address, None] = {}
    for topic in topics:
        topology = publisher.directory.get(topic, deadline)
        addresses.update((target.address, None) for target in topology.targets)
    for address in addresses:
        publisher.pool.give_back(publisher.pool.take(address, deadline))


def partition_of(
    machinery: Machinery, topic: str, key: Key, sharding: Sharding, deadline: float
) -> int | None:
    """The partition that *key* goes to; None where the topic has none."""
    topology = machinery.publisher.directory.get(topic, deadline)
    if not topology.redesigned or topology.partition_num < 1:
        return None
    return partition_for(key, topology.partition_num, sharding)


def ping(machinery: Machinery, deadline: float) -> dict[str, float]:
    """Shake hands with every nsqd; the seconds it took, by "host:port"."""
    took: dict[str, float] = {}
    failures: list[str] = []
    addresses = machinery.publisher.directory.nodes(deadline)
    if not addresses:
        raise DiscoveryError("the lookups know no nsqd")
    for address in addresses:
        started = monotonic()
        try:
            machinery.open(address, deadline).close()
        except TransportError as error:
            failures.append(str(error))
        else:
            took[str(address)] = monotonic() - started
    if not took:
        raise ConnectError(f"no nsqd answers: {'; '.join(failures)}")
    return took


def stats(machinery: Machinery) -> dict[str, Any]:
    """Figures that JSON can take."""
    publisher, now = machinery.publisher, monotonic()
    return {
        "pools": {name: asdict(figures) for name, figures in publisher.pool.stats().items()},
        "topics": {
            topic: {
                "state": str(picture.state),
                "age": now - picture.taken_at if picture.taken_at else 0.0,
                "partitions": picture.partition_num,
                "redesigned": picture.redesigned,
                "extended": picture.meta.extended,
                "generation": picture.generation,
                "nsqds": sorted({target.name for target in picture.targets}),
            }
            for topic, picture in publisher.directory.pictures().items()
        },
        "avoided": sorted(map(str, publisher.outages.avoided(now))),
        "turns_waiting": publisher.turns.waiting(),
        "async_pending": machinery.async_pending,
    }


def health(machinery: Machinery) -> Health:
    """What the last calls found."""
    publisher = machinery.publisher
    nsqds = {
        target.address
        for picture in publisher.directory.pictures().values()
        for target in picture.targets
    }
    avoided = publisher.outages.avoided(monotonic()) & nsqds
    lookups = publisher.directory.failing()
    reasons = [f"{address} does not answer" for address in sorted(avoided)]
    reasons += [f"topic {topic}: {failure}" for topic, failure in sorted(lookups.items())]
    troubles = publisher.troubles
    reasons += troubles.reasons()
    if not nsqds and not troubles.topics:
        # The first message of a new topic goes where no lookup knows it yet.
        used = any(
            each.pool_available or each.requests_num for each in publisher.pool.stats().values()
        )
        state = "failing" if lookups else "ready" if used else "idle"
        return Health(state, tuple(reasons))
    if avoided == nsqds or (troubles.everywhere and troubles.reasons()):
        return Health("failing", tuple(reasons))
    return Health("degraded" if reasons else "ready", tuple(reasons))
