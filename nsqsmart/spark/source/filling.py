"""What an executor does to read one task of an epoch: pull, store, finish (decisions#55).

A message is finished once it is durable in a slot, and not before. Any number of attempts may do
this at once, die anywhere and be tried again; all end with the same rows.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic, sleep, time_ns

import pyarrow as pa

from nsqsmart import Message, PullSubscription
from nsqsmart.errors import NsqError
from nsqsmart.spark.options import ReadOptions
from nsqsmart.spark.schema import ids_of, rows_of, texts_of, to_batch
from nsqsmart.spark.source.survey import TRANSIENT
from nsqsmart.spark.spool.plan import Task
from nsqsmart.spark.spool.slots import DoubtLedger, SlotLog

log = logging.getLogger("nsqsmart.spark")

# Its place had a backlog when it was planned, and a subscription may take a while to begin.
_FIRST_WAITS = 5
_RACES = 50
_SECOND = 1_000_000_000
_TRIES = 3
_RACE_PAUSE = 0.1
_SHARE_OF_TIMEOUT = 0.25


class Unreadable(NsqError):
    """A task could not be read to its end; Spark tries it again."""


def _unwatched(_step: str) -> None:
    """Ignore the step."""


@dataclass(frozen=True)
class Reading:
    """One task, where its slots are, and how to connect."""

    task: Task
    slots: SlotLog
    ledger: DoubtLedger
    options: ReadOptions
    connect: Callable[[], PullSubscription]
    watch: Callable[[str], None] = _unwatched
    """Told of every step: tests stop an attempt between two of them."""


def read(reading: Reading) -> Iterator[pa.RecordBatch]:
    """All rows of the task, once they are all durable.

    Raises :class:`Unreadable` if that cannot be; with ``onNodeFailure=skip`` what is durable is
    the task, if its nsqd cannot be reached.
    """
    failures = 0
    for _ in range(_RACES):
        try:
            if _fill(reading):
                return _stored(reading)
        except (*TRANSIENT, Unreadable) as error:
            failures += 1
            log.warning("%s: %s", reading.task.name, error)
            if failures >= _TRIES and _settle_for_less(reading, error):
                return _stored(reading)
        sleep(_RACE_PAUSE)
    raise Unreadable(f"other attempts at {reading.task.name} came first {_RACES} times")


def _stored(reading: Reading) -> Iterator[pa.RecordBatch]:
    """The rows of a task that is sealed; a part of them must not look like all."""
    yield from reading.slots.replay()
    if not reading.slots.sealed:
        raise Unreadable(f"{reading.task.name}: what was stored of it is gone from the spool")


def _settle_for_less(reading: Reading, error: NsqError) -> bool:
    """Seal what is durable of a task whose nsqd is gone; False if another attempt goes on."""
    name = reading.task.name
    if reading.options.on_node_failure == "fail":
        raise Unreadable(f"{name}: {error}") from error
    found = _look(reading)
    if not reading.slots.sealed and not reading.slots.seal(rows_of(found)):
        return False
    log.warning("%s ends after %d rows: its nsqd is gone", name, rows_of(found))
    return True


def _look(reading: Reading) -> list[pa.RecordBatch]:
    """What is there; noted as doubtful unless its end is there too."""
    found = list(reading.slots.replay())
    if found and not reading.slots.sealed:
        # The attempt that wrote it is dead, or still runs: its FINs may not have arrived.
        reading.ledger.add(reading.task, ids_of(found), time_ns() // _SECOND)
    return found


def _fill(reading: Reading) -> bool:
    """Whether the log is sealed; if not, another attempt writes to it at the same time."""
    found = _look(reading)
    if reading.slots.sealed:
        return True
    with reading.connect() as source:
        attempt = _TaskAttempt(reading, source, rows_of(found))
        return attempt.run() and attempt.leave()


class _TaskAttempt:
    """One connection's work at one task."""

    def __init__(self, reading: Reading, source: PullSubscription, rows: int) -> None:
        self._reading = reading
        self._source = source
        self._rows = rows
        self._bytes = 0
        options = reading.options
        self._doubtful = reading.ledger.ids(reading.task) if options.dedupe_redeliveries else set()
        self._own: set[str] = set()
        self._until = monotonic() + options.poll_timeout
        self._leaving = False

    def run(self) -> bool:
        """Fill slots until budget, time or messages end; False if another attempt does."""
        silence = _FIRST_WAITS * self._reading.options.idle_timeout
        while self._left() > 0 and monotonic() < self._until:
            most = self._most(self._source.set_rdy(self._window()))
            messages, silent = self._gather(most, silence)
            if not self._store(messages):
                return False
            if silent:
                break
            silence = self._reading.options.idle_timeout
        return self._take_the_rest()

    def _take_the_rest(self) -> bool:
        """What is on the way already, with RDY 0 before the last FINs: nsqd would send more."""
        options = self._reading.options
        # No window was ever wider than the rows that were left: with none left nothing is on its
        # way, and what a race sends after all goes back.
        silent = self._rows >= self._reading.task.budget
        self._leaving, self._until = True, math.inf
        self._source.set_rdy(0)
        while not silent:
            messages, silent = self._gather(options.chunk, options.idle_timeout)
            if not self._store(messages):
                return False
        return True

    def leave(self) -> bool:
        """Seal the log once nsqd has carried out every FIN; what came too late goes back."""
        self._reading.watch("before the end")
        reading, report = self._reading, self._source.drain()
        if not report.confirmed:
            raise Unreadable(f"{reading.task.name}: nsqd did not confirm what was finished")
        if self._own and (report.expired or report.refused):
            # The storage was slower than msg_timeout: nsqd delivers again what is in the slots.
            reading.ledger.add(reading.task, self._own, time_ns() // _SECOND)
        return reading.slots.seal(self._rows)

    def _fresh(self, messages: Sequence[Message]) -> tuple[Sequence[Message], list[str]]:
        """Those that are in no slot, each once, and their ids."""
        ids = texts_of(messages)
        once = set(ids)
        if len(once) == len(ids) and once.isdisjoint(self._own) and once.isdisjoint(self._doubtful):
            return messages, ids
        # What has timed out since may be among them twice.
        known = self._own | self._doubtful
        by_id = {name: each for name, each in zip(ids, messages, strict=True) if name not in known}
        return list(by_id.values()), list(by_id)

    def _left(self) -> int:
        """Messages that may still be taken."""
        size = self._reading.task.size
        if size is not None and self._bytes >= size:
            return 0
        return max(0, self._reading.task.budget - self._rows)

    def _window(self) -> int:
        return 0 if self._leaving else min(self._reading.options.max_in_flight, self._left())

    def _most(self, rdy: int) -> int:
        """Messages that can come before something is finished: to wait for more is no silence."""
        if self._source.ordered:
            return 1
        most = min(self._reading.options.chunk, self._left())
        return most if most <= rdy else max(1, rdy // 2)

    def _gather(self, most: int, silence: float) -> tuple[list[Message], bool]:
        """Up to *most* messages for a slot, and whether it was silence or time that ended it."""
        options = self._reading.options
        found: list[Message] = []
        size, until, silent = 0, self._until, False
        while len(found) < most and size < options.chunk_bytes:
            wait = min(silence, max(0.0, until - monotonic()))
            came = self._source.pull(most - len(found), wait)
            if not came:
                silent = wait >= silence or monotonic() >= self._until
                break
            if not found:
                # A slot that fills slowly must be stored before the first of them times out.
                until = min(until, monotonic() + options.msg_timeout * _SHARE_OF_TIMEOUT)
            found += came
            size += sum(len(each.body) for each in came)
            silence = options.idle_timeout
        self._bytes += size
        return found, silent

    def _store(self, messages: Sequence[Message]) -> bool:
        """Write a slot, then finish; False if another attempt owns it, and all go back."""
        fresh, ids = self._fresh(messages)
        if fresh:
            self._reading.watch("before the slot")
            batch = to_batch(fresh, ids, headers=self._reading.options.include_headers)
            if not self._reading.slots.append(batch):
                log.info("%s: another attempt came first", self._reading.task.name)
                self._source.requeue(messages)
                self._source.drain()
                return False
            self._rows += len(fresh)
            self._own.update(ids)
        if messages:
            self._reading.watch("before FIN")
            self._source.set_rdy(self._window())
            self._source.finish(messages)
            self._reading.watch("after FIN")
        return True
