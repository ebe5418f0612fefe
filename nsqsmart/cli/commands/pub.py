"""``nsqsmart pub``: publish lines, a file or words.

``Lines`` cuts messages out of a stream. ``Sender`` publishes them at a rate and says what became of
each.
"""

from __future__ import annotations

import argparse
import codecs
import json
import os
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from nsqsmart import Pending, Producer, ProducerConfig, PublishError, Receipt
from nsqsmart.cli.common import flags
from nsqsmart.cli.common.ending import in_haste, is_readable, pause, result_of
from nsqsmart.cli.common.parsing import Commands, Parser, UsageError
from nsqsmart.cli.common.progress import ProgressBar
from nsqsmart.cli.common.records import failure_record, line, receipt_record
from nsqsmart.errors import ConfigError
from nsqsmart.names import check_partition, check_topic
from nsqsmart.terminal import RETRY_LATER, drop

_CHUNK = 1 << 16
_MOST = 16 << 20

_MOST_WAITING = 1000
_PATIENCE = 1.0

_ABOUT = """\
Publish to TOPIC the MESSAGES, or each line of a file, or of what comes on stdin. Silent when all
of them are stored. Exit code 0: all stored, or spooled with --spool DIR (see nsqsmart spool);
1: refused; 75: worth retrying later; 2: usage.
"""


class Lines:
    """Reads a descriptor as it comes; empty messages are passed over, for nsqd takes none.

    ``number`` counts the pieces that were taken, empty ones too; ``taken`` the bytes.
    """

    def __init__(self, descriptor: int, delimiter: bytes, name: str) -> None:
        self._descriptor = descriptor
        self._delimiter = delimiter
        self._name = name
        self._pieces: deque[bytes] = deque()
        self._rest = bytearray()
        self._ended = False
        self.number = 0
        self.taken = 0

    def pauses(self) -> bool:
        """Whether nothing is there to be taken at this moment."""
        return not (self._pieces or self._ended or is_readable(self._descriptor, 0.0))

    def take(self, until: float | None) -> bytes | None:
        """The next message, None at the end; raises TimeoutError at *until* (monotonic seconds).

        Raises :class:`ConfigError` for one of more than 16 MiB, OSError where it cannot be read.
        """
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self.number += 1
                self.taken += len(piece) + len(self._delimiter)
                if piece:
                    return piece
            if self._ended:
                return None
            self._fill(until)

    def _fill(self, until: float | None) -> None:
        if not is_readable(self._descriptor, until):
            raise TimeoutError
        data = os.read(self._descriptor, _CHUNK)
        self._ended = not data
        # A delimiter of several bytes may have come in two parts.
        begin = max(0, len(self._rest) - len(self._delimiter))
        self._rest += data
        if self._delimiter in self._rest[begin:]:
            *whole, last = bytes(self._rest).split(self._delimiter)
            self._pieces.extend(whole)
            self._rest = bytearray(last)
        if len(self._rest) > _MOST:
            place = self.number + len(self._pieces) + 1
            raise ConfigError(f"{self._name}: message {place} has more than {_MOST} bytes")
        if self._ended and self._rest:
            self._pieces.append(bytes(self._rest))
            self._rest.clear()


def read_delimiter(text: str) -> bytes:
    r"""Text with escapes: ``\n``, ``\0``, ``\t``, ``\x1e``; raises ValueError."""
    delimiter = codecs.escape_decode(text.encode())[0]
    if not delimiter:
        raise ValueError("it is empty")
    return bytes(delimiter)


class Manner(NamedTuple):
    """How messages are published."""

    topic: str
    key: str | None = None
    key_field: str | None = None
    partition: int | None = None
    delay: float | None = None
    rate: int | None = None

    def key_of(self, body: bytes, number: int) -> str | int | None:
        """The key of message *number*; raises :class:`ConfigError` where there is none."""
        if self.key_field is None:
            return self.key
        where = f"message {number}: --key-field {self.key_field}"
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            raise ConfigError(f"{where}: the message is no JSON") from None
        for name in self.key_field.split("."):
            if not isinstance(value, dict) or name not in value:
                raise ConfigError(f"{where}: the message has no such field")
            value = value[name]
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ConfigError(f"{where} is {value!r:.40}; a key is text or a whole number")
        return value


