"""What nsqds answer to ``/stats``, in one shape for both dialects (protocol#http).

Everything here comes from a peer: what has the wrong shape counts as 0, and what has no name is
left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from nsqsmart.names import MAX_PARTITION, is_valid_name
from nsqsmart.policy.answers.documents import (
    count_of,
    dicts_of,
    list_of,
    object_of,
    text_of,
    unwrap,
)

_OK = 200


@dataclass(frozen=True, slots=True)
class ChannelStats:
    """A channel on one nsqd, or of one partition; counts of messages.

    Attributes:
        channel: its name.
        depth: as that server counts: an original nsqd what waits to be delivered (without what
            is in flight or put off), a redesigned one all that is not finished.
        backend_depth: as *depth*, what of it is on disk.
        unfinished: all that is not finished, on either: waiting, in flight or put off.
        in_flight: delivered, and not answered yet.
        deferred: requeued with a delay that has not passed.
        message_count: of an original nsqd what the channel was ever given since nsqd started; of
            a redesigned one what the partition ever took.
        requeue_count: how often a message was requeued, since nsqd started.
        timeout_count: how often a message was not answered in time, since nsqd started.
        clients: connected consumers.
        position: where it stands in the partition's log, in bytes; everything before it is
            finished. None on an original nsqd.
        paused: delivers nothing.
        skipped: passes over everything (redesigned only).
    """

    channel: str
    depth: int = 0
    backend_depth: int = 0
    unfinished: int = 0
    in_flight: int = 0
    deferred: int = 0
    message_count: int = 0
    requeue_count: int = 0
    timeout_count: int = 0
    clients: int = 0
    position: int | None = None
    paused: bool = False
    skipped: bool = False

    @property
    def waiting(self) -> int:
        """What can be delivered now, on either: unfinished, not in flight and not put off."""
        return max(0, self.unfinished - self.in_flight - self.deferred)


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A topic on one original nsqd, or one partition of a topic.

    Attributes:
        topic: its name.
        partition: its number; None on an original nsqd.
        nsqd: ``"host:port"`` for TCP.
        leader: this nsqd leads the partition; True on an original nsqd. A partition without a
            leader is shown by the copy that has most messages, with False.
        depth: messages that wait for a first channel; 0 on a redesigned nsqd, where they do not.
        backend_depth: what of *depth* is on disk.
        message_count: messages it ever took; an original nsqd counts since it started.
        stored_bytes: size of the partition's log on disk; None on an original nsqd.
        log_start: where the partition's log begins, in bytes since ever: what was before it is
            cleaned away; None on an original nsqd.
        log_end: where it ends.
        paused: passes nothing on to its channels (original only).
        channels: by name.
    """

    topic: str
    partition: int | None
    nsqd: str
    leader: bool = True
    depth: int = 0
    backend_depth: int = 0
    message_count: int = 0
    stored_bytes: int | None = None
    log_start: int | None = None
    log_end: int | None = None
    paused: bool = False
    channels: tuple[ChannelStats, ...] = ()


class Unreachable(NamedTuple):
    """An nsqd that gave no statistics, and why."""

    nsqd: str
    reason: str


@dataclass(frozen=True, slots=True)
class Stats:
    """What every nsqd says.

    Attributes:
        topics: sorted by topic, partition and nsqd.
        unreachable: nsqds that gave no statistics; what they have is missing above.
    """

    topics: tuple[TopicStats, ...]
    unreachable: tuple[Unreachable, ...] = ()


def parse_stats(status: int, body: bytes, nsqd: str) -> list[TopicStats]:
    """Read the answer of *nsqd* to ``/stats``; raises :class:`DiscoveryError` if it is none."""
    data = object_of(status, body, "stats")
    return [_topic(entry, nsqd) for entry in dicts_of(data.get("topics")) if _is_usable(entry)]


def choose(
    entries: Iterable[TopicStats], topic: str | None = None, channel: str | None = None
) -> tuple[TopicStats, ...]:
    """One entry for each partition, its leader's; of *topic* and *channel* alone if given."""
    led: dict[object, TopicStats] = {}
    for entry in entries:
        place = entry.topic, entry.nsqd if entry.partition is None else entry.partition
        known = led.get(place)
        if topic in (None, entry.topic) and (known is None or _weight(entry) > _weight(known)):
            led[place] = entry
    return tuple(sorted(_with(channel, led.values()), key=_order))


