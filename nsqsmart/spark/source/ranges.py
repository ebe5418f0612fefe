"""Reading a range of a partition's log: ``readMode=offsets``, on redesigned servers.

A disk-queue offset is the Spark offset. Every attempt reads on an ephemeral channel of its own, set
to where the range begins: two attempts on one channel would take each other's messages. Offsets
and sizes tile the log: what is missing is seen, and what comes twice is dropped.
"""

from __future__ import annotations

import heapq
import logging
import uuid
from collections.abc import Iterator
from itertools import count
from time import monotonic
from typing import Any

import pyarrow as pa

from nsqsmart import ConsumerConfig, Message, PullSubscription
from nsqsmart.errors import ConnectionLost
from nsqsmart.spark.options import ReadOptions
from nsqsmart.spark.schema import texts_of, to_batch
from nsqsmart.spark.source.survey import TRANSIENT, DataLoss
from nsqsmart.spark.spool.plan import Task

log = logging.getLogger("nsqsmart.spark")

_TRIES = 3
_SILENCE = 30.0
_PULL = 1.0


def read_range(options: ReadOptions, task: Task) -> Iterator[pa.RecordBatch]:
    """The messages of ``task.first`` up to, not including, ``task.end``, in their order.

    Raises DataLoss for a hole, unless ``failOnDataLoss`` is false.
    """
    walk = Walk(options, task)
    failures = 0
    while not walk.is_done:
        place = walk.place
        try:
            yield from _read_on(options, task, walk)
        except TRANSIENT as error:
            # The leader moved, or is being replaced: the log is the same there.
            failures = 1 if walk.place > place else failures + 1
            log.warning("%s: %s", task.name, error)
            if failures >= _TRIES:
                raise


def _read_on(options: ReadOptions, task: Task, walk: Walk) -> Iterator[pa.RecordBatch]:
    with open_at(options, task.topic, task.partition, walk.place) as source:
        silent_since = monotonic()
        while not walk.is_done:
            messages = source.pull(options.chunk, _PULL)
            # The position is only a cursor: finished at once, so that nothing times out.
            source.finish(messages)
            found = walk.take(messages)
            if messages:
                silent_since = monotonic()
            elif monotonic() - silent_since > _SILENCE:
                raise ConnectionLost(
                    f"{task.name}: nothing came from offset {walk.place} for {_SILENCE:.0f} s"
                )
            if found:
                yield to_batch(found, texts_of(found), headers=options.include_headers)


def open_at(
    options: ReadOptions, topic: str, partition: int | None, position: object
) -> PullSubscription:
    """A subscription to a partition on a channel of its own, from *position* on."""
    channel = f"{options.channel[:20]}_{uuid.uuid4().hex[:16]}#ephemeral"
    given: dict[str, Any] = {"max_in_flight": options.max_in_flight, **options.of(ConsumerConfig)}
    given["start_at"] = position
    return PullSubscription(options.address, topic, channel, partition=partition, **given)


class Walk:
    """Where one reader is in the range; puts messages in the order of the log."""

    def __init__(self, options: ReadOptions, task: Task) -> None:
        self.place = task.first or 0
        self._end = task.end or 0
        self._name = task.name
        self._fails = options.fail_on_data_loss
        self._ahead: list[tuple[int, int, Message]] = []
        self._came = count()
        self._suspect: int | None = None

    @property
    def is_done(self) -> bool:
        """Whether the range is read."""
        return self.place >= self._end

    def take(self, messages: list[Message]) -> list[Message]:
        """Those of *messages*, and of earlier ones, that come next.

        Raises ConnectionLost where one is missing and nothing else comes: look again.
        """
        for message in messages:
            heapq.heappush(self._ahead, (message.offset or 0, next(self._came), message))
        found: list[Message] = []
        while self._ahead and not self.is_done:
            offset, _, message = self._ahead[0]
            if offset > self.place and not self._is_hole(bool(messages) or bool(found)):
                break
            heapq.heappop(self._ahead)
            if offset > self.place:
                self._report(offset)
            if offset >= self.place and offset < self._end:
                found.append(message)
            self.place = max(self.place, offset + (message.size or 0))
        return found

    def _is_hole(self, going_on: bool) -> bool:  # noqa: FBT001 - one caller, just above
        """Whether what is missing at this place is not there: seen on two connections."""
        if going_on:
            return False
        if self._suspect == self.place:
            return True
        self._suspect = self.place
        self._ahead.clear()
        raise ConnectionLost(f"{self._name}: nothing came at offset {self.place}")

    def _report(self, offset: int) -> None:
        message = (
            f"{self._name}: the log goes on at {offset} behind {self.place}: retention has "
            "overtaken the query"
        )
        if self._fails:
            raise DataLoss(f"{message}; failOnDataLoss=false goes on behind the hole")
        log.error("%s", message)
