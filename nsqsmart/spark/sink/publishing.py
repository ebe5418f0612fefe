"""What an executor does to publish the rows of one task: in MPUBs where it can.

Rows of one kind that follow each other make a batch; a row with its own key, trace id, headers or
delay goes by ``publish_async``, which gathers keyed ones into one MPUB of their partition.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, NamedTuple

import pyarrow as pa

from nsqsmart import Pending, Producer, ProducerConfig
from nsqsmart.errors import ConfigError
from nsqsmart.spark.options import WriteOptions
from nsqsmart.spark.schema import unsigned

log = logging.getLogger("nsqsmart.spark")

COLUMNS = ("value", "topic", "partition", "key", "trace_id", "headers", "defer_ms")
_MILLIS = 1000
_MOST_PENDING = 1000


class SinkRow(NamedTuple):
    """One message, and how to publish it."""

    topic: str
    body: bytes
    partition: int | None
    key: Any
    trace_id: int | None
    headers: Mapping[str, Any] | None
    defer_ms: int | None

    @property
    def place(self) -> tuple[str, int | None]:
        """What a batch has one of."""
        return self.topic, self.partition

    @property
    def alone(self) -> bool:
        """Whether an MPUB cannot say it."""
        own = (self.key, self.trace_id, self.headers, self.defer_ms)
        return own != (None, None, None, None)


@dataclass
class Stamp:
    """Who sends a row, for consumers that drop what they have seen: ``stampRows``."""

    query: str
    batch: str
    partition: int
    sent: int = 0

    def next(self) -> dict[str, str]:
        """The headers of the next row; a task that is tried again gives the same."""
        self.sent += 1
        return {
            "nsqsmart-query": self.query,
            "nsqsmart-batch": self.batch,
            "nsqsmart-partition": str(self.partition),
            "nsqsmart-row": str(self.sent - 1),
        }


class Publishing:
    """One task's producer; closes it in any case."""

    def __init__(self, options: WriteOptions, stamp: Stamp | None) -> None:
        self._options = options
        self._stamp = stamp
        self._sent = 0
        self._pending: deque[Pending] = deque()
        self._pace = Pace(options.publish_rate)
        self._producer = Producer(options.address, **options.of(ProducerConfig))

    def run(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Publish all rows, in their order; returns how many. Raises PublishError."""
        with self._producer:
            for batch in batches:
                self._publish(rows_of(batch, self._options))
            self._settle(0)
        return self._sent

    def _publish(self, rows: Iterator[SinkRow]) -> None:
        gathered: list[SinkRow] = []
        size = 0
        for row in rows:
            stamped = self._stamped(row)
            full = len(gathered) >= self._options.publish_batch_messages
            if gathered and (
                full
                or stamped.alone
                or stamped.place != gathered[0].place
                or size >= self._options.publish_batch_bytes
            ):
                self._send_batch(gathered)
                gathered, size = [], 0
            if stamped.alone:
                self._send_alone(stamped)
            else:
                gathered.append(stamped)
                size += len(stamped.body)
        if gathered:
            self._send_batch(gathered)

    def _stamped(self, row: SinkRow) -> SinkRow:
        if self._stamp is None:
            return row
        return row._replace(headers={**(row.headers or {}), **self._stamp.next()})

    def _send_batch(self, rows: list[SinkRow]) -> None:
        # What went before has its place before it.
        self._settle(0)
        self._pace.wait(len(rows))
        topic, partition = rows[0].place
        self._sent += self._producer.publish_many(
            topic,
            [row.body for row in rows],
            partition=partition,
            trace=self._options.trace or None,
        ).count

    def _send_alone(self, row: SinkRow) -> None:
        self._pace.wait(1)
        pending = self._producer.publish_async(
            row.topic,
            row.body,
            key=row.key,
            partition=row.partition,
            trace=self._options.trace or None,
            trace_id=unsigned(row.trace_id),
            headers=row.headers,
            delay=None if row.defer_ms is None else row.defer_ms / _MILLIS,
        )
        self._pending.append(pending)
        self._settle(_MOST_PENDING)

    def _settle(self, most: int) -> None:
        """Wait until at most *most* messages have no answer yet; raises what became of them."""
        while len(self._pending) > most:
            self._sent += self._pending.popleft().result().count


class Pace:
    """No more than *rate* messages a second; None is as fast as it goes."""

    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self._due = monotonic()

    def wait(self, count: int) -> None:
        """Wait until *count* more may go."""
        if self._rate is None:
            return
        now = monotonic()
        self._due = max(self._due, now - 1.0)
        if self._due > now:
            sleep(self._due - now)
        self._due += count / self._rate


def check_columns(names: Iterable[str], options: WriteOptions) -> None:
    """Raise ConfigError unless the sink can publish rows of these columns."""
    found = list(names)
    others = [name for name in found if name not in COLUMNS]
    if others:
        raise ConfigError(
            f"the nsq sink has no column {others[0]!r}; it takes {', '.join(COLUMNS)}: select them"
        )
    if "value" not in found:
        raise ConfigError("the nsq sink publishes the column value, which is missing")
    if "topic" not in found and options.topic is None:
        raise ConfigError("give the option topic, or a column topic")
    if options.partitioner == "hash" and "key" not in found:
        raise ConfigError("partitioner=hash needs a column key")
    if options.partitioner == "column" and "partition" not in found:
        raise ConfigError("partitioner=column needs a column partition")


def rows_of(batch: pa.RecordBatch, options: WriteOptions) -> Iterator[SinkRow]:
    """The rows as messages; raises ConfigError for one that cannot be published."""
    count = batch.num_rows
    nothing: list[Any] = [None] * count
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    topics = columns.get("topic", nothing)
    choice = options.partitioner
    partitions = nothing if choice in ("roundrobin", "hash") else columns.get("partition", nothing)
    keys = nothing if choice in ("roundrobin", "column") else columns.get("key", nothing)
    headers = columns.get("headers", nothing)
    trace_ids, defers = columns.get("trace_id", nothing), columns.get("defer_ms", nothing)
    values = columns["value"]
    for number in range(count):
        body, topic = values[number], topics[number] or options.topic
        partition = partitions[number]
        if topic is None:
            raise ConfigError("a row has no topic: give the option topic for those")
        yield SinkRow(
            topic,
            _body(body),
            partition,
            # A partition that is given needs no key to find it.
            keys[number] if partition is None else None,
            trace_ids[number],
            dict(headers[number]) if headers[number] else None,
            defers[number],
        )


def _body(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes) and value:
        return value
    found = "empty" if value is not None else "null"
    raise ConfigError(f"a row's value is {found}: NSQ has no such message; filter it out before")
