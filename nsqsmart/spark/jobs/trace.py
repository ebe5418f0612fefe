"""``trace``: trace logs to the lives of messages, and a page that shows them."""

from __future__ import annotations

import argparse
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from nsqsmart import __version__
from nsqsmart.errors import ConfigError
from nsqsmart.spark.jobs.runtime import Console, open_session
from nsqsmart.spark.report.counting import (
    attempts,
    channels,
    given_up,
    histogram,
    minutes,
    parties,
    slowest,
    stretch,
    terms,
)
from nsqsmart.spark.report.events import read_events
from nsqsmart.spark.report.figures import PERCENTS, Figures
from nsqsmart.spark.report.lives import STATES, lives_of
from nsqsmart.spark.report.page import render

_CACHE = StorageLevel.MEMORY_AND_DISK
_NOT_SHOWN = ("offset", "size", "peer", "retries", "outcome")


def run(chosen: argparse.Namespace, console: Console) -> int:
    """Join and draw; 0 if there was anything to join."""
    if not chosen.out:
        raise ConfigError("--out is empty: name the file of the report")
    with open_session(chosen) as spark:
        return console.finish(trace(spark, chosen, console))


def trace(spark: SparkSession, chosen: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Write the report; returns the summary."""
    console.say(f"reading {', '.join(chosen.logs)}")
    events = read_events(spark, chosen.logs)
    if chosen.topic:
        events = events.where(f.col("topic").isin(chosen.topic) | f.col("event").isNull())
    events = events.drop(*_NOT_SHOWN).persist(_CACHE)
    lives = lives_of(events, chosen.late).persist(_CACHE)
    try:
        figures = _figures(events, lives, chosen, console)
        if chosen.table:
            console.progress("writing the table")
            lives.write.mode("overwrite").parquet(chosen.table)
    finally:
        lives.unpersist()
        events.unpersist()
    page = render(figures)
    out = Path(chosen.out)
    out.write_bytes(page)
    for each in figures.channels:
        states = ", ".join(f"{each.states.get(name, 0):,} {name}" for name in STATES)
        console.say(f"{each.name}: {each.messages:,} messages, {states}, {each.gave_up:,} given up")
    console.say(f"the report is {out}, {len(page) / 1024:.0f} KiB")
    return _summary(figures, out, len(page))


def _figures(
    events: DataFrame, lives: DataFrame, chosen: argparse.Namespace, console: Console
) -> Figures:
    kinds, dropped, lines = _kinds(events)
    console.progress(f"{lines:,} lines read")
    if not kinds:
        raise ConfigError(
            f"there is no trace event in {', '.join(chosen.logs)}: {lines:,} lines, and none is "
            "one of nsqsmart.trace or of an nsqd's [TRACE]"
        )
    published = lives.select("topic", "partition", "internal_id", "stored").where("stored > 0")
    begins, ends = lives.agg(f.min("born"), f.max("born")).collect()[0]
    width = stretch(begins, ends)
    lost, lost_count = given_up(lives, events)
    return Figures(
        made_at=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
        version=__version__,
        sources=chosen.logs,
        late=chosen.late,
        lines=lines,
        events=kinds,
        dropped=dropped,
        published=published.distinct().count(),
        failed=sum(count for name, count in kinds.items() if "publish_failed" in name),
        begins=begins,
        ends=ends,
        channels=channels(lives),
        histogram=histogram(lives),
        width=width,
        minutes=minutes(lives, width),
        attempts=attempts(lives),
        terms=terms(events, width),
        parties=parties(lives),
        slowest=slowest(lives, events),
        given_up=lost,
        given_up_count=lost_count,
        seconds=console.seconds,
    )


def _kinds(events: DataFrame) -> tuple[dict[str, int], dict[str, int], int]:
    """Lines by source and event, those left out by reason, and all lines."""
    unplaced = (f.col("internal_id").isNull() | f.col("partition").isNull()).alias("unplaced")
    kinds: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    lines = 0
    for row in events.groupBy("source", "event", unplaced).count().collect():
        lines += row["count"]
        if row["event"] is None:
            dropped["no trace event"] += row["count"]
            continue
        kinds[f"{row['event']} ({row['source']})"] += row["count"]
        if row["unplaced"] and row["event"] != "publish_failed":
            dropped[f"{row['event']} without an internal id or a partition"] += row["count"]
    return dict(sorted(kinds.items())), dict(sorted(dropped.items())), lines


def _summary(figures: Figures, out: Path, size: int) -> dict[str, Any]:
    return {
        "ok": True,
        "job": "trace",
        "report": str(out),
        "report_bytes": size,
        "lines": figures.lines,
        "dropped": figures.dropped,
        "published": figures.published,
        "publish_failed": figures.failed,
        "channels": [
            {
                "topic": each.topic,
                "channel": each.channel,
                "messages": each.messages,
                **{name: each.states.get(name, 0) for name in STATES},
                "delivered_again": each.again,
                "gave_up": each.gave_up,
                **{
                    f"{name}_us": {
                        f"p{percent}": value
                        for percent, value in zip(PERCENTS, values, strict=True)
                    }
                    for name, values in each.latencies.items()
                },
            }
            for each in figures.channels
        ],
    }
