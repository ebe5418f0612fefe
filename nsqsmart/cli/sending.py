"""What ``pub`` does with messages: on their way, at a rate, and what came of each."""

from __future__ import annotations

import json
import sys
from collections import deque
from time import monotonic
from typing import Any, NamedTuple, Protocol

from nsqsmart import Pending, Producer, PublishError, Receipt
from nsqsmart.cli.exits import RETRY_LATER
from nsqsmart.cli.progress import Bar
from nsqsmart.cli.records import failure_record, line, receipt_record
from nsqsmart.cli.streams import drop
from nsqsmart.cli.waiting import pause, result_of
from nsqsmart.errors import ConfigError

_MOST_WAITING = 1000
_PATIENCE = 1.0


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


class Messages(Protocol):
    """Where messages come from: :class:`~nsqsmart.cli.lines.Lines`."""

    number: int
    taken: int

    def pauses(self) -> bool:
        """Whether none is there at this moment."""

    def take(self, until: float | None) -> bytes | None:
        """The next one, None at the end; raises TimeoutError at *until*."""


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

    def send_all(self, messages: Messages, bar: Bar | None = None) -> int:
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

    def _send_until(self, messages: Messages, bar: Bar | None) -> str:
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

    def _story(self, messages: Messages) -> str:
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