def _with(channel: str | None, entries: Iterable[TopicStats]) -> Iterator[TopicStats]:
    for entry in entries:
        kept = tuple(each for each in entry.channels if channel in (None, each.channel))
        if kept or channel is None:
            yield replace(entry, channels=kept)


def _weight(entry: TopicStats) -> tuple[bool, int]:
    return entry.leader, entry.message_count


def _order(entry: TopicStats) -> tuple[str, int, str]:
    return entry.topic, -1 if entry.partition is None else entry.partition, entry.nsqd


def _is_usable(entry: dict[str, Any]) -> bool:
    number = entry.get("topic_partition")
    is_number = isinstance(number, str) and number.isascii() and number.isdecimal()
    is_partition = number is None or (
        is_number and len(number) < 5 and int(number) <= MAX_PARTITION
    )
    return is_valid_name(text_of(entry.get("topic_name"))) and is_partition


def _topic(entry: dict[str, Any], nsqd: str) -> TopicStats:
    redesigned = entry.get("topic_partition") is not None
    # A redesigned one's depth is where the log ends; the beginning is cleaned away.
    end = count_of(entry.get("backend_depth")) if redesigned else None
    channels = tuple(
        _channel(each, end)
        for each in dicts_of(entry.get("channels"))
        if is_valid_name(text_of(each.get("channel_name")))
    )
    name, messages = entry["topic_name"], count_of(entry.get("message_count"))
    if end is None:
        return TopicStats(
            name,
            None,
            nsqd,
            depth=count_of(entry.get("depth")),
            backend_depth=count_of(entry.get("backend_depth")),
            message_count=messages,
            paused=entry.get("paused") is True,
            channels=channels,
        )
    start = count_of(entry.get("backend_start"))
    return TopicStats(
        name,
        int(entry["topic_partition"]),
        nsqd,
        leader=entry.get("is_leader") is True,
        message_count=messages,
        stored_bytes=max(0, end - start),
        log_start=start,
        log_end=end,
        channels=channels,
    )


def _channel(entry: dict[str, Any], end: int | None) -> ChannelStats:
    depth, in_flight, deferred = (
        count_of(entry.get(name)) for name in ("depth", "in_flight_count", "deferred_count")
    )
    # Older servers name the clients, whatever they were asked.
    known = [entry.get("client_count"), entry.get("client_num")]
    return ChannelStats(
        entry["channel_name"],
        depth=depth,
        backend_depth=count_of(entry.get("backend_depth")),
        unfinished=depth + in_flight + deferred if end is None else depth,
        in_flight=in_flight,
        deferred=deferred,
        message_count=count_of(entry.get("message_count")),
        requeue_count=count_of(entry.get("requeue_count")),
        timeout_count=count_of(entry.get("timeout_count")),
        clients=max(len(list_of(entry.get("clients"))), *map(count_of, known)),
        position=None if end is None else max(0, end - count_of(entry.get("depth_size"))),
        paused=entry.get("paused") is True,
        skipped=entry.get("skipped") is True,
    )


@dataclass(frozen=True, slots=True)
class Replicas:
    """The copies of one partition of a redesigned topic.

    Attributes:
        partition: its number.
        leader: ``"host:port"`` of the nsqd that leads it, or ``""`` while none does.
        wanted: how many copies the topic was made with.
        in_sync: how many nodes have all of it, the leader among them; None where its leader does
            not say. A node that died counts until the cluster misses it, after some 20 s.
    """

    partition: int
    leader: str
    wanted: int
    in_sync: int | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing is missing, as far as it is known."""
        return self.in_sync is None or self.in_sync >= self.wanted


def parse_in_sync(status: int, body: bytes, topic: str, partition: int) -> int | None:
    """Read the answer to ``/coordinator/stats``; None where it does not tell.

    Raises DiscoveryError if it is not an answer of an nsqd.
    """
    status, data, _ = unwrap(status, body)
    if status != _OK or not isinstance(data, dict):
        return None
    for entry in dicts_of(data.get("topic_coord_stats")):
        if entry.get("name") == topic and entry.get("partition") == partition:
            return len(list_of(entry.get("isr_stats")))
    return None
