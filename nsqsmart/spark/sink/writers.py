"""The writers as Spark wants to see them; all they do is in ``publishing``.

At least once: what a task has published before it failed stays published, and its next attempt
publishes it again (decisions#59).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from nsqsmart.spark.options import WriteOptions
from nsqsmart.spark.sink.publishing import Publishing, Stamp

log = logging.getLogger("nsqsmart.spark")


@dataclass
class NsqCommitMessage(WriterCommitMessage):
    """What one task has published."""

    messages: int


class _Writing:
    """What both writers do."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> NsqCommitMessage:
        """Publish the rows of one task; on an executor."""
        stamp = _stamp() if self._options.stamp_rows else None
        return NsqCommitMessage(Publishing(self._options, stamp).run(iterator))


class NsqBatchWriter(_Writing, DataSourceArrowWriter):
    """``df.write.format("nsq")``."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say what was published."""
        _say("published %d messages", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say what stays published."""
        _say("the write failed; %d messages and more stay published", messages)


class NsqStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """``df.writeStream.format("nsq")``."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Say what was published."""
        _say(f"batch {batchId}: published %d messages", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Say what stays published."""
        _say(f"batch {batchId} failed; %d messages and more stay published", messages)


def _say(what: str, messages: list[WriterCommitMessage | None]) -> None:
    done = [each for each in messages if isinstance(each, NsqCommitMessage)]
    log.info(what, sum(each.messages for each in done))


def _stamp() -> Stamp:
    """Who this task is; the same for every attempt at it."""
    context = TaskContext.get()
    assert context is not None  # noqa: S101 - write() runs in a task
    query = context.getLocalProperty("sql.streaming.queryId") or ""
    batch = context.getLocalProperty("streaming.sql.batchId") or ""
    return Stamp(query, batch, context.partitionId())
