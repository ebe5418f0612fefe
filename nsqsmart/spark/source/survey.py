"""What the servers have: connections, what waits, and where a new query begins.

The driver asks it from ``latestOffset``, which Spark calls 93 times a second while idle and which
ends the query if it raises (decisions#57): what fails for the moment is no news. So it asks no more
often than the options say.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from nsqsmart import Admin, AdminConfig, ConsumerConfig, PullSubscription
from nsqsmart.errors import (
    ConfigError,
    ConnectError,
    ConnectionLost,
    DiscoveryError,
    NsqError,
    SubscribeError,
)
from nsqsmart.spark.options import ReadOptions
from nsqsmart.spark.spool.plan import Backlog, Task

log = logging.getLogger("nsqsmart.spark")

TRANSIENT = (ConnectError, ConnectionLost, DiscoveryError, SubscribeError)
"""Errors of a connection to an nsqd that a new one may not have."""

_POSITIONS = {"latest": "end", "earliest": "start"}
_MILLIS = 1000


def pull(options: ReadOptions, task: Task) -> PullSubscription:
    """A connection to where *task* is; not opened yet.

    A short ``msg_timeout``: an original nsqd keeps what a dead task held until that is over.
    """
    given = {"msg_timeout": options.msg_timeout, **options.of(ConsumerConfig)}
    return PullSubscription(
        options.address,
        task.topic,
        options.channel,
        partition=task.partition,
        nsqd=task.nsqd if task.partition is None else None,
        **given,
    )


class DataLoss(NsqError):
    """Messages that servers stored, or that were finished, are gone before Spark had them."""


@dataclass(frozen=True)
class Sight:
    """What was seen.

    ``backlogs`` is what can be delivered now, ``held`` what is in flight or deferred, ``clients``
    the consumers on the channel, ``without_channel`` the topics that do not have it everywhere.
    """

    backlogs: tuple[Backlog, ...]
    held: int
    redelivered: int
    clients: int
    without_channel: tuple[str, ...] = ()

    @property
    def waiting(self) -> int:
        """Messages that can be delivered now."""
        return sum(each.messages for each in self.backlogs)

    def report(self) -> dict[str, Any]:
        """The same for Spark's progress report."""
        return {
            "depth": self.waiting,
            "inFlight": self.held,
            "nodes": len({each.nsqd for each in self.backlogs}),
            "redelivered": self.redelivered,
            "partitions": {
                f"{each.topic}/{each.nsqd if each.partition is None else each.partition}": (
                    each.messages
                )
                for each in self.backlogs
            },
        }


