"""``order-audit``: did order hold, is anything missing, is anything there twice."""

from __future__ import annotations

import argparse
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.window import Window

from nsqsmart.errors import ConfigError
from nsqsmart.spark.jobs.archive_files import read_archive
from nsqsmart.spark.jobs.runtime import Console, open_session
from nsqsmart.spark.report.events import read_events

_SHOWN = 10
_COUNTS = ("messages", "with_offsets", "duplicates", "inversions", "holes", "key_inversions")
_ID = "decimal(20,0)"


def run(chosen: argparse.Namespace, console: Console) -> int:
    """Audit; 0 if order held."""
    if bool(chosen.archive) == bool(chosen.trace_log):
        raise ConfigError("give an ARCHIVE, or --trace-log, one of them")
    if bool(chosen.key) != bool(chosen.sequence):
        raise ConfigError("--key and --sequence belong together")
    if chosen.key and chosen.trace_log:
        raise ConfigError("--key needs an archive: trace logs have no bodies")
    with open_session(chosen) as spark:
        return console.finish(audit(spark, chosen, console))


def audit(spark: SparkSession, chosen: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Count per partition, and show the first few findings."""
    rows = _from_archive(spark, chosen) if chosen.archive else _from_traces(spark, chosen)
    judged = _judge(_once(rows)).cache()
    counts = [row.asDict() for row in _count(judged).collect()]
    if not counts:
        raise ConfigError("there is nothing to audit: no row is of these topics")
    findings = _findings(judged)
    judged.unpersist()
    totals = {name: sum(each[name] for each in counts) for name in _COUNTS}
    kept = totals["inversions"] == totals["key_inversions"] == 0
    whole = totals["holes"] == totals["duplicates"] == 0
    _print(console, counts, findings)
    if not totals["with_offsets"]:
        console.say(
            "no offsets: neither inversions by id nor holes can be told; archive with --positions"
        )
    console.say("order held" if kept else "ORDER WAS VIOLATED")
    return {
        "ok": kept and (whole or not chosen.strict),
        "job": "order-audit",
        **totals,
        "partitions": counts,
        "findings": findings,
    }


def _from_archive(spark: SparkSession, chosen: argparse.Namespace) -> DataFrame:
    """A row for each row: what it is, and where it was."""
    rows = read_archive(spark, chosen.archive, chosen.topic)
    for name, kind in (
        ("partition", "int"),
        ("internal_id", "bigint"),
        ("offset", "bigint"),
        ("size", "int"),
        ("nsqd", "string"),
        ("message_id", "string"),
        ("timestamp_ns", "bigint"),
    ):
        if name not in rows.columns:
            rows = rows.withColumn(name, f.lit(None).cast(kind))
    nothing = f.lit(None).cast("string")
    return rows.select(
        "topic",
        f.coalesce(f.col("partition").cast("string"), "nsqd").alias("place"),
        f.coalesce(f.col("internal_id").cast("string"), "message_id").alias("name"),
        f.col("internal_id").cast(_ID).alias("internal_id"),
        "offset",
        "size",
        "timestamp_ns",
        f.lit(1).alias("copies"),
        (f.expr(chosen.key).cast("string") if chosen.key else nothing).alias("key"),
        (f.expr(chosen.sequence) if chosen.sequence else nothing).alias("sequence"),
    )


def _from_traces(spark: SparkSession, chosen: argparse.Namespace) -> DataFrame:
    """The same of what was published and delivered; copies are finishes in one channel."""
    events = read_events(spark, chosen.trace_log).where("internal_id IS NOT NULL")
    if chosen.topic:
        events = events.where(f.col("topic").isin(chosen.topic))
    finished = f.count(f.when((f.col("source") == "client") & (f.col("event") == "finished"), 1))
    nothing = f.lit(None).cast("string")
    by_channel = events.groupBy("topic", "partition", "internal_id", "channel").agg(
        f.max("offset").alias("offset"),
        f.max("size").alias("size"),
        f.min("timestamp_ns").alias("timestamp_ns"),
        f.greatest(finished, f.lit(1)).alias("copies"),
    )
    return by_channel.groupBy("topic", "partition", "internal_id").agg(
        f.max("offset").alias("offset"),
        f.max("size").alias("size"),
        f.min("timestamp_ns").alias("timestamp_ns"),
        (f.sum(f.col("copies") - 1) + 1).alias("copies"),
    ).select(
        "topic",
        f.col("partition").cast("string").alias("place"),
        f.col("internal_id").alias("name"),
        f.col("internal_id").cast(_ID).alias("internal_id"),
        "offset",
        "size",
        "timestamp_ns",
        "copies",
        nothing.alias("key"),
        nothing.alias("sequence"),
    )  # fmt: skip


def _once(rows: DataFrame) -> DataFrame:
    """A row for each message, with how often it was there."""
    first = ("internal_id", "offset", "size", "timestamp_ns", "key", "sequence")
    return rows.groupBy("topic", "place", "name").agg(
        f.sum("copies").alias("copies"),
        *(f.first(name, ignorenulls=True).alias(name) for name in first),
    )


def _judge(messages: DataFrame) -> DataFrame:
    """What is wrong with each message, seen from the one before it."""
    position = [f.col(name) for name in ("offset", "internal_id", "timestamp_ns", "name")]
    # Those without an offset are a log of their own, so that they part no two others.
    log = Window.partitionBy("topic", "place", f.col("offset").isNull()).orderBy(*position)
    within = Window.partitionBy("topic", "place", "key").orderBy(*position)
    end = f.lag(f.col("offset") + f.col("size")).over(log)
    is_placed = f.col("offset").isNotNull()
    falls = f.col("sequence") < f.lag("sequence").over(within)
    return (
        messages.withColumn(
            "inverted", is_placed & (f.col("internal_id") < f.lag("internal_id").over(log))
        )
        .withColumn("expected", end)
        .withColumn("hole", is_placed & (f.col("offset") != end))
        .withColumn("falls", f.col("key").isNotNull() & falls)
    )


def _count(judged: DataFrame) -> DataFrame:
    def times(name: str) -> Any:
        return f.count(f.when(f.col(name), 1))

    return (
        judged.groupBy("topic", "place")
        .agg(
            f.count("*").alias("messages"),
            f.count("offset").alias("with_offsets"),
            (f.sum("copies") - f.count("*")).alias("duplicates"),
            times("inverted").alias("inversions"),
            times("hole").alias("holes"),
            times("falls").alias("key_inversions"),
        )
        .orderBy("topic", f.length("place"), "place")
    )


def _findings(judged: DataFrame) -> list[dict[str, Any]]:
    """The first few, worst first."""
    what = (
        f.when(f.col("inverted"), "inversion")
        .when(f.col("falls"), "key inversion")
        .when(f.col("hole"), "hole")
        .when(f.col("copies") > 1, "duplicate")
    )
    rank = f.when(f.col("inverted") | f.col("falls"), 0).when(f.col("hole"), 1).otherwise(2)
    found = (
        judged.withColumn("what", what)
        .where(f.col("what").isNotNull())
        .orderBy(rank, "topic", "place", "offset", "internal_id")
        .select("what", "topic", "place", "name", "offset", "expected", "copies", "key", "sequence")
        .limit(_SHOWN)
    )
    return [
        {
            name: value if isinstance(value, int | float | str) else str(value)
            for name, value in row.asDict().items()
            if value is not None
        }
        for row in found.collect()
    ]


def _print(console: Console, counts: list[dict[str, Any]], findings: list[dict[str, Any]]) -> None:
    for each in counts:
        figures = ", ".join(f"{each[name]:,} {name.replace('_', ' ')}" for name in _COUNTS)
        console.say(f"{each['topic']}/{each['place']}: {figures}")
    for each in findings:
        rest = ", ".join(f"{name} {value}" for name, value in each.items() if name != "what")
        console.say(f"  {each['what']}: {rest}")
