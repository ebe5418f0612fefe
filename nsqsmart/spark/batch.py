"""The batch readers as Spark wants to see them.

One DataFrame plans once and reads as often as it has actions (decisions#58). A queue gives
a message once: what is drained goes through the spool, under a name that the DataFrame keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import monotonic, time_ns

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from nsqsmart.errors import DiscoveryError
from nsqsmart.spark.connecting import pull
from nsqsmart.spark.filling import read
from nsqsmart.spark.offsets import OffsetsSource
from nsqsmart.spark.options import ReadOptions
from nsqsmart.spark.plan import Plan, share
from nsqsmart.spark.ranges import read_range
from nsqsmart.spark.schema import texts_of, to_batch
from nsqsmart.spark.spooling import SpoolSource, reading
from nsqsmart.spark.survey import Survey
from nsqsmart.spark.tasks import TaskPartition

_DAY = 86400.0


class DrainReader(DataSourceReader):
    """``mode=drain``: takes what waits now; a DataFrame gives the same rows to every action."""

    def __init__(self, options: ReadOptions, name: str) -> None:
        # Silence ends a task, or its budget; time does not.
        self._options = replace(options, poll_timeout=_DAY, message_timeout=options.msg_timeout)
        self._name = name

    def partitions(self) -> Sequence[InputPartition]:
        """Plan once for all actions."""
        source = SpoolSource(self._options)
        end, plan = source.plan_batch(self._name)
        return [TaskPartition(task, end) for task in plan.tasks]

    def read(  # type: ignore[override] # it gets what partitions() gave
        self, partition: TaskPartition
    ) -> Iterator[pa.RecordBatch]:
        """All rows of one task; on an executor."""
        assert partition.end is not None  # noqa: S101 - as partitions() made it
        return read(reading(self._options, partition.end, partition.task))


class PeekReader(DataSourceReader):
    """``mode=peek``: shows what waits and leaves it there; attempts count one more."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """What waits now, up to ``maxMessagesPerTrigger``."""
        plan = plan_now(self._options, self._options.max_messages_per_trigger)
        return [TaskPartition(task) for task in plan.tasks]

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


class RangesReader(DataSourceReader):
    """``readMode=offsets``: a range of each partition's log, as often as it is asked for."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """From ``startingOffsets`` to ``endingOffsets``."""
        return [TaskPartition(task) for task in OffsetsSource(self._options).batch()]

    def read(  # type: ignore[override] # it gets what partitions() gave
        self, partition: TaskPartition
    ) -> Iterator[pa.RecordBatch]:
        """The messages of one range; on an executor."""
        return read_range(self._options, partition.task)


def plan_now(options: ReadOptions, most: int | None) -> Plan:
    """What waits at this moment; raises DiscoveryError if nobody says."""
    sight = Survey(options).look(anew=True)
    if sight is None:
        raise DiscoveryError("no figures of what waits: is a lookup reachable?")
    return Plan(1, time_ns(), share(sight.backlogs, most, options.min_partitions))