class Survey:
    """Figures of the topics and the channel that the options name."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._admin: Admin | None = None
        self._asked_at = -1e9
        self._seen: Sight | None = None
        self._failed = False

    def look(self, *, anew: bool = False) -> Sight | None:
        """The newest figures, at most ``statsIntervalMs`` old; None if there are none to be had.

        Raises ConfigError for what no time will mend: an address that does not tell of lookups.
        """
        now = monotonic()
        if not anew and now - self._asked_at < self._options.stats_interval:
            return self._seen
        try:
            self._seen = self._ask()
            self._failed = False
        except ConfigError:
            raise
        except NsqError as error:
            self._seen = None
            if not self._failed:
                log.warning("no figures of %s for now: %s", self._options.channel, error)
            self._failed = True
        self._asked_at = monotonic()
        return self._seen

    def must_look(self) -> Sight:
        """The figures of this moment; raises DiscoveryError if there are none."""
        sight = self.look(anew=True)
        if sight is None:
            raise DiscoveryError("no figures of what waits: is a lookup reachable?")
        return sight

    @property
    def admin(self) -> Admin:
        """Who asks; made on first use, for a reader is pickled."""
        if self._admin is None:
            options = self._options
            self._admin = Admin(options.address, **options.of(AdminConfig))
        return self._admin

    def topics(self) -> tuple[str, ...]:
        """The topics to read now; raises DiscoveryError."""
        options = self._options
        if options.subscribe:
            return options.subscribe
        if options.assign:
            return tuple(options.assign)
        pattern = re.compile(options.subscribe_pattern or "")
        return tuple(topic for topic in self.admin.topics() if pattern.fullmatch(topic))

    def _ask(self) -> Sight:
        backlogs: list[Backlog] = []
        held = redelivered = clients = 0
        without: dict[str, None] = {}
        for topic in self.topics():
            for entry in self.admin.stats(topic).topics:
                if not self.is_ours(topic, entry.partition):
                    continue
                if self._options.channel not in {each.channel for each in entry.channels}:
                    without[topic] = None
                for channel in entry.channels:
                    if channel.channel == self._options.channel:
                        backlogs.append(
                            Backlog(topic, entry.partition, entry.nsqd, channel.waiting)
                        )
                        held += channel.in_flight + channel.deferred
                        redelivered += channel.requeue_count + channel.timeout_count
                        clients += channel.clients
        return Sight(tuple(backlogs), held, redelivered, clients, tuple(without))

    def is_ours(self, topic: str, partition: int | None) -> bool:
        """Whether the options choose it."""
        assigned = self._options.assign
        return assigned is None or partition is None or partition in assigned[topic]

    def places(self) -> Iterator[tuple[str, int | None]]:
        """Topics and their partitions, as far as the options choose; raises DiscoveryError."""
        for topic in self.topics():
            for target in self.admin.topology(topic).targets:
                if self.is_ours(topic, target.partition):
                    yield topic, target.partition

    def check_complete(self, seen: Collection[tuple[str, int]]) -> None:
        """Raise DiscoveryError unless every partition that the options choose is among *seen*."""
        for topic in self.topics():
            for number in range(self.admin.topology(topic).partition_num):
                if self.is_ours(topic, number) and (topic, number) not in seen:
                    raise DiscoveryError(
                        f"no figures of topic {topic!r} partition {number}: has it no leader?"
                    )


def prepare(options: ReadOptions, survey: Survey) -> None:
    """Make the channel where it is missing, and move it to where reading begins.

    Raises DiscoveryError, AdminError for what may work later, ConfigError for what will not.
    """
    asked = options.starting_timestamp is not None or options.starting_offsets != "stored"
    for topic in survey.topics():
        survey.admin.create_channel(topic, options.channel)
    sight = survey.look(anew=True)
    if sight is not None and sight.clients:
        log.warning(
            "channel %s has %d consumers besides: they take messages that this query does not see",
            options.channel,
            sight.clients,
        )
    if asked:
        for topic, partition in survey.places():
            if partition is None:
                _empty(options, survey, topic)
            elif (position := position_of(options, topic, partition)) is not None:
                survey.admin.set_offset(topic, options.channel, partition, position)


def make_channels(options: ReadOptions, survey: Survey, topics: Iterable[str]) -> None:
    """Make the channel on *topics*, which have come up since the query began; or try later."""
    for topic in topics:
        try:
            survey.admin.create_channel(topic, options.channel)
        except NsqError as error:
            log.warning("cannot make channel %s of topic %s: %s", options.channel, topic, error)


def _empty(options: ReadOptions, survey: Survey, topic: str) -> None:
    """An original nsqd keeps no position: the end is reached by dropping what waits."""
    if options.starting_timestamp is not None or options.starting_offsets != "latest":
        raise ConfigError(
            f"topic {topic!r} is on an original NSQ, which keeps no positions: startingOffsets "
            "can be stored or, with allowChannelReset=true, latest"
        )
    if not options.allow_channel_reset:
        raise ConfigError(
            f"startingOffsets=latest drops what waits in channel {options.channel!r} of topic "
            f"{topic!r}; say allowChannelReset=true if that is meant"
        )
    survey.admin.empty_channel(topic, options.channel)


def position_of(options: ReadOptions, topic: str, partition: int) -> int | str | datetime | None:
    """Where one partition begins, as ``Admin.set_offset`` takes it; None leaves it as it is."""
    if options.starting_timestamp is not None:
        return datetime.fromtimestamp(options.starting_timestamp / _MILLIS, UTC)
    text = options.starting_offsets
    if text == "stored":
        return None
    if text in _POSITIONS:
        return _POSITIONS[text]
    return offset_in("startingOffsets", text, topic, partition)


def offset_in(name: str, text: str, topic: str, partition: int) -> int | None:
    """The offset of one partition in *text*, the JSON of the option *name*; None if it has none.

    Raises ConfigError.
    """
    try:
        found = json.loads(text).get(topic, {}).get(str(partition))
    except (ValueError, AttributeError) as error:
        words = "stored, earliest, latest" if name.startswith("starting") else "earliest, latest"
        raise ConfigError(
            f'option {name} is {text!r}: give {words} or JSON, {{"orders": {{"0": 22600}}}}'
        ) from error
    if found is not None and type(found) is not int:
        raise ConfigError(f"{name} of {topic}/{partition} is {found!r}, not a number")
    return found
