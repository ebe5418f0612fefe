"""The streaming readers as Spark wants to see them.

Spark makes a reader in three processes and calls ``read`` on a pickled copy (Spark reference 2.1):
nothing is opened in ``__init__``, and ``read`` uses the options alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from nsqsmart.spark.filling import read
from nsqsmart.spark.offsets import OffsetsSource
from nsqsmart.spark.options import ReadOptions
from nsqsmart.spark.ranges import read_range
from nsqsmart.spark.spooling import Offset, SpoolSource, reading
from nsqsmart.spark.tasks import TaskPartition


class SpoolStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``readMode=spool``."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._source: SpoolSource | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's names, here and below
        """Where a new query begins."""
        return self._own().initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """``maxMessagesPerTrigger``."""
        return ReadMaxRows(self._options.max_messages_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what there is now, and end."""
        self._own().prepare_available_now()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """The end of the next epoch."""
        return self._own().latest_offset(start, most_of(limit))

    def reportLatestOffset(self) -> Any:  # noqa: N802
        """What waits, for the progress report."""
        return self._own().report()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The tasks of the epoch that ends at *end*."""
        return [TaskPartition(task, end) for task in self._own().tasks(start, end)]

    def read(  # type: ignore[override] # it gets what partitions() gave
        self, partition: TaskPartition
    ) -> Iterator[pa.RecordBatch]:
        """All rows of one task; on an executor."""
        assert partition.end is not None  # noqa: S101 - as partitions() made it
        return read(reading(self._options, partition.end, partition.task))

    def commit(self, end: Offset) -> None:
        """Comes a batch late, and never for the last one: ``latestOffset`` is told the same."""

    def _own(self) -> SpoolSource:
        """Made on the first call: what is pickled is the options."""
        if self._source is None:
            self._source = SpoolSource(self._options)
        return self._source


class OffsetsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``readMode=offsets``."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._source: OffsetsSource | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Where a new query begins."""
        return self._own().initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """``maxMessagesPerTrigger``."""
        return ReadMaxRows(self._options.max_messages_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what there is now, and end."""
        self._own().prepare_available_now()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """The end of the next ranges."""
        return self._own().latest_offset(start, most_of(limit))

    def reportLatestOffset(self) -> Any:  # noqa: N802
        """How far behind, for the progress report."""
        return self._own().report()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """A range of each partition that has moved."""
        return [TaskPartition(task) for task in self._own().tasks(start, end)]

    def read(  # type: ignore[override] # it gets what partitions() gave
        self, partition: TaskPartition
    ) -> Iterator[pa.RecordBatch]:
        """The messages of one range; on an executor."""
        return read_range(self._options, partition.task)

    def commit(self, end: Offset) -> None:
        """As in the other mode."""

    def _own(self) -> OffsetsSource:
        """Made on the first call."""
        if self._source is None:
            self._source = OffsetsSource(self._options)
        return self._source


def most_of(limit: ReadLimit) -> int | None:
    """Messages that an epoch may have; None is as many as there are."""
    if isinstance(limit, ReadAllAvailable):
        return None
    return limit.max_rows if isinstance(limit, ReadMaxRows) else None
