"""Which nsqd a PullSubscription connects to."""

from __future__ import annotations

from nsqsmart.errors import ConfigError, DiscoveryError, OrderingNotSupported
from nsqsmart.policy.topology import Target, Topology


def choose_target(topology: Topology, partition: int | None, nsqd: str | None) -> Target:
    """The leader of *partition*, or the one at *nsqd*, or the only one there is.

    Raises DiscoveryError where it may be there later, ConfigError where the choice is not clear,
    OrderingNotSupported for a partition of a topic without them.
    """
    topic = topology.topic
    if not topology.targets:
        raise DiscoveryError(f"no nsqd has topic {topic!r}, as far as the lookups know")
    if partition is not None:
        return _leader(topology, partition, nsqd)
    if topology.partition_num > 1 and nsqd is None:
        raise ConfigError(
            f"topic {topic!r} has {topology.partition_num} partitions: say which, by partition="
        )
    found = [each for each in topology.targets if nsqd in (None, each.name)]
    if not found:
        raise DiscoveryError(f"topic {topic!r} is not at {nsqd} but at {_names(topology)}")
    if len(found) > 1 and nsqd is None:
        raise ConfigError(f"topic {topic!r} is at {_names(topology)}: say which, by nsqd=")
    if len(found) > 1:
        numbers = ", ".join(str(each.partition) for each in found)
        raise ConfigError(f"{nsqd} leads partitions {numbers} of {topic!r}: give partition=")
    return found[0]


def _leader(topology: Topology, partition: int, nsqd: str | None) -> Target:
    topic = topology.topic
    if not topology.redesigned:
        raise OrderingNotSupported(
            f"topic {topic!r} is on an original NSQ, which has no partitions",
            hint="give nsqd= in place of partition=",
        )
    if partition >= topology.partition_num > 0:
        raise ConfigError(
            f"topic {topic!r} has {topology.partition_num} partitions, no {partition}"
        )
    for target in topology.targets:
        if target.partition == partition:
            if nsqd not in (None, target.name):
                raise DiscoveryError(
                    f"partition {partition} of {topic!r} is led by {target.name}, not by {nsqd}"
                )
            return target
    raise DiscoveryError(f"nobody leads partition {partition} of {topic!r} at the moment")


def _names(topology: Topology) -> str:
    return ", ".join(dict.fromkeys(target.name for target in topology.targets))
