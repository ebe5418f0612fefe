"""Which nsqd took the messages of a partition, and when: where that changes, its leader moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from nsqsmart.spark.jobs.report.figures import Term

_MOST_PARTITIONS = 40
_MOST_ROWS = 20_000


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
