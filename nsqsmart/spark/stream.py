"""The streaming readers as Spark wants to see them.

Spark makes a reader in three processes and calls ``read`` on a pickled copy (decisions#56):
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


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What both modes have; what is pickled is the options."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
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
        return self._source().latest_offset(start, most_of(limit))

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


class SpoolStreamReader(_Reader):
    """``readMode=spool``."""

    def read(  # type: ignore[override] # it gets what partitions() gave
        self, partition: TaskPartition
    ) -> Iterator[pa.RecordBatch]:
        """All rows of one task; on an executor."""
        assert partition.end is not None  # noqa: S101 - as partitions() made it
        return read(reading(self._options, partition.end, partition.task))


class OffsetsStreamReader(_Reader):
    """``readMode=offsets``."""

    def read(  # type: ignore[override] # it gets what partitions() gave
        self, partition: TaskPartition
    ) -> Iterator[pa.RecordBatch]:
        """The messages of one range; on an executor."""
        return read_range(self._options, partition.task)


def most_of(limit: ReadLimit) -> int | None:
    """Messages that an epoch may have; None is as many as there are."""
    if isinstance(limit, ReadAllAvailable):
        return None
    return limit.max_rows if isinstance(limit, ReadMaxRows) else None
