"""``nsqsmart trace``: the life of one message, out of trace logs."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from nsqsmart.cli import flags
from nsqsmart.cli.parsing import Commands, Parser, UsageError
from nsqsmart.cli.tables import plural, table
from nsqsmart.cli.trace_events import Event, Life, find_lives
from nsqsmart.errors import ConfigError

_FACTS = {
    "attempts": "attempt {}",
    "duration_us": "{} µs",
    "retries": "{} retries",
    "delay_ms": "delay {} ms",
    "outcome": "{}",
    "error": "{}",
    "nsq_disk_offset": "offset {}",
}
_ABOUT = """\
Print what happened to a traced message, out of the files that the logger nsqsmart.trace of
producers and consumers wrote, and of the logs of redesigned nsqds. ID is its trace id, or its
internal id with --internal; a trace id is the publisher's, so it may name several messages.

LOG is a file, a folder or a pattern; without one, stdin. Files may be gzipped. For logs that do
not fit on one machine there is the Spark job: python -m nsqsmart.spark trace.
"""


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


def _lines(life: Life) -> list[str]:
    place = "-" if life.partition is None else str(life.partition)
    head = f"{life.topic} partition {place}, internal id {life.internal_id or '-'}"
    first = life.events[0].at
    rows = [
        [_after(each.at - first), each.event, each.channel, _told(each), each.who]
        for each in life.events
    ]
    names = ["after", "event", "channel", "", "told by"]
    return [f"{head}, trace id {life.trace_id}", *table(names, rows)]


def _after(microseconds: int) -> str:
    return f"+{microseconds / 1000:.3f} ms"


def _told(event: Event) -> str:
    return ", ".join(
        _FACTS[name].format(value) for name, value in event.facts.items() if name in _FACTS
    )
