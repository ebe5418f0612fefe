"""``nsqsmart trace``: the life of one message, out of trace logs of clients and redesigned nsqds.

The Spark job ``trace`` does for many files what this does for a few; ``spark/report/lines`` says
for both what a line looks like.
"""

from __future__ import annotations

import argparse
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

from nsqsmart.cli.common import flags
from nsqsmart.cli.common.parsing import Commands, Parser, UsageError
from nsqsmart.errors import ConfigError
from nsqsmart.spark.report.lines import (
    CLIENT_LINE,
    CONSUMED,
    PARTITION_MASK,
    PARTITION_SHIFT,
    PUT,
    SERVER_MARK,
)
from nsqsmart.terminal import plural, table

_MOST_LINE = 1 << 20
_MOST_LIVES = 1000
_MICRO = 1000
_LINE = re.compile(CLIENT_LINE.encode())
_FACTS = {
    "nsq_disk_offset": "offset {}",
    "attempts": "attempt {}",
    "duration_us": "{} µs",
    "retries": "{} retries",
    "delay_ms": "delay {} ms",
    "outcome": "{}",
    "error": "{}",
}
"""Fields of a line that are told, in this order."""
_ABOUT = """\
Print what happened to a traced message, out of the files that the logger nsqsmart.trace of
producers and consumers wrote, and of the logs of redesigned nsqds. ID is its trace id, or its
internal id with --internal; a trace id is the publisher's, so it may name several messages.

LOG is a file, a folder or a pattern; without one, stdin. Files may be gzipped. For logs that do
not fit on one machine there is the Spark job: python -m nsqsmart.spark trace.
"""


@dataclass(frozen=True)
class TraceEvent:
    """Something that happened; *at* in microseconds since 1970, *who* says who tells it."""

    at: int
    event: str
    channel: str | None
    who: str
    facts: dict[str, str]
    place: tuple[str, int | None, str | None, str] = field(repr=False)
    """Topic, partition, internal id and trace id."""


@dataclass
class TracedMessage:
    """A message and its events, in the order of their clocks."""

    topic: str
    partition: int | None
    internal_id: str | None
    trace_id: str
    events: list[TraceEvent]

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
) -> tuple[list[TracedMessage], int]:
    """The messages with that id, and how many files were read; no *paths* is stdin.

    Joined by topic, partition and internal id: a trace id need not be unique. Raises
    :class:`ConfigError` for a file that cannot be read.
    """
    wanted = str(number)
    found: dict[tuple[str, int | None, str | None], TracedMessage] = {}
    sources: Sequence[Path | None] = paths or [None]
    for path in sources:
        for event in _events(path, wanted.encode()):
            name, partition, internal_id, trace_id = event.place
            named = internal_id if internal else trace_id
            if named != wanted or topic not in (None, name):
                continue
            key = (name, partition, internal_id)
            life = found.setdefault(key, TracedMessage(name, partition, internal_id, trace_id, []))
            life.events.append(event)
            if len(found) > _MOST_LIVES:
                raise ConfigError(f"id {number} names more than {_MOST_LIVES} messages: --topic")
    lives = sorted(found.values(), key=lambda life: min(each.at for each in life.events))
    for life in lives:
        life.events.sort(key=lambda each: each.at)
    return lives, len(paths) or 1


def _events(path: Path | None, wanted: bytes) -> Iterator[TraceEvent]:
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


def read_event(line: bytes) -> TraceEvent | None:
    """What a line says; None if it is none of a trace."""
    if SERVER_MARK.encode() in line:
        return _server_event(line.decode("utf-8", "replace"))
    match = _LINE.search(line)
    if not match:
        return None
    try:
        return _client_event(json.loads(match[1]))
    except (ValueError, RecursionError, TypeError, KeyError):
        return None


def _client_event(fields: dict[str, Any]) -> TraceEvent:
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
    return TraceEvent(at, str(fields["event"]), channel, who, facts, place)


def _server_event(line: str) -> TraceEvent | None:
    if put := re.search(PUT, line):
        topic, number, trace, internal, _, peer, offset, time = put.groups()
        event, channel, partition, attempts = "put", None, int(number), None
    elif did := re.search(CONSUMED, line):
        topic, channel, trace, internal, offset, state, peer, _, time, attempts = did.groups()
        event, partition = state.lower(), int(internal) >> PARTITION_SHIFT & PARTITION_MASK
    else:
        return None
    facts = {"nsq_disk_offset": offset} | ({"attempts": attempts} if attempts else {})
    who = f"nsqd, of {peer}" if peer else "nsqd"
    place = (topic, partition, internal, trace)
    return TraceEvent(int(time) // _MICRO, event, channel, who, facts, place)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def add_parser(commands: Commands[Parser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "trace",
        help="the life of a traced message",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="*", metavar="ID [LOG]", help="the id, then the logs")
    parser.add_argument(
        "--internal", action="store_true", help="ID is the internal id, not the trace id"
    )
    parser.add_argument("--topic", help="only events of this topic")
    flags.add_json(parser, "print each message as one line of JSON")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Print; 1 if no log has the message."""
    words = list(chosen.words)
    if not words:
        raise UsageError("which message? nsqsmart trace ID LOG ...")
    number = _number(words.pop(0))
    lives, files = find_lives(_paths(words), number, internal=chosen.internal, topic=chosen.topic)
    if not lives:
        kind = "internal id" if chosen.internal else "trace id"
        where = f" of topic {chosen.topic}" if chosen.topic else ""
        raise ConfigError(f"no message{where} with {kind} {number} in {plural(files, 'file')}")
    for life in lives:
        if chosen.json:
            print(json.dumps(life.record()))
        else:
            print("\n".join(_lines(life)), end="\n\n" if life is not lives[-1] else "\n")
    return 0


def _number(text: str) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 64:
        raise UsageError(f"ID {text!r} is not a number of 64 bits, as 77 or 0x4d")
    return number


def _paths(words: list[str]) -> list[Path]:
    """Every file that is named; raises :class:`ConfigError`."""
    if not words and sys.stdin.isatty():
        raise UsageError("which logs? nsqsmart trace ID LOG ...")
    found: list[Path] = []
    for word in words:
        path = Path(word)
        if path.is_dir():
            found += sorted(each for each in path.rglob("*") if each.is_file())
        elif path.exists():
            found.append(path)
        elif matches := sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor)))):
            found += matches
        else:
            raise ConfigError(f"LOG {word!r}: there is no such file, and no file like it")
    return found


def _lines(life: TracedMessage) -> list[str]:
    place = "-" if life.partition is None else str(life.partition)
    head = f"{life.topic} partition {place}, internal id {life.internal_id or '-'}"
    first = life.events[0].at
    rows = [
        [
            f"+{(each.at - first) / 1000:.3f} ms",
            each.event,
            each.channel,
            ", ".join(_FACTS[name].format(value) for name, value in each.facts.items()),
            each.who,
        ]
        for each in life.events
    ]
    names = ["after", "event", "channel", "", "told by"]
    return [f"{head}, trace id {life.trace_id}", *table(names, rows)]
