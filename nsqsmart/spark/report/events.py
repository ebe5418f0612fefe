"""Trace logs as one table: an event a row, of clients and of the redesigned server.

Everything is text until it is known what it is: a schema of numbers turns a 64-bit id into NULL
without an error (decisions#50). Ids stay text.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from nsqsmart.errors import ConfigError
from nsqsmart.spark.report.lines import (
    CLIENT_LINE,
    CONSUMED,
    PARTITION_MASK,
    PARTITION_SHIFT,
    PUT,
    SERVER_MARK,
)

_FIELDS = (
    *("v", "ts", "event", "nsq_trace_id", "nsq_internal_id", "nsq_disk_offset", "nsq_disk_size"),
    *("topic", "partition", "channel", "attempts", "nsq_timestamp_ns", "local_addr", "nsqd_addr"),
    *("duration_us", "retries", "outcome", "delay_ms", "error", "client_id"),
)
_LINE_SCHEMA = ", ".join(f"{name} STRING" for name in _FIELDS)
_MICRO = 1000

CLIENT, SERVER = "client", "server"


def read_events(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """All events of these files; patterns and folders too. Raises ConfigError.

    Lines that are none have a NULL ``event``. Times are microseconds since 1970.
    """
    try:
        lines = spark.read.text(list(paths))
    except AnalysisException as error:
        raise ConfigError(f"the trace logs cannot be read: {str(error).splitlines()[0]}") from error
    value = f.col("value")
    # A formatter may have put something in front of a client's line.
    found = f.regexp_extract(value, CLIENT_LINE, 1)
    json = f.when(value.startswith("{"), value).otherwise(found)
    parts = lines.select(
        value,
        f.from_json(json, _LINE_SCHEMA).alias("line"),
        _groups(value, PUT, 8, "put"),
        _groups(value, CONSUMED, 10, "did"),
    )
    kind = (
        f.when(f.col("line.event").isNotNull() & f.col("line.ts").isNotNull(), CLIENT)
        .when(f.col("put")[3] != "", f.lit("put"))
        .when(f.col("did")[3] != "", f.lit("did"))
    )
    return parts.withColumn("kind", kind).select(*_columns())


def _groups(value: Column, pattern: str, count: int, name: str) -> Column:
    """What the groups of *pattern* hold; of a line that is no server's nothing is looked for."""
    found = f.array(*(f.regexp_extract(value, pattern, number + 1) for number in range(count)))
    return f.when(value.contains(SERVER_MARK), found).alias(name)


def _columns() -> list[Column]:
    put, did = f.col("put"), f.col("did")

    def of(field: str, put_part: Column | None = None, did_part: Column | None = None) -> Column:
        """A client's field, or the part of a server's line."""
        nothing = f.lit(None).cast("string")
        return (
            f.when(f.col("kind") == CLIENT, f.col(f"line.{field}"))
            .when(f.col("kind") == "put", nothing if put_part is None else put_part)
            .when(f.col("kind") == "did", nothing if did_part is None else did_part)
        )

    client = f.col("kind") == CLIENT
    # The upper bits of an internal id.
    partition = f.shiftright(did[3].cast("bigint"), PARTITION_SHIFT).bitwiseAND(
        f.lit(PARTITION_MASK)
    )
    stamp = f.unix_micros(f.try_to_timestamp(f.col("line.ts")))
    server_time = f.coalesce(f.nullif(put[7], f.lit("")), did[8]).cast("bigint") / _MICRO
    return [
        f.when(client, CLIENT).when(f.col("kind").isNotNull(), SERVER).alias("source"),
        of("event", f.lit("put"), f.lower(did[5])).alias("event"),
        f.when(client, stamp).otherwise(server_time.cast("bigint")).alias("at"),
        of("topic", put[0], did[0]).alias("topic"),
        of("partition", put[1], partition.cast("string")).cast("int").alias("partition"),
        of("nsq_internal_id", put[3], did[3]).alias("internal_id"),
        of("nsq_trace_id", put[2], did[2]).alias("trace_id"),
        of("channel", None, did[1]).alias("channel"),
        of("attempts", None, did[9]).cast("int").alias("attempts"),
        of("nsq_disk_offset", put[6], did[4]).cast("bigint").alias("offset"),
        of("nsq_disk_size").cast("int").alias("size"),
        of("nsq_timestamp_ns").cast("bigint").alias("timestamp_ns"),
        of("nsqd_addr").alias("nsqd"),
        of("local_addr", put[5], did[6]).alias("peer"),
        of("client_id").alias("client_id"),
        of("duration_us").cast("bigint").alias("duration_us"),
        of("delay_ms").cast("bigint").alias("delay_ms"),
        of("retries").cast("int").alias("retries"),
        of("outcome").alias("outcome"),
        of("error").alias("error"),
    ]