class Sender:
    """Publishes messages one after the other and waits for every answer.

    Answers are told in the order of the messages. The first failure ends it; a reader of them that
    went away does not: it is the messages that the exit code speaks of.
    """

    def __init__(
        self, producer: Producer, manner: Manner, *, deadline: float | None, as_json: bool
    ) -> None:
        self._producer = producer
        self._manner = manner
        self._deadline = None if deadline is None else monotonic() + deadline
        self._seconds = deadline
        self._as_json = as_json
        self._waiting: deque[tuple[int, Pending]] = deque()
        self._failures: list[tuple[int, PublishError]] = []
        self._counted = (0, 0, 0)  # how many stored and spooled, and the number of the last one
        self._due = 0.0

    def send_all(self, messages: Lines | _Words, bar: ProgressBar | None = None) -> int:
        """Until there are no more; the exit code."""
        reason = ""
        try:
            reason = self._send_until(messages, bar)
            self._settle(0)
        except ConfigError as error:
            self._settle(0)
            self._say(f"{error}; {self._story(messages)}")
            return 1
        except KeyboardInterrupt:
            self._give_up()
            story = f"interrupted: {self._story(messages)}"
            self._say(story)
            raise KeyboardInterrupt(story) from None
        if self._failures:
            number, first = self._failures[0]
            more = len(self._failures) - 1
            others = f", and {more} more" if more else ""
            self._say(f"message {number}{others} failed: {first}; {self._story(messages)}")
            return RETRY_LATER if all(each.retryable for _, each in self._failures) else 1
        if reason:
            self._say(f"{reason}; {self._story(messages)}")
            return RETRY_LATER
        return 0

    def _send_until(self, messages: Lines | _Words, bar: ProgressBar | None) -> str:
        """Why it ended early, or ``""``."""
        before = 0
        while not self._failures:
            if messages.pauses():
                # A person who types a line wants to know what came of it before the next one.
                self._settle(0)
                if self._failures:
                    break
            try:
                body = messages.take(self._deadline)
                if body is None:
                    break
                self._await_turn()
            except TimeoutError:
                return f"the deadline of {self._seconds:g} s is over"
            self._send(body, messages.number)
            self._settle(_MOST_WAITING)
            if bar is not None:
                bar.advance(messages.taken - before)
            before = messages.taken
        return ""

    def _send(self, body: bytes, number: int) -> None:
        manner = self._manner
        arguments: dict[str, Any] = {"delay": manner.delay}
        if self._deadline is not None:
            arguments["timeout"] = max(0.001, self._deadline - monotonic())
        key = manner.key_of(body, number)
        arguments |= {"partition": manner.partition} if key is None else {"key": key}
        try:
            pending = self._producer.publish_async(manner.topic, body, **arguments)
        except PublishError as error:
            self._fail(number, error)
        else:
            self._waiting.append((number, pending))

    def _settle(self, most: int) -> None:
        """Until no more than *most* are on their way, and those in front have no answer."""
        while self._waiting and (len(self._waiting) > most or self._waiting[0][1].done()):
            number, pending = self._waiting[0]
            try:
                receipt = result_of(pending)
            except PublishError as error:
                self._fail(number, error)
            else:
                self._count(number, receipt)
                self._tell(number, receipt_record(receipt))
            # Not before: what an interrupt comes upon here is counted, or still there.
            self._waiting.popleft()
        self._print()

    def _give_up(self) -> None:
        """A moment for those on their way."""
        until = monotonic() + _PATIENCE
        while self._waiting:
            number, pending = self._waiting[0]
            try:
                receipt = pending.result(max(0.0, until - monotonic()))
            except PublishError:
                pass
            except TimeoutError:
                return
            else:
                self._count(number, receipt)
            self._waiting.popleft()

    def _count(self, number: int, receipt: Receipt) -> None:
        """Message *number* is stored, or spooled; to say so twice does no harm."""
        stored, spooled, last = self._counted
        if number > last:
            self._counted = (stored + (not receipt.spooled), spooled + receipt.spooled, number)

    def _await_turn(self) -> None:
        """Sleep as the rate wants it; raises TimeoutError where that is after the deadline."""
        if self._manner.rate is None:
            return
        now = monotonic()
        self._due = max(self._due + 1 / self._manner.rate, now)
        if self._deadline is not None and self._due > self._deadline:
            raise TimeoutError
        pause(self._due - now)

    def _fail(self, number: int, error: PublishError) -> None:
        self._failures.append((number, error))
        self._tell(number, failure_record(error))

    def _tell(self, number: int, values: dict[str, Any]) -> None:
        if self._as_json:
            self._print(line({"message": number, **values}))

    def _print(self, text: bytes = b"") -> None:
        """*text* into the buffer of stdout; without one, all that is there to its reader."""
        if not self._as_json:
            return
        try:
            if text:
                sys.stdout.buffer.write(text)
            else:
                sys.stdout.flush()
        except BrokenPipeError:
            self._as_json = False
            drop(sys.stdout)

    def _story(self, messages: Lines | _Words) -> str:
        """What became of the others."""
        unsure = f", {len(self._waiting)} without an answer yet" if self._waiting else ""
        stored, spooled, _ = self._counted
        kept = f", {spooled} spooled" if spooled else ""
        return f"{stored} stored{kept}{unsure}, nothing sent after message {messages.number}"

    def _say(self, text: str) -> None:
        try:
            print(f"nsqsmart pub: {text}", file=sys.stderr)
        except BrokenPipeError:
            # As after 2>&1: the exit code is left to tell it.
            drop(sys.stderr)


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
    flags.add_seconds(parser, "--delay", "deliver after this time (original nsqds only)")
    flags.add_count(parser, "--rate", "publish at most N messages a second")
    flags.add_seconds(parser, "--deadline", "give up after this time, with exit code 75")
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
        bar = stack.enter_context(ProgressBar(f"pub {topic}", source.size, off=chosen.json))
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


class _Input(NamedTuple):
    """Where lines come from; *size* is None where it is not known."""

    descriptor: int
    name: str
    size: int | None


@contextmanager
def _opened(name: str | None) -> Iterator[_Input]:
    """The file *name*, or stdin."""
    if name in (None, "-"):
        if sys.stdin.isatty():
            print("one message a line; Ctrl-D ends", file=sys.stderr)
        yield _Input(sys.stdin.fileno(), "stdin", None)
        return
    path = Path(str(name))
    try:
        descriptor = os.open(path, os.O_RDONLY)
        size = path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise ConfigError(f"--file {str(path)!r} cannot be read: {error.strerror}") from error
    try:
        yield _Input(descriptor, str(path), size)
    finally:
        os.close(descriptor)


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
