"""``nsqsmart tail``: print messages as they come."""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import threading

from nsqsmart import Consumer, ConsumerConfig, Message
from nsqsmart.cli.common import flags
from nsqsmart.cli.common.ending import Ending, consume, keep
from nsqsmart.cli.common.parsing import Commands, Parser, UsageError
from nsqsmart.cli.common.records import line, record
from nsqsmart.config import resolve
from nsqsmart.terminal import plural

_ABOUT = """\
Print messages as they come, until Ctrl-C or -n of them. Without --channel it listens on a channel
of its own that vanishes with it, and takes no messages away from other channels.
"""


def add_parser(commands: Commands[Parser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("tail", help="print messages as they come", description=_ABOUT)
    flags.add_topics(parser)
    parser.add_argument("-n", "--n", type=flags.count, metavar="N", help="end after N messages")
    parser.add_argument(
        "--channel",
        help="listen on this channel: what is printed is finished, no other consumer gets it "
        "(default: tailNNNNNN#ephemeral)",
    )
    parser.add_argument(
        "--print-topic", action="store_true", help="print 'TOPIC | ' before each message"
    )
    parser.add_argument(
        "--grep", type=_pattern, metavar="REGEX", help="print only messages that match"
    )
    parser.add_argument(
        "--partition", type=int, metavar="N", help="print only messages of this partition"
    )
    flags.add_json(parser, "print each message as one line of JSON")
    flags.add_address(parser)
    flags.add_options(parser, ConsumerConfig)
    flags.add_go_options(parser, "--consumer-opt", ConsumerConfig)
    parser.set_defaults(run=run, runs_on=True)


def run(chosen: argparse.Namespace) -> int:
    """Print; 0 after -n messages, 130 after Ctrl-C."""
    topics = flags.topics_of(chosen)
    if not topics:
        raise UsageError("which topic? nsqsmart tail TOPIC")
    if chosen.channel and (chosen.grep or chosen.partition is not None):
        raise UsageError("--grep and --partition would finish on --channel what they do not print")
    channel = chosen.channel or f"tail{random.randrange(10**6):06}#ephemeral"  # noqa: S311
    address, options = flags.address_of(chosen), flags.client_options(chosen, ConsumerConfig)
    options["workers"] = 1
    config = resolve(ConsumerConfig, address, options)[1]
    if chosen.n:
        # What is not to be printed need not come.
        options["max_in_flight"] = min(chosen.n, config.max_in_flight)
    with Ending() as ending:
        printer = _MessagePrinter(chosen, ending)
        consumers = [
            Consumer(topic, channel, printer.show, address=address, **options) for topic in topics
        ]
        reports = consume(consumers, ending, close_timeout=config.close_timeout)
    return ending.exit_code("tail", f"{plural(printer.shown, 'message')} printed", reports)


class _MessagePrinter:
    """Prints messages, of whichever topic, one at a time."""

    def __init__(self, chosen: argparse.Namespace, ending: Ending) -> None:
        self._chosen = chosen
        self._ending = ending
        self._lock = threading.Lock()  # guards the two below, and the order of what is printed
        self._done = False
        self.shown = 0

    def show(self, message: Message) -> None:
        """Print one; what comes after the last one is given back."""
        self._ending.begin()
        if not self._is_wanted(message):
            return
        with self._lock:
            if self._done:
                keep([message])
                return
            try:
                _write(self._text(message))
            except OSError as error:
                self._done = True
                self._ending.end(error)
                keep([message])
                return
            self.shown += 1
            if self.shown == self._chosen.n:
                self._done = True
                self._ending.end()

    def _is_wanted(self, message: Message) -> bool:
        chosen = self._chosen
        if chosen.partition is not None and chosen.partition != message.partition:
            return False
        return chosen.grep is None or chosen.grep.search(message.body) is not None

    def _text(self, message: Message) -> bytes:
        if self._chosen.json:
            return line(record(message))
        topic = f"{message.topic} | ".encode() if self._chosen.print_topic else b""
        return topic + message.body + b"\n"


def _write(data: bytes) -> None:
    """To stdout past its buffer: a thread stuck there would abort the interpreter at its end."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(sys.stdout.fileno(), rest) :]


def _pattern(text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode())
    except re.error as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a regular expression: {error}"
        ) from error
