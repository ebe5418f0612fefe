"""The figures of the report that are counts over all lives; each is a few rows at most."""

from __future__ import annotations

import math
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from nsqsmart.spark.jobs.lives import STATES
from nsqsmart.spark.jobs.report.figures import LATENCIES, PERCENTS, Bar, Channel, Minute

_SHARES = [percent / 100 for percent in PERCENTS]
_PER_DECADE = 5
_MOST_ATTEMPTS = 12
_MOST_PARTIES = 30
_MOST_STRETCHES = 240
_SECOND = 1_000_000
_STRETCHES = (1, 2, 5, 10, 20, 30)
_MINUTE = 60
_LONG_ENOUGH = 20


def channels(lives: DataFrame) -> list[Channel]:
    """Of every channel what became of its messages, the largest first."""
    rows = lives.groupBy("topic", "channel").agg(
        f.count("*").alias("messages"),
        *(f.count(f.when(f.col("state") == name, 1)).alias(name) for name in STATES),
        f.count(f.when(f.col("again"), 1)).alias("again"),
        f.count(f.when(f.col("gave_up") > 0, 1)).alias("gave_up"),
        *(f.percentile_approx(name, _SHARES, 1000).alias(name) for name in LATENCIES),
    )
    return [
        Channel(
            row["topic"],
            row["channel"],
            row["messages"],
            {name: row[name] for name in STATES},
            row["again"],
            row["gave_up"],
            {name: list(row[name] or [None] * len(PERCENTS)) for name in LATENCIES},
        )
        for row in rows.orderBy(f.desc("messages"), "topic", "channel").collect()
    ]


def histogram(lives: DataFrame) -> list[Bar]:
    """Finished messages by their latency, without gaps; each bar is a factor of 1.58 wide."""
    step = f.floor(f.log10(f.greatest("whole", f.lit(1))) * _PER_DECADE).alias("step")
    rows = (
        lives.where("whole IS NOT NULL")
        .groupBy(step)
        .agg(_times(~f.col("again")).alias("first"), _times(f.col("again")).alias("again"))
        .collect()
    )
    counts = {row["step"]: (row["first"], row["again"]) for row in rows}
    if not counts:
        return []
    return [
        Bar(_edge(number), _edge(number + 1), *counts.get(number, (0, 0)))
        for number in range(min(counts), max(counts) + 1)
    ]


def _edge(step: int) -> float:
    return float(10 ** (step / _PER_DECADE))


def _times(condition: Column) -> Column:
    return f.count(f.when(condition, 1))


def stretch(begins: int | None, ends: int | None) -> int:
    """How much time one point is for: a minute, unless that makes very few or very many."""
    span = 0 if begins is None or ends is None else (ends - begins) / _SECOND
    if span < _LONG_ENOUGH * _MINUTE:
        for seconds in _STRETCHES:
            if span / seconds <= _MOST_STRETCHES / 2:
                return seconds * _SECOND
    minutes_each = max(1, math.ceil(span / _MINUTE / _MOST_STRETCHES))
    return minutes_each * _MINUTE * _SECOND


def minutes(lives: DataFrame, width: int) -> list[Minute]:
    """Percentiles of the whole latency by time of publishing."""
    begins = (f.floor(f.col("born") / width) * width).cast("bigint").alias("begins")
    rows = (
        lives.where("born IS NOT NULL")
        .groupBy(begins)
        .agg(
            f.count("*").alias("messages"),
            f.count("whole").alias("finished"),
            f.percentile_approx("whole", [0.5, 0.95, 0.99], 1000).alias("percentiles"),
        )
        .orderBy("begins")
        .limit(2 * _MOST_STRETCHES)
    )
    return [
        Minute(row["begins"], row["messages"], row["finished"], list(row["percentiles"] or []))
        for row in rows.collect()
    ]


def attempts(lives: DataFrame) -> list[tuple[int, int]]:
    """Messages by deliveries; the last count is of all that had so many or more."""
    number = f.least(f.greatest("attempts", "receipts"), f.lit(_MOST_ATTEMPTS)).alias("number")
    rows = lives.where("receipts > 0").groupBy(number).count().orderBy("number").collect()
    return [(int(row["number"]), row["count"]) for row in rows]


def parties(lives: DataFrame) -> list[dict[str, Any]]:
    """The consumers and the nsqds with most messages, and how they did."""
    found = []
    for kind, name in (("consumer", "consumer"), ("nsqd", "nsqd")):
        rows = (
            lives.where(f.col(name).isNotNull())
            .groupBy(f.col(name).alias("name"))
            .agg(
                f.count("*").alias("messages"),
                _times(f.col("again")).alias("again"),
                _times(f.col("state") == "unconsumed").alias("unconsumed"),
                f.percentile_approx("whole", [0.5, 0.99, 1.0], 1000).alias("percentiles"),
            )
            .orderBy(f.desc("messages"), "name")
            .limit(_MOST_PARTIES)
        )
        for row in rows.collect():
            one = row.asDict()
            percentiles = list(one["percentiles"] or [None] * 3)
            found.append({**one, "kind": kind, "percentiles": percentiles})
    return found
