"""``nsqsmart to-file``: messages into files, finished only when they are on the disk."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from nsqsmart import Admin, AdminConfig, ConsumerConfig, Message
from nsqsmart.cli import flags
from nsqsmart.cli.ending import Ending, left
from nsqsmart.cli.exits import INTERRUPTED
from nsqsmart.cli.file_names import DEFAULT, make_names
from nsqsmart.cli.filing import Files, Filing, Finder, Source
from nsqsmart.cli.parquet import ParquetFiles
from nsqsmart.cli.parsing import Commands, Parser, UsageError
from nsqsmart.cli.records import line, record
from nsqsmart.cli.tables import plural
from nsqsmart.cli.writing import AppendedFiles, Rotation
from nsqsmart.config import resolve

_IN_FLIGHT = 200
_FORMATS = {"lines": "", "json": "", "parquet": ".parquet"}
_ABOUT = """\
Write the messages of topics to files. A message is finished only when it is on the disk (fsync):
whatever kills the process, no finished message is missing. One that was not finished comes again,
so a message may be there twice.
"""


def add_parser(commands: Commands[Parser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("to-file", help="write messages to files", description=_ABOUT)
    flags.add_topics(parser)
    parser.add_argument(
        "--topic-pattern", type=_pattern, metavar="REGEX", help="all topics whose names match"
    )
    parser.add_argument(
        "--topic-refresh",
        type=flags.seconds,
        default=60.0,
        metavar="SECONDS",
        help="look for new topics so often (1m)",
    )
    parser.add_argument("--channel", default="nsq_to_file", help="channel to read (nsq_to_file)")
    parser.add_argument("-n", "--n", type=flags.count, metavar="N", help="end after N messages")
    parser.add_argument(
        "--format",
        choices=tuple(_FORMATS),
        default="lines",
        help="bodies as they are, one a line (default), JSON Lines, or Parquet, which needs "
        "pyarrow: there each batch is a file",
    )
    _add_places(parser)
    parser.add_argument(
        "--rotate-size",
        type=flags.size,
        default=0,
        metavar="BYTES",
        help="begin a new file at this size (off)",
    )
    parser.add_argument(
        "--rotate-interval",
        type=flags.seconds_or_off,
        default=0.0,
        metavar="SECONDS",
        help="begin a new file after this time, as 1h (off)",
    )
    parser.add_argument(
        "--sync-interval",
        type=flags.seconds,
        default=1.0,
        metavar="SECONDS",
        help="longest time for a message to wait for fsync (1s); at once where the server waits",
    )
    parser.add_argument(
        "--skip-empty-files",
        action="store_true",
        help="open a file only when there is a message for it",
    )
    flags.add_json(parser, "print what was written as one JSON object at the end")
    flags.add_address(parser)
    flags.add_options(parser, ConsumerConfig)
    flags.add_go_options(parser, "--consumer-opt", ConsumerConfig)
    parser.set_defaults(run=run, runs_on=True)


def _add_places(parser: Parser) -> None:
    parser.add_argument(
        "--output-dir",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="folder for the files (the current one)",
    )
    parser.add_argument(
        "--work-dir", type=Path, metavar="DIR", help="folder for files until they are complete"
    )
    parser.add_argument(
        "--filename-format", default=DEFAULT, metavar="TEXT", help=f"names of files ({DEFAULT})"
    )
    parser.add_argument(
        "--datetime-format",
        default="%Y-%m-%d_%H",
        metavar="TEXT",
        help="what <DATETIME> stands for (%%Y-%%m-%%d_%%H)",
    )
    parser.add_argument("--host-identifier", default="", metavar="TEXT", help="instead of <HOST>")
    parser.add_argument("--gzip", action="store_true", help="compress files with gzip")
    parser.add_argument(
        "--gzip-level", type=int, choices=range(1, 10), default=6, help="how hard to compress (6)"
    )


def run(chosen: argparse.Namespace) -> int:
    """Write until Ctrl-C or -n messages; 1 if a file cannot be written."""
    topics = flags.topics_of(chosen)
    if not topics and not chosen.topic_pattern:
        raise UsageError("which topic? nsqsmart to-file TOPIC, or --topic-pattern REGEX")
    if chosen.format == "parquet" and (chosen.gzip or chosen.rotate_size or chosen.rotate_interval):
        raise UsageError("--format parquet: each batch is a file, neither gzipped nor rotated")
    address, options = flags.address_of(chosen), flags.client_options(chosen, ConsumerConfig)
    options["workers"] = 1
    usual = {
        "batch_max_delay": chosen.sync_interval,
        "batch_max_messages": options.get("max_in_flight", _IN_FLIGHT),
    }
    config = resolve(ConsumerConfig, address, options, defaults=usual)[1]
    if chosen.n:
        # What is not to be written need not come.
        options["max_in_flight"] = min(chosen.n, config.max_in_flight)
    with Ending() as ending:
        source = Source(address, config, options)
        filing = Filing(chosen, source, ending, lambda topic: _files(chosen, topic))
        filing.add(topics)
        reports = filing.run(_finder(chosen, address))
    if chosen.json:
        print(json.dumps({"messages": filing.written, "files": list(map(str, filing.closed))}))
    if not ending.interrupted:
        return 0
    story = f"{plural(filing.written, 'message')} in {plural(len(filing.closed), 'file')}"
    print(f"nsqsmart to-file: interrupted: {story}{left(reports)}", file=sys.stderr)
    return INTERRUPTED


def _files(chosen: argparse.Namespace, topic: str) -> Files:
    suffix = ".gz" if chosen.gzip else _FORMATS[chosen.format]
    parquet = chosen.format == "parquet"
    names = make_names(
        topic,
        output=chosen.output_dir,
        work=chosen.work_dir,
        name=chosen.filename_format,
        datetime_format=chosen.datetime_format,
        host=chosen.host_identifier,
        revises=bool(chosen.gzip or chosen.rotate_size or chosen.rotate_interval or parquet),
        suffix=suffix,
    )
    if parquet:
        return ParquetFiles(names)
    encode = (lambda message: line(record(message))) if chosen.format == "json" else _body
    return AppendedFiles(
        names,
        encode,
        Rotation(chosen.rotate_size, chosen.rotate_interval),
        chosen.gzip_level if chosen.gzip else None,
        skip_empty=chosen.skip_empty_files,
    )


def _body(message: Message) -> bytes:
    return message.body + b"\n"


def _finder(chosen: argparse.Namespace, address: str) -> Finder | None:
    """Looks for topics that match the pattern."""
    if chosen.topic_pattern is None:
        return None
    admin = Admin(address, **flags.client_options(chosen, AdminConfig))
    return Finder(admin, chosen.topic_pattern, chosen.topic_refresh)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a regular expression: {error}"
        ) from error
