"""The few messages that are shown one by one, with all their events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.window import Window

from nsqsmart.spark.jobs.lives import KEYS
from nsqsmart.spark.jobs.report.figures import Event, Life

_SLOWEST = 20
_MOST = 100
_EVENTS = 80


def slowest(lives: DataFrame, events: DataFrame) -> list[Life]:
    """Those that took longest from publish to finish."""
    found = lives.where("whole IS NOT NULL").orderBy(f.desc("whole"), *KEYS).limit(_SLOWEST)
    return _with_events(found.collect(), events)


def given_up(lives: DataFrame, events: DataFrame) -> tuple[list[Life], int]:
    """Those that were given up, as many as can be shown; and how many there are."""
    found = lives.where("gave_up > 0")
    shown = found.orderBy("born", *KEYS).limit(_MOST)
    return _with_events(shown.collect(), events), found.count()


def _with_events(rows: Sequence[Row], events: DataFrame) -> list[Life]:
    if not rows:
        return []
    keys = {tuple(row[name] for name in KEYS) for row in rows}
    spark = events.sparkSession
    wanted = spark.createDataFrame(list(keys), "topic STRING, partition INT, internal_id STRING")
    order = Window.partitionBy(*KEYS).orderBy("at")
    found = (
        events.join(f.broadcast(wanted), list(KEYS))
        .where("at IS NOT NULL")
        .withColumn("number", f.row_number().over(order))
        .where(f.col("number") <= _EVENTS)
    )
    told: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    for row in found.orderBy("at").collect():
        told[tuple(row[name] for name in KEYS)].append(_event(row))
    return [_life(row, told[tuple(row[name] for name in KEYS)]) for row in rows]


def _event(row: Row) -> Event:
    return Event(
        row["at"],
        row["source"],
        row["event"],
        row["channel"],
        row["attempts"],
        row["duration_us"],
        row["delay_ms"],
        row["client_id"],
        row["nsqd"],
        row["error"],
    )


def _life(row: Row, events: Sequence[Event]) -> Life:
    return Life(
        row["topic"],
        row["partition"],
        row["internal_id"],
        row["trace_id"],
        row["channel"],
        row["state"],
        row["attempts"] or 0,
        bool(row["gave_up"]),
        row["born"],
        row["whole"],
        events,
    )
