"""Where a new query begins on the servers: the channel, and its position."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from datetime import UTC, datetime

from nsqsmart.errors import ConfigError, NsqError
from nsqsmart.spark.options import ReadOptions
from nsqsmart.spark.survey import Survey

log = logging.getLogger("nsqsmart.spark")

_POSITIONS = {"latest": "end", "earliest": "start"}
_MILLIS = 1000


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
            _move(options, survey, topic, partition)


def make_channels(options: ReadOptions, survey: Survey, topics: Iterable[str]) -> None:
    """Make the channel on *topics*, which have come up since the query began; or try later."""
    for topic in topics:
        try:
            survey.admin.create_channel(topic, options.channel)
        except NsqError as error:
            log.warning("cannot make channel %s of topic %s: %s", options.channel, topic, error)


def _move(options: ReadOptions, survey: Survey, topic: str, partition: int | None) -> None:
    if partition is None:
        _empty(options, survey, topic)
    elif (position := position_of(options, topic, partition)) is not None:
        survey.admin.set_offset(topic, options.channel, partition, position)


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
    try:
        found = json.loads(text).get(topic, {}).get(str(partition))
    except (ValueError, AttributeError) as error:
        raise ConfigError(
            f"option startingOffsets is {text!r}: give stored, earliest, latest or JSON, "
            '{"orders": {"0": 22600}}'
        ) from error
    if found is not None and type(found) is not int:
        raise ConfigError(f"startingOffsets of {topic}/{partition} is {found!r}, not a number")
    return found
