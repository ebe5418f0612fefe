"""The readers as Spark wants to see them, for batches and for streams.

Spark makes a streaming reader in three processes and calls ``read`` on a pickled copy
(decisions#56): nothing is opened in ``__init__``, and ``read`` uses the options alone.

One DataFrame plans once and reads as often as it has actions (decisions#58). A queue gives
a message once: what is drained goes through the spool, under a name that the DataFrame keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from nsqsmart.spark.options import ReadOptions
from nsqsmart.spark.schema import texts_of, to_batch
from nsqsmart.spark.source.filling import read
from nsqsmart.spark.source.offsets import OffsetsSource
from nsqsmart.spark.source.ranges import read_range
from nsqsmart.spark.source.spooling import Offset, SpoolSource, reading
from nsqsmart.spark.source.survey import Survey, pull
from nsqsmart.spark.spool.plan import Task, share

_DAY = 86400.0


@dataclass
class TaskPartition(InputPartition):
    """One task; one that goes through the spool ends the epoch *end*."""

    task: Task
    end: Offset | None = None


class _TaskReader:
    """Reads a task in an executor. What is pickled is the options."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """All rows of one task, or the messages of one range."""
        assert isinstance(partition, TaskPartition)  # noqa: S101 - as partitions() made it
        if self._options.read_mode == "offsets":
            return read_range(self._options, partition.task)
        assert partition.end is not None  # noqa: S101 - likewise
        return read(reading(self._options, partition.end, partition.task))


class DrainReader(_TaskReader, DataSourceReader):
    """``mode=drain``: takes what waits now; a DataFrame gives the same rows to every action."""

    def __init__(self, options: ReadOptions, name: str) -> None:
        # Silence ends a task, or its budget; time does not.
        super().__init__(replace(options, poll_timeout=_DAY, message_timeout=options.msg_timeout))
        self._name = name

    def partitions(self) -> Sequence[InputPartition]:
        """Plan once for all actions."""
        source = SpoolSource(self._options)
        end, plan = source.plan_batch(self._name)
        return [TaskPartition(task, end) for task in plan.tasks]


class PeekReader(DataSourceReader):
    """``mode=peek``: shows what waits and leaves it there; attempts count one more."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """What waits now, up to ``maxMessagesPerTrigger``; raises DiscoveryError."""
        sight = Survey(self._options).must_look()
        most, least = self._options.max_messages_per_trigger, self._options.min_partitions
        return [TaskPartition(task) for task in share(sight.backlogs, most, least)]

    def read(  # type: ignore[override] # it gets what partitions() gave
        self, partition: TaskPartition
    ) -> Iterator[pa.RecordBatch]:
        """Hold the messages, show them, give them back."""
        options, task = self._options, partition.task
        until = monotonic() + options.poll_timeout
        with pull(options, task) as source:
            left = task.budget
            while left > 0 and monotonic() < until:
                # Held until the end: what went back would come again.
                source.set_rdy(min(options.max_in_flight, source.in_flight + left))
                messages = source.pull(min(left, options.chunk), options.idle_timeout)
                if not messages:
                    break
                left -= len(messages)
                yield to_batch(messages, texts_of(messages), headers=options.include_headers)


class RangesReader(_TaskReader, DataSourceReader):
    """``readMode=offsets``: a range of each partition's log, as often as it is asked for."""

    def partitions(self) -> Sequence[InputPartition]:
        """From ``startingOffsets`` to ``endingOffsets``."""
        return [TaskPartition(task) for task in OffsetsSource(self._options).batch()]


class StreamReader(_TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream, in both modes."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._made: SpoolSource | OffsetsSource | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's names, here and below
        """Where a new query begins."""
        return self._source().initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """``maxMessagesPerTrigger``."""
        return ReadMaxRows(self._options.max_messages_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what there is now, and end."""
        self._source().prepare_available_now()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """The end of the next epoch, or of the next ranges."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._source().latest_offset(start, most)

    def reportLatestOffset(self) -> Any:  # noqa: N802
        """What waits, or how far behind it is, for the progress report."""
        return self._source().report()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """What there is to read between the two."""
        return [TaskPartition(task, end) for task in self._source().tasks(start, end)]

    def commit(self, end: Offset) -> None:
        """Comes a batch late, and never for the last one: ``latestOffset`` is told the same."""

    def _source(self) -> SpoolSource | OffsetsSource:
        """Made on the first call."""
        if self._made is None:
            offsets = self._options.read_mode == "offsets"
            self._made = OffsetsSource(self._options) if offsets else SpoolSource(self._options)
        return self._made
