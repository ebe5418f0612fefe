"""``nsqsmart to-file``: messages into files, finished only when they are on the disk.

``Filing`` has a consumer and its files for each topic, and finds topics that come later.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from nsqsmart import Admin, AdminConfig, CloseReport, Consumer, ConsumerConfig, Message
from nsqsmart.cli.common import flags
from nsqsmart.cli.common.ending import Ending, consume, keep
from nsqsmart.cli.common.parsing import Commands, Parser, UsageError
from nsqsmart.cli.common.progress import ProgressBar
from nsqsmart.cli.common.records import line, record
from nsqsmart.cli.files.appended import AppendedFiles, FileRotation
from nsqsmart.cli.files.names import DEFAULT, make_names
from nsqsmart.cli.files.parquet import ParquetFiles
from nsqsmart.config import resolve
from nsqsmart.errors import AdminError, ConfigError, TransportError
from nsqsmart.terminal import plural, signals_to

log = logging.getLogger("nsqsmart.cli")

_IN_FLIGHT = 200
_FORMATS = {"lines": "", "json": "", "parquet": ".parquet"}
_ABOUT = """\
Write the messages of topics to files. A message is finished only when it is on the disk (fsync):
whatever kills the process, no finished message is missing. One that was not finished comes again,
so a message may be there twice.
"""

_Files = AppendedFiles | ParquetFiles


class Finder:
    """Finds topics by a pattern, now and then."""

    def __init__(self, admin: Admin, pattern: re.Pattern[str], every: float) -> None:
        self._admin = admin
        self._pattern = pattern
        self._every = every
        self._due = 0.0

    def find(self) -> list[str]:
        """The topics, or none if it is not time or no lookup answers."""
        if monotonic() < self._due:
            return []
        self._due = monotonic() + self._every
        try:
            return [topic for topic in self._admin.topics() if self._pattern.search(topic)]
        except (AdminError, TransportError) as error:
            log.warning("topics cannot be looked up: %s", error)
            return []


class Filing:
    """Consumers that write what they get.

    What was *given* to them wins over the query of the *address*; the *config*, which has the rest,
    does not.
    """

    def __init__(
        self,
        chosen: argparse.Namespace,
        address: str,
        config: ConsumerConfig,
        given: Mapping[str, Any],
        ending: Ending,
        make_files: Callable[[str], _Files],
    ) -> None:
        self._channel = chosen.channel
        self._most = chosen.n
        self._address = address
        self._config = config
        self._given = given
        self._ending = ending
        self._make_files = make_files
        self._consumers: list[Consumer] = []
        self._files: dict[str, _Files] = {}
        self._lock = threading.Lock()  # guards the files, and the two below
        self._reopen = False
        self.written = 0
        self._bar = ProgressBar("to-file", chosen.n)

    @property
    def closed(self) -> list[Path]:
        """Every file that is whole."""
        return [path for files in self._files.values() for path in files.closed]

    def add(self, topics: Iterable[str]) -> list[Consumer]:
        """Consumers of *topics* that are new, not started."""
        added = []
        for topic in topics:
            if topic in self._files:
                continue
            files = self._files[topic] = self._make_files(topic)
            consumer = Consumer(
                topic,
                self._channel,
                batch_handler=self._handler(files),
                address=self._address,
                config=self._config,
                **self._given,
            )
            added.append(consumer)
        self._consumers += added
        return added

    def run(self, finder: Finder | None) -> list[CloseReport]:
        """Until the end; raises what ended it."""
        try:
            with self._bar, signals_to(self._hang_up, [signal.SIGHUP]):
                return consume(
                    self._consumers,
                    self._ending,
                    close_timeout=self._config.close_timeout,
                    tick=lambda: self._tick(finder),
                )
        finally:
            with self._lock:
                for files in self._files.values():
                    files.close()

    def _hang_up(self) -> None:
        """As of logrotate: files are ended, and new ones begun."""
        self._reopen = True

    def _tick(self, finder: Finder | None) -> None:
        with self._lock:
            reopen, self._reopen = self._reopen, False
            for files in self._files.values():
                if reopen:
                    files.close()
                files.tick()
        for consumer in self.add(finder.find() if finder else ()):
            consumer.on_end(self._ending.end)
            consumer.start()

    def _handler(self, files: _Files) -> Callable[[list[Message]], None]:
        def write(messages: list[Message]) -> None:
            self._ending.begin()
            with self._lock:
                room = len(messages) if self._most is None else self._most - self.written
                try:
                    files.write(messages[:room])
                except (ConfigError, OSError) as error:
                    self._ending.end(error)
                    keep(messages)
                    return
                self.written += len(messages[:room])
                if self.written == self._most:
                    self._ending.end()
            self._bar.advance(len(messages[:room]))
            keep(messages[room:])

        return write


def add_parser(commands: Commands[Parser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("to-file", help="write messages to files", description=_ABOUT)
    flags.add_topics(parser)
    parser.add_argument(
        "--topic-pattern", type=_pattern, metavar="REGEX", help="all topics whose names match"
    )
    flags.add_seconds(parser, "--topic-refresh", "look for new topics so often (1m)", default=60.0)
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
    flags.add_seconds(
        parser,
        "--sync-interval",
        "longest time for a message to wait for fsync (1s); at once where the server waits",
        default=1.0,
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
        filing = Filing(
            chosen, address, config, options, ending, lambda topic: _files(chosen, topic)
        )
        filing.add(topics)
        finder = None
        if chosen.topic_pattern is not None:
            admin = Admin(address, **flags.client_options(chosen, AdminConfig))
            finder = Finder(admin, chosen.topic_pattern, chosen.topic_refresh)
        reports = filing.run(finder)
    if chosen.json:
        print(json.dumps({"messages": filing.written, "files": list(map(str, filing.closed))}))
    story = f"{plural(filing.written, 'message')} in {plural(len(filing.closed), 'file')}"
    return ending.exit_code("to-file", story, reports)


def _files(chosen: argparse.Namespace, topic: str) -> _Files:
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
        FileRotation(chosen.rotate_size, chosen.rotate_interval),
        chosen.gzip_level if chosen.gzip else None,
        skip_empty=chosen.skip_empty_files,
    )


def _body(message: Message) -> bytes:
    return message.body + b"\n"


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a regular expression: {error}"
        ) from error
