"""Every way to publish at once, and what became of each message.

A body is "MARK STREAM KEY NUMBER": of each key the numbers rise. The streams are keyed
ones (one thread for each partition), one that repeats what got no answer, unkeyed ones, and
publish_async of both kinds; beside them a bare probe for each partition.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from time import monotonic
from typing import NamedTuple

import nsqsmart
from nsqsmart.errors import PublishError
from nsqsmart.policy.routing import partition_for
from tests.integration.probe import Plan, Probe

_KEYS = 3
_UNKEYED = 2
_TO_END = 90

KEYED = "keyed"
RETRY = "retry"
UNKEYED = "unkeyed"
ASYNC_KEYED = "async-keyed"
ASYNC = "async"


class Failure(NamedTuple):
    """An error that a caller saw."""

    stream: str
    partition: int | None
    error: PublishError
    after: float


class Notes:
    """What the publishers saw; every method is one operation on a list or a set."""

    def __init__(self) -> None:
        self.times: dict[tuple[str, int], list[float]] = defaultdict(list)
        """When messages were stored, by stream and partition."""
        self.stored: list[bytes] = []
        self.failures: list[Failure] = []
        self.took: list[tuple[float, str]] = []
        self.attempts: list[int] = []

    def note(self, stream: str, body: bytes, began: float, receipt: nsqsmart.Receipt) -> None:
        now = monotonic()
        self.times[stream, receipt.partition].append(now)
        self.stored.append(body)
        self.took.append((now - began, stream))
        self.attempts.append(receipt.attempts)

    def fail(self, stream: str, place: int | None, began: float, error: PublishError) -> None:
        after = monotonic() - began
        self.took.append((after, stream))
        self.failures.append(Failure(stream, place, error, after))


class Load:
    """Publishes from all of them until it is stopped."""

    def __init__(self, plan: Plan) -> None:
        self.notes = Notes()
        self.events: list[tuple[float, str]] = []
        self.partitions = range(plan.partitions)
        self._plan = plan
        self._stop = threading.Event()
        self._once = nsqsmart.Producer(plan.url, **plan.options)
        self._again = nsqsmart.Producer(plan.url, retry_unanswered=True, **plan.options)
        self.probes = [Probe(plan, each) for each in self.partitions]
        self._threads = [threading.Thread(target=run) for run in self._streams()]
        for thread in self._threads:
            thread.start()

    def _streams(self) -> list[Callable[[], None]]:
        every = list(self.partitions)
        streams = [self._calls(self._once, KEYED, [each]) for each in every]
        streams.append(self._calls(self._again, RETRY, every))
        streams += [self._calls(self._once, UNKEYED, [], number) for number in range(_UNKEYED)]
        streams.append(self._submissions(ASYNC_KEYED, every))
        streams.append(self._submissions(ASYNC, []))
        return streams

    def _messages(self, stream: str, places: list[int], thread: int = 0):
        """Endlessly (key, its partition, body), at a pace; the key is None without *places*."""
        keys = [
            (key, place)
            for place in places
            for key in keys_of(place, len(self.partitions), f"{stream}{place}")
        ]
        for number in count():
            if self._stop.wait(self._plan.pace):
                return
            key, place = keys[number % len(keys)] if keys else (None, None)
            name = key or f"{stream}{thread}"
            yield key, place, f"{self._plan.mark} {stream} {name} {number}".encode()

    def _calls(
        self, producer: nsqsmart.Producer, stream: str, places: list[int], thread: int = 0
    ) -> Callable[[], None]:
        def run() -> None:
            for key, place, body in self._messages(stream, places, thread):
                began = monotonic()
                try:
                    receipt = producer.publish(self._plan.topic, body, key=key)
                except PublishError as error:
                    self.notes.fail(stream, place, began, error)
                else:
                    self.notes.note(stream, body, began, receipt)

        return run

    def _submissions(self, stream: str, places: list[int]) -> Callable[[], None]:
        def run() -> None:
            for key, place, body in self._messages(stream, places):
                self._submit(stream, key, place, body)

        return run

    def _submit(self, stream: str, key: str | None, place: int | None, body: bytes) -> None:
        began = monotonic()

        def settled(pending: nsqsmart.Pending) -> None:
            try:
                receipt = pending.result(0)
            except PublishError as error:
                self.notes.fail(stream, place, began, error)
            else:
                self.notes.note(stream, body, began, receipt)

        try:
            self._once.publish_async(self._plan.topic, body, key=key).add_done_callback(settled)
        except PublishError as error:
            self.notes.fail(stream, place, began, error)

    def event(self, what: str) -> None:
        """Something is about to happen to the cluster."""
        self.events.append((monotonic(), what))

    def counts(self) -> list[int]:
        """Messages stored: of each stream in each partition, and of each probe."""
        streams = [KEYED, RETRY, UNKEYED, ASYNC_KEYED, ASYNC]
        ours = [len(self.notes.times[stream, p]) for stream in streams for p in self.partitions]
        return ours + [len(probe.times) for probe in self.probes]

    def stored(self) -> set[bytes]:
        """The bodies that an nsqd has said OK to."""
        probed = [body for probe in self.probes for body in probe.stored]
        return {*self.notes.stored, *probed}

    def stop(self) -> None:
        """No more messages; returns when all that were on their way are settled."""
        self._stop.set()
        for thread in self._threads:
            thread.join(_TO_END)
        assert self._once.flush(_TO_END)
        for each in (self._once, self._again):
            each.close()
        for probe in self.probes:
            probe.stop()


def keys_of(partition: int, partitions: int, prefix: str) -> list[str]:
    """A few keys that belong to *partition*."""
    found = []
    for number in count():
        key = f"{prefix}-{number}"
        if partition_for(key, partitions) == partition:
            found.append(key)
        if len(found) == _KEYS:
            return found
    raise AssertionError
