"""The figures of the report, counted over all lives; each is a few rows at most.

Also the few messages that are shown one by one, with all their events, and which nsqd took the
messages of a partition, and when: where that changes, its leader moved.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.window import Window

from nsqsmart.spark.report.figures import (
    LATENCIES,
    PERCENTS,
    Bar,
    ChannelFigures,
    Event,
    Life,
    Minute,
    Term,
)
from nsqsmart.spark.report.lives import KEYS, STATES

_SHARES = [percent / 100 for percent in PERCENTS]
_PER_DECADE = 5
_MOST_ATTEMPTS = 12
_MOST_PARTIES = 30
_MOST_STRETCHES = 240
_SECOND = 1_000_000
_STRETCHES = (1, 2, 5, 10, 20, 30)
_MINUTE = 60
_LONG_ENOUGH = 20

_MOST_PARTITIONS = 40
_MOST_ROWS = 20_000

_SLOWEST = 20
_MOST_LIVES = 100
_MOST_EVENTS = 80


def channels(lives: DataFrame) -> list[ChannelFigures]:
    """Of every channel what became of its messages, the largest first."""
    rows = lives.groupBy("topic", "channel").agg(
        f.count("*").alias("messages"),
        *(_times(f.col("state") == name).alias(name) for name in STATES),
        _times(f.col("again")).alias("again"),
        _times(f.col("gave_up") > 0).alias("gave_up"),
        *(f.percentile_approx(name, _SHARES, 1000).alias(name) for name in LATENCIES),
    )
    return [
        ChannelFigures(
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
    for kind in ("consumer", "nsqd"):
        rows = (
            lives.where(f.col(kind).isNotNull())
            .groupBy(f.col(kind).alias("name"))
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


def terms(events: DataFrame, width: int) -> list[Term]:
    """The terms of the leaders, by partition and time, as the publishers saw them.

    Events are counted in stretches of *width* microseconds: who led for less is seen, and when
    within it is not. The largest partitions only.
    """
    stretch = f.floor(f.col("at") / width).alias("stretch")
    rows = (
        events.where("event = 'published' AND nsqd IS NOT NULL AND partition IS NOT NULL")
        .groupBy("topic", "partition", "nsqd", stretch)
        .agg(f.count("*").alias("messages"), f.min("at").alias("begins"), f.max("at").alias("ends"))
        .orderBy("stretch", "topic", "partition")
        .limit(_MOST_ROWS)
        .collect()
    )
    return joined(rows)


def joined(rows: Iterable[Row]) -> list[Term]:
    """One term for what one nsqd took without another in between."""
    ordered = sorted(rows, key=lambda row: (row["topic"], row["partition"], row["begins"]))
    by_partition = [
        list(_join(part))
        for _, part in groupby(ordered, key=lambda row: (row["topic"], row["partition"]))
    ]
    by_partition.sort(key=lambda part: -sum(term.messages for term in part))
    shown = sorted(by_partition[:_MOST_PARTITIONS], key=lambda part: part[0][:2])
    return [term for part in shown for term in part]


def _join(rows: Iterable[Row]) -> Iterator[Term]:
    """*rows* of one partition, in the order of time."""
    for nsqd, part in groupby(rows, key=lambda row: row["nsqd"]):
        same = list(part)
        yield Term(
            same[0]["topic"],
            same[0]["partition"],
            nsqd,
            same[0]["begins"],
            max(row["ends"] for row in same),
            sum(row["messages"] for row in same),
        )


def slowest(lives: DataFrame, events: DataFrame) -> list[Life]:
    """Those that took longest from publish to finish."""
    found = lives.where("whole IS NOT NULL").orderBy(f.desc("whole"), *KEYS).limit(_SLOWEST)
    return _with_events(found.collect(), events)


def given_up(lives: DataFrame, events: DataFrame) -> tuple[list[Life], int]:
    """Those that were given up, as many as can be shown; and how many there are."""
    found = lives.where("gave_up > 0")
    shown = found.orderBy("born", *KEYS).limit(_MOST_LIVES)
    return _with_events(shown.collect(), events), found.count()


def _with_events(rows: Sequence[Row], events: DataFrame) -> list[Life]:
    if not rows:
        return []
    keys = {_values(row, KEYS) for row in rows}
    spark = events.sparkSession
    wanted = spark.createDataFrame(list(keys), "topic STRING, partition INT, internal_id STRING")
    order = Window.partitionBy(*KEYS).orderBy("at")
    found = (
        events.join(f.broadcast(wanted), list(KEYS))
        .where("at IS NOT NULL")
        .withColumn("number", f.row_number().over(order))
        .where(f.col("number") <= _MOST_EVENTS)
    )
    told: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    for row in found.orderBy("at").collect():
        told[_values(row, KEYS)].append(Event(*_values(row, Event._fields)))
    names = [name for name in Life._fields if name != "events"]
    return [
        Life(**{name: row[name] for name in names}, events=told[_values(row, KEYS)]) for row in rows
    ]


def _values(row: Row, names: Iterable[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)
