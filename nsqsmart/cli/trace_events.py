"""Events of one message in trace logs: lines of clients, and of redesigned nsqds.

What the Spark job does with many files, for a few; both read the same lines (docs/tracing.md).
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from nsqsmart.errors import ConfigError

_MOST_LINE = 1 << 20
_MOST_LIVES = 1000
_MICRO = 1000
_PARTITION_SHIFT, _PARTITION_MASK = 50, 1023
_LINE = re.compile(rb'(\{"v":.*\})\s*$')
_PUT = re.compile(
    r"\[TRACE\] topic (?P<topic>\S+)-(?P<partition>\d+) trace id (?P<trace>\d+): "
    r"message (?P<internal>\d+).* put (?P<how>.+?)(?: from client (?P<peer>\S+))? "
    r"at offset: (?P<offset>-?\d+),.*at time:? (?P<time>\d+)"
)
_CONSUMED = re.compile(
    r"\[TRACE\] topic (?P<topic>\S+) channel (?P<channel>\S+) trace id (?P<trace>\d+): "
    r"message (?P<internal>\d+) \(.*offset: (?P<offset>-?\d+).*\) consume state (?P<how>\S+) "
    r"from client (?P<peer>.*)\(\d+\) at time: (?P<time>\d+).*attempt: (?P<attempts>\d+)"
)
_FACTS = (
    "nsq_disk_offset",
    "attempts",
    "duration_us",
    "retries",
    "delay_ms",
    "outcome",
    "error",
)


@dataclass(frozen=True)
class Event:
    """Something that happened; *at* in microseconds since 1970, *who* says who tells it."""

    at: int
    event: str
    channel: str | None
    who: str
    facts: dict[str, str]
    place: tuple[str, int | None, str | None, str] = field(repr=False)
    """Topic, partition, internal id and trace id."""


@dataclass
class Life:
    """A message and its events, in the order of their clocks."""

    topic: str
    partition: int | None
    internal_id: str | None
    trace_id: str
    events: list[Event]

    def record(self) -> dict[str, Any]:
        """As JSON."""
        events = [
            {"at_us": each.at, "event": each.event, "channel": each.channel, "by": each.who}
            | {"facts": each.facts}
            for each in self.events
        ]
        return {
            "topic": self.topic,
            "partition": self.partition,
            "internal_id": self.internal_id,
            "trace_id": self.trace_id,
            "events": events,
        }


def find_lives(
    paths: Sequence[Path], number: int, *, internal: bool, topic: str | None
) -> tuple[list[Life], int]:
    """The messages with that id, and how many files were read; no *paths* is stdin.

    Joined by topic, partition and internal id: a trace id need not be unique. Raises
    :class:`ConfigError` for a file that cannot be read.
    """
    wanted = str(number)
    found: dict[tuple[str, int | None, str | None], Life] = {}
    sources: Sequence[Path | None] = paths or [None]
    for path in sources:
        for event in _events(path, wanted.encode()):
            name, partition, internal_id, trace_id = event.place
            named = internal_id if internal else trace_id
            if named != wanted or topic not in (None, name):
                continue
            key = (name, partition, internal_id)
            life = found.setdefault(key, Life(name, partition, internal_id, trace_id, []))
            life.events.append(event)
            if len(found) > _MOST_LIVES:
                raise ConfigError(f"id {number} names more than {_MOST_LIVES} messages: --topic")
    lives = sorted(found.values(), key=lambda life: min(each.at for each in life.events))
    for life in lives:
        life.events.sort(key=lambda each: each.at)
    return lives, len(paths) or 1


def _events(path: Path | None, wanted: bytes) -> Iterator[Event]:
    name = "stdin" if path is None else str(path)
    try:
        with _opened(path) as file:
            while line := file.readline(_MOST_LINE):
                # Most lines are of other messages: they are not taken apart.
                if wanted in line and (event := read_event(line)):
                    yield event
    except (OSError, EOFError) as error:
        raise ConfigError(f"LOG {name!r} cannot be read: {error}") from error


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO | io.BufferedReader]:
    if path is None:
        yield sys.stdin.buffer
    elif path.suffix == ".gz":
        with gzip.open(path) as packed:
            yield io.BufferedReader(packed)
    else:
        with path.open("rb") as file:
            yield file


def read_event(line: bytes) -> Event | None:
    """What a line says; None if it is none of a trace."""
    if b"[TRACE] topic " in line:
        return _server_event(line.decode("utf-8", "replace"))
    match = _LINE.search(line)
    if not match:
        return None
    try:
        return _client_event(json.loads(match[1]))
    except (ValueError, RecursionError, TypeError, KeyError):
        return None


def _client_event(fields: dict[str, Any]) -> Event:
    moment = datetime.fromisoformat(fields["ts"])
    partition = fields.get("partition")
    place = (
        str(fields["topic"]),
        partition if isinstance(partition, int) else None,
        _text(fields.get("nsq_internal_id")),
        str(fields["nsq_trace_id"]),
    )
    facts = {name: str(fields[name]) for name in _FACTS if fields.get(name) is not None}
    who = f"{fields.get('client_id', 'client')} at {fields.get('nsqd_addr', '-')}"
    channel = _text(fields.get("channel"))
    at = int(moment.timestamp()) * 1_000_000 + moment.microsecond
    return Event(at, str(fields["event"]), channel, who, facts, place)


def _server_event(line: str) -> Event | None:
    match = _PUT.search(line)
    event, channel, partition = "put", None, None
    if match:
        partition = int(match["partition"])
    else:
        match = _CONSUMED.search(line)
        if not match:
            return None
        event, channel = match["how"].lower(), match["channel"]
        # These name no partition: the internal id has it in its upper bits.
        partition = int(match["internal"]) >> _PARTITION_SHIFT & _PARTITION_MASK
    groups = match.groupdict()
    facts = {"nsq_disk_offset": groups["offset"]}
    if groups.get("attempts"):
        facts["attempts"] = groups["attempts"]
    place = (groups["topic"], partition, groups["internal"], groups["trace"])
    who = f"nsqd, of {groups['peer']}" if groups.get("peer") else "nsqd"
    return Event(int(groups["time"]) // _MICRO, event, channel, who, facts, place)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
