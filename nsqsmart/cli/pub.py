"""``nsqsmart pub``: publish lines, a file or words."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from nsqsmart import Producer, ProducerConfig
from nsqsmart.cli import flags
from nsqsmart.cli.ending import in_haste
from nsqsmart.cli.lines import Lines, read_delimiter
from nsqsmart.cli.parsing import Commands, Parser, UsageError
from nsqsmart.cli.progress import Bar
from nsqsmart.cli.sending import Manner, Sender
from nsqsmart.errors import ConfigError
from nsqsmart.names import check_partition, check_topic

_ABOUT = """\
Publish to TOPIC the MESSAGES, or each line of a file, or of what comes on stdin. Silent when all
of them are stored. Exit code 0: all stored, or spooled with --spool DIR (see nsqsmart spool);
1: refused; 75: worth retrying later; 2: usage.
"""


def add_parser(commands: Commands[Parser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("pub", help="publish lines, a file or words", description=_ABOUT)
    parser.add_argument("words", nargs="*", metavar="TOPIC [MESSAGE]", help="topic and messages")
    parser.add_argument("--topic", help="the topic; then every word is a message")
    parser.add_argument("--file", metavar="FILE", help="publish the lines of this file; - is stdin")
    parser.add_argument(
        "--delimiter",
        type=_delimiter,
        default=b"\n",
        metavar="TEXT",
        help=r"what stands between messages, as \n (default) or \0",
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--key", help="messages of one key go to one partition, in order")
    place.add_argument(
        "--key-field",
        metavar="NAME",
        help="the key is this field of the message, which is a JSON object; as customer.id",
    )
    place.add_argument(
        "--partition", type=_partition, metavar="N", help="publish to this partition"
    )
    parser.add_argument(
        "--delay",
        type=flags.seconds,
        metavar="SECONDS",
        help="deliver after this time (original nsqds only)",
    )
    parser.add_argument(
        "--rate", type=flags.count, metavar="N", help="publish at most N messages a second"
    )
    parser.add_argument(
        "--deadline",
        type=flags.seconds,
        metavar="SECONDS",
        help="give up after this time, with exit code 75",
    )
    parser.add_argument(
        "--spool",
        dest=flags.GIVEN + "spool",
        default=argparse.SUPPRESS,
        metavar="DIR",
        help="keep there what cannot be sent now; the next pub with it sends that first",
    )
    flags.add_json(parser, "print a receipt for each message, as one line of JSON")
    flags.add_address(parser)
    flags.add_options(parser, ProducerConfig)
    flags.add_go_options(parser, "--producer-opt", ProducerConfig)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Publish; see the exit codes above."""
    topic, words = _topic(chosen)
    if words and chosen.file:
        raise UsageError("give messages or --file, not both")
    producer = Producer(flags.address_of(chosen), **flags.client_options(chosen, ProducerConfig))
    manner = Manner(
        topic, chosen.key, chosen.key_field, chosen.partition, chosen.delay, chosen.rate
    )
    with ExitStack() as stack:
        stack.enter_context(in_haste(producer))
        sender = Sender(producer, manner, deadline=chosen.deadline, as_json=chosen.json)
        if words:
            return sender.send_all(_Words(words))
        source = stack.enter_context(_opened(chosen.file))
        bar = stack.enter_context(Bar(f"pub {topic}", source.size, off=chosen.json))
        lines = Lines(source.descriptor, chosen.delimiter, source.name)
        return sender.send_all(lines, bar)


class _Words:
    """Messages that were given as words, as if they were lines."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self.number = self.taken = 0

    def pauses(self) -> bool:
        return False

    def take(self, until: float | None) -> bytes | None:  # noqa: ARG002 - lines need it
        if self.number == len(self._words):
            return None
        self.number += 1
        return os.fsencode(self._words[self.number - 1])


class _Source(NamedTuple):
    """Where lines come from; *size* is None where it is not known."""

    descriptor: int
    name: str
    size: int | None


class _opened:  # noqa: N801 - used as a function
    """The file, or stdin, as a context manager."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._descriptor = -1

    def __enter__(self) -> _Source:
        if self._name in (None, "-"):
            if sys.stdin.isatty():
                print("one message a line; Ctrl-D ends", file=sys.stderr)
            return _Source(sys.stdin.fileno(), "stdin", None)
        path = Path(str(self._name))
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
            size = path.stat().st_size if path.is_file() else None
        except OSError as error:
            raise ConfigError(f"--file {str(path)!r} cannot be read: {error.strerror}") from error
        return _Source(self._descriptor, str(path), size)

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def _topic(chosen: argparse.Namespace) -> tuple[str, list[str]]:
    words = list(chosen.words)
    if chosen.topic is None and not words:
        raise UsageError("which topic? nsqsmart pub TOPIC [MESSAGE ...]")
    topic = words.pop(0) if chosen.topic is None else chosen.topic
    for number, word in enumerate(words, 1):
        if not word:
            raise ConfigError(f"message {number} is empty: nsqd refuses empty messages")
    return check_topic(topic), words


def _partition(text: str) -> int:
    try:
        return check_partition(int(text) if text.isdecimal() else -1)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def _delimiter(text: str) -> bytes:
    try:
        return read_delimiter(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a delimiter: {error}") from error
