"""Letters: messages that are published later, with as few commands as their order permits.

A letter waits for a commit, or for the relay of an outbox.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, NamedTuple, Self, Unpack

from nsqsmart import Producer, PublishArguments
from nsqsmart.errors import (
    ConfigError,
    MessageRejected,
    NotSupported,
    OrderingNotSupported,
    PublishTimeout,
)
from nsqsmart.testing.recording import RecordingProducer

Key = str | int | bytes

HOPELESS = (MessageRejected, NotSupported, OrderingNotSupported, ConfigError, TypeError)
"""Errors that sending the letter again would meet again."""

_ALONE = ("delay", "trace_id", "tag")
_PLACE = ("key", "partition")


@dataclass(frozen=True, slots=True)
class Letter:
    """One message with all that was said of it.

    Attributes:
        topic, body: as they were given; the body is a copy.
        alias: whose producer it goes with.
        arguments: those of ``Producer.publish`` that were given, by name.
    """

    topic: str
    body: bytes
    alias: str
    arguments: Mapping[str, Any]

    @classmethod
    def write(
        cls, topic: str, body: bytes, alias: str, **arguments: Unpack[PublishArguments]
    ) -> Self:
        """Check and copy what ``Producer.publish`` will be given.

        Raises TypeError and ConfigError, as that does.
        """
        checked = Producer.check(topic, body, **arguments)
        given = {name: value for name, value in arguments.items() if value is not None}
        if arguments.get("headers") is not None:
            given["headers"] = dict(arguments["headers"] or {})
        return cls(topic, checked, alias, given)

    @property
    def key(self) -> Key | None:
        """The key of the message, or None."""
        found: Key | None = self.arguments.get("key")
        return found

    @property
    def partition(self) -> int | None:
        """The partition it was given for, if any."""
        found: int | None = self.arguments.get("partition")
        return found


class Lane(NamedTuple):
    """The order group of a letter: its partition, its key without partitions, or all unkeyed."""

    topic: str
    partition: int | None = None
    key: Key | None = None


_ANYWHERE = Lane("")


class Failure(NamedTuple):
    """A letter that was not stored, or may not have been, and why."""

    letter: Letter
    error: Exception


class Dispatch:
    """Sends *letters* of one alias with *producer* until *deadline* (monotonic seconds).

    What goes to one partition, or to a topic without a key, goes in order, with one MPUB where it
    may. A failure ends its order group: the later letters of the group fail too, or they would be
    stored out of order. A letter that is refused for what it is fails alone. Each group has an
    equal share of the time that is left, so that one without a server does not use up that of the
    others.

    Attributes:
        waiting: what has neither been stored nor failed, by its number; in order.
        failures: what failed.
    """

    def __init__(self, producer: Producer, letters: Sequence[Letter], deadline: float) -> None:
        self._producer = producer
        self._deadline = deadline
        self.waiting = dict(enumerate(letters))
        self.failures: list[Failure] = []

    def run(self) -> None:
        """Send them; raises nothing that is an Exception."""
        if isinstance(self._producer, RecordingProducer):
            # A test sees them one by one, as they were written.
            self._send_lane(_ANYWHERE, list(self.waiting))
            return
        lanes = self._lanes()
        whole = self._deadline
        for left, (lane, numbers) in zip(range(len(lanes), 0, -1), lanes.items(), strict=True):
            now = monotonic()
            # The time that a quick group does not need is for the groups after it.
            self._deadline = now + (whole - now) / left
            self._send_lane(lane, numbers)

    def _lanes(self) -> dict[Lane, list[int]]:
        lanes: dict[Lane, list[int]] = {}
        lost: dict[str, Exception] = {}
        for number, letter in list(self.waiting.items()):
            if letter.key is not None and letter.topic in lost:
                self._fail([number], lost[letter.topic])
                continue
            try:
                lane = self._lane(letter)
            except Exception as error:  # noqa: BLE001 - the letter fails with it
                # The next one with a key would wait for the same lookups, as long.
                lost[letter.topic] = error
                self._fail([number], error)
            else:
                lanes.setdefault(lane, []).append(number)
        return lanes

    def _lane(self, letter: Letter) -> Lane:
        if letter.partition is not None:
            return Lane(letter.topic, letter.partition)
        if letter.key is None:
            return Lane(letter.topic)
        left = max(0.0, self._deadline - monotonic())
        partition = self._producer.partition_of(letter.topic, letter.key, timeout=left)
        return Lane(letter.topic, partition, letter.key if partition is None else None)

    def _send_lane(self, lane: Lane, numbers: list[int]) -> None:
        for run in list(self._runs(numbers)):
            error = self._send(lane, run)
            if error is not None:
                self._fail([number for number in numbers if number in self.waiting], error)
                return

    def _runs(self, numbers: list[int]) -> Iterator[list[int]]:
        """What may go in one MPUB, in order."""
        run: list[int] = []
        for number in numbers:
            if run and not self._go_together(run[0], number):
                yield run
                run = []
            run.append(number)
        yield run

    def _go_together(self, first: int, second: int) -> bool:
        if isinstance(self._producer, RecordingProducer):
            return False
        one, other = (
            {name: value for name, value in letter.arguments.items() if name not in _PLACE}
            for letter in (self.waiting[first], self.waiting[second])
        )
        return one == other and not any(name in one for name in _ALONE)

    def _send(self, lane: Lane, run: list[int]) -> Exception | None:
        """Send one run; return the error that ends the order group, or None."""
        try:
            self._publish(lane, [self.waiting[number] for number in run])
        except Exception as error:  # noqa: BLE001 - whatever it is, the letter failed
            stored = getattr(error, "accepted", 0)
            self._forget(run[:stored])
            if not isinstance(error, HOPELESS):
                return error
            return self._send_one_by_one(lane, run[stored:], error)
        self._forget(run)
        return None

    def _send_one_by_one(self, lane: Lane, run: list[int], error: Exception) -> Exception | None:
        """Send each letter of *run* alone: *error* is about one of them, and the others go on."""
        if len(run) == 1:
            self._fail(run, error)
            return None
        for number in run:
            found = self._send(lane, [number])
            if found is not None:
                return found
        return None

    def _publish(self, lane: Lane, letters: list[Letter]) -> None:
        first = letters[0]
        left = self._deadline - monotonic()
        if left <= 0:
            raise PublishTimeout(f"no time was left for topic {first.topic!r}")
        arguments = dict(first.arguments)
        arguments["timeout"] = min(arguments.get("timeout", left), left)
        if len(letters) == 1:
            self._producer.publish(first.topic, first.body, **arguments)
            return
        if lane.partition is not None and len({letter.key for letter in letters}) > 1:
            arguments.pop("key", None)
            arguments["partition"] = lane.partition
        bodies = [letter.body for letter in letters]
        self._producer.publish_many(first.topic, bodies, split=True, **arguments)

    def _forget(self, numbers: list[int]) -> None:
        for number in numbers:
            del self.waiting[number]

    def _fail(self, numbers: list[int], error: Exception) -> None:
        self.failures += [Failure(self.waiting.pop(number), error) for number in numbers]
