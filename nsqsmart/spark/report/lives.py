"""From events to lives: what became of each message in each channel of its topic.

Events are joined by topic, partition and internal id. A trace id is the publisher's, and may be
that of many messages.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

KEYS = ("topic", "partition", "internal_id")
STATES = ("ok", "redelivered", "unconsumed", "late")
_MICRO = 1_000_000
_NANO = 1000


def lives_of(events: DataFrame, late: float | None) -> DataFrame:
    """A row for each message and channel; *late* in seconds. Times are in microseconds.

    A message that was published and of which no channel of its topic says anything is there as
    unconsumed in every channel that the logs know, or in none (NULL).
    """
    named = events.where("internal_id IS NOT NULL AND partition IS NOT NULL")
    published = _published(named)
    delivered = _delivered(named)
    channels = delivered.select("topic", "channel").distinct()
    expected = published.join(f.broadcast(channels), "topic", "left")
    # Names of their own: both sides come from the same events, which Spark would mix up.
    both = (*KEYS, "channel", "trace_id", "nsqd")
    told = delivered.withColumnsRenamed({name: f"told_{name}" for name in both})
    same = [f.col(name).eqNullSafe(f.col(f"told_{name}")) for name in (*KEYS, "channel")]
    own = [name for name in delivered.columns if name not in both]
    rows = expected.join(told, same, "full").select(
        *(f.coalesce(name, f"told_{name}").alias(name) for name in both), "begun", "stored", *own
    )
    return _judged(_named(rows, events), late)


# Spark groups by hash only what has a fixed width, and sorts for anything else, which takes four
# times as long: while it groups, a trace id is a number, and a name the hash of it.
def _number(trace_id: str) -> Column:
    return f.max(f.expr(f"try_cast({trace_id} AS DECIMAL(20, 0))"))


def _latest(name: str) -> Column:
    return f.max_by(f.xxhash64(name), f.when(f.col(name).isNotNull(), f.col("at")))


def _named(rows: DataFrame, events: DataFrame) -> DataFrame:
    """*rows* with their numbers as text again, and their hashes as the names they are of."""
    found = f.explode(f.array("nsqd", "client_id")).alias("name")
    names = events.select(found).where("name IS NOT NULL").distinct()
    for column in ("nsqd", "consumer"):
        of = names.select(f.xxhash64("name").alias("hash"), f.col("name").alias("found"))
        rows = (
            rows.join(f.broadcast(of), f.col(column) == f.col("hash"), "left")
            .drop("hash", column)
            .withColumnRenamed("found", column)
        )
    return rows.withColumn("trace_id", f.col("trace_id").cast("string"))


def _when(condition: str) -> Column:
    return f.when(f.expr(condition), f.col("at"))


def _published(events: DataFrame) -> DataFrame:
    """When a publish began, by its own log; when it was stored, by its own or the server's."""
    client = "source = 'client' AND event = 'published'"
    server = "source = 'server' AND event = 'put'"
    begun = f.expr(f"CASE WHEN {client} THEN at - coalesce(duration_us, 0) END")
    return (
        events.where(f"({client}) OR ({server})")
        .groupBy(*KEYS)
        .agg(
            f.min(begun).alias("begun"),
            f.coalesce(f.min(_when(server)), f.min(_when(client))).alias("stored"),
            _number("trace_id").alias("trace_id"),
            _latest("nsqd").alias("nsqd"),
        )
    )


def _delivered(events: DataFrame) -> DataFrame:
    """What consumers say; where they say nothing, what the server does."""

    def count(client: str, server: str) -> Column:
        mine = f.count(f.when(f.expr(f"source = 'client' AND event = '{client}'"), 1))
        theirs = f.count(f.when(f.expr(f"source = 'server' AND event = '{server}'"), 1))
        return f.greatest(mine, theirs)

    finish = "source = 'client' AND event = 'finished'"
    server_finish = "source = 'server' AND event IN ('fin', 'fin_delayed', 'fin_internal')"
    start = "source = 'server' AND event = 'start'"
    received = "source = 'client' AND event = 'received'"
    return (
        events.where("channel IS NOT NULL")
        .groupBy(*KEYS, "channel")
        .agg(
            _number("trace_id").alias("trace_id"),
            _latest("nsqd").alias("nsqd"),
            f.min("timestamp_ns").alias("timestamp_ns"),
            f.coalesce(f.min(_when(received)), f.min(_when(start))).alias("received"),
            f.coalesce(f.max(_when(received)), f.max(_when(start))).alias("last_received"),
            f.coalesce(f.min(_when(finish)), f.min(_when(server_finish))).alias("finished"),
            f.min_by("duration_us", _when(finish)).alias("handled"),
            f.coalesce(f.max("attempts"), f.lit(1)).alias("attempts"),
            count("received", "start").alias("receipts"),
            count("requeued", "req").alias("requeues"),
            count("timed_out", "timeout").alias("timeouts"),
            f.count(f.when(f.col("event") == "gave_up", 1)).alias("gave_up"),
            _latest("client_id").alias("consumer"),
        )
    )


def _judged(rows: DataFrame, late: float | None) -> DataFrame:
    """With its latencies, and the one state that matters most."""
    born = f.coalesce("begun", "stored", (f.col("timestamp_ns") / _NANO).cast("bigint"))
    # Clocks of two machines differ: nothing takes less than no time.
    zero = f.lit(0).cast("bigint")
    whole = f.greatest(f.col("finished") - f.col("born"), zero)
    handled = f.coalesce("handled", f.col("finished") - f.col("last_received"))
    is_late = f.lit(False) if late is None else f.col("whole") > late * _MICRO  # noqa: FBT003
    again = (f.col("attempts") > 1) | (f.col("receipts") > 1)
    return (
        rows.withColumn("born", born)
        .withColumn("to_receive", f.greatest(f.col("received") - f.col("born"), zero))
        .withColumn("to_finish", f.greatest(handled, zero))
        .withColumn("whole", f.when(f.col("finished").isNotNull(), whole))
        .withColumn("again", f.coalesce(again, f.lit(False)))  # noqa: FBT003
        .withColumn(
            "state",
            f.when(f.col("finished").isNull(), "unconsumed")
            .when(is_late, "late")
            .when(f.col("again"), "redelivered")
            .otherwise("ok"),
        )
        .drop("timestamp_ns", "handled", "begun")
    )
