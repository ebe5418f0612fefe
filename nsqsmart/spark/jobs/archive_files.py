"""An archive: what the job ``archive`` writes, how others read it, and how it is compacted.

::

    OUT/topic=orders/date=2026-03-01/hour=7/part-....parquet
    OUT/_spark_metadata      which of these files count: Spark's own log
    OUT/_nsqsmart            checkpoint and spool, unless they are elsewhere

Compacting makes few large files of the hours that are over. An hour is replaced whole (Spark's
dynamic partition overwrite), and noted only after that: a run that is killed leaves hours that the
next one does again. What is noted is which files of the archive an hour was made of, so that late
messages make it be done again.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

from nsqsmart.errors import ConfigError
from nsqsmart.spark.jobs.runtime import Console
from nsqsmart.spark.schema import arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACES = ("topic", "date", "hour")
FILE_LOG = "_spark_metadata"
OWN = "_nsqsmart"
_SCHEMA = f"{spark_schema(headers=True)}, date DATE, hour INT"
_COLUMNS = (*(field.name for field in arrow_schema(headers=True)), "date", "hour")
_NEEDED = {"value", "topic", "timestamp"}
_FILE = "file:"

_PLACE = re.compile(r"/topic=([^/]+)/date=([0-9-]+)/hour=([0-9]+)/([^/]+)$")
_TOGETHER = 24
_NOTES = "topic STRING, date STRING, hour INT, digest STRING, noted TIMESTAMP"
_ORDER = (*PLACES, "partition", "offset", "internal_id", "timestamp_ns")


def local(path: str) -> Path | None:
    """*path* in this machine's file system; None if it is an URL of another one."""
    if path.startswith(_FILE):
        return Path("/" + path.removeprefix(_FILE).lstrip("/"))
    return None if "://" in path else Path(path)


def is_there(spark: SparkSession, path: str) -> bool:
    """Whether *path* exists, in whatever file system Spark reaches."""
    try:
        spark.read.text(path)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return False
        raise
    return True


def read_archive(spark: SparkSession, path: str, topics: Sequence[str] | None = None) -> DataFrame:
    """The rows of an archive, or of a compacted one, or of any such Parquet; all columns there are.

    Raises ConfigError if it is none, or has nothing of one of *topics*.
    """
    try:
        found = set(spark.read.parquet(path).columns)
    except AnalysisException as error:
        raise ConfigError(f"{path} is no archive: {_reason(error)}") from error
    missing = sorted(_NEEDED - found)
    if missing:
        raise ConfigError(f"{path} is no archive of messages: it has no column {missing[0]}")
    # With types given, a topic whose name is a number stays text.
    rows = (
        spark.read.schema(_SCHEMA)
        .parquet(path)
        .select(*(name for name in _COLUMNS if name in found))
    )
    if not topics:
        return rows
    held = {row[0] for row in rows.select("topic").distinct().collect()}
    unknown = [topic for topic in topics if topic not in held]
    if unknown:
        others = ", ".join(sorted(held)) or "no rows"
        raise ConfigError(f"{path} holds nothing of topic {unknown[0]!r}; it has {others}")
    return rows.where(rows["topic"].isin(list(topics)))


def _reason(error: AnalysisException) -> str:
    known = {
        "PATH_NOT_FOUND": "there is no such folder",
        "UNABLE_TO_INFER_SCHEMA": "there are no Parquet files in it",
    }
    return known.get(error.getCondition() or "", str(error).split("\n")[0])


class Hour(NamedTuple):
    """One hour of one topic."""

    topic: str
    date: str
    hour: int

    @property
    def end(self) -> datetime:
        """When it is over."""
        begin = datetime.fromisoformat(self.date).replace(tzinfo=UTC)
        return begin + timedelta(hours=self.hour + 1)


def compact(spark: SparkSession, chosen: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Rewrite what is over and has changed; says how much that was."""
    _check_target(chosen.out, chosen.compact)
    rows = read_archive(spark, chosen.out)
    hours = hours_of(rows.inputFiles())
    over = datetime.now(UTC) - timedelta(seconds=chosen.settle)
    closed = {hour: digest for hour, digest in hours.items() if hour.end <= over}
    noted = _noted(spark, chosen.compact)
    due = sorted(hour for hour, digest in closed.items() if noted.get(hour) != digest)
    console.say(
        f"compacting {chosen.out} to {chosen.compact}: {len(due)} hours, "
        f"{len(closed) - len(due)} unchanged, {len(hours) - len(closed)} not over"
    )
    for done in range(0, len(due), _TOGETHER):
        group = due[done : done + _TOGETHER]
        console.progress(f"{done} of {len(due)} hours")
        (
            rows.where(_within(group))
            .repartition(*PLACES)
            .sortWithinPartitions(*(name for name in _ORDER if name in rows.columns))
            .write.mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .option("maxRecordsPerFile", chosen.rows_per_file)
            .partitionBy(*PLACES)
            .parquet(chosen.compact)
        )
        _note(spark, chosen.compact, {hour: closed[hour] for hour in group})
    return {
        "into": chosen.compact,
        "hours": len(due),
        "unchanged": len(closed) - len(due),
        "open": len(hours) - len(closed),
    }


def hours_of(files: Sequence[str]) -> dict[Hour, str]:
    """A digest of the files of each hour; what is not in the folder of one is left out."""
    names: dict[Hour, list[str]] = defaultdict(list)
    for path in files:
        found = _PLACE.search(path)
        if found:
            topic, date, hour, name = found.groups()
            # Spark escapes what is special in a name, and then the path as an URL.
            names[Hour(unquote(unquote(topic)), date, int(hour))].append(name)
    return {
        hour: hashlib.sha256("\n".join(sorted(each)).encode()).hexdigest()
        for hour, each in names.items()
    }


def _check_target(out: str, target: str) -> None:
    source, into = local(out), local(target)
    if source is None or into is None:
        inside = f"{target.rstrip('/')}/".startswith(f"{out.rstrip('/')}/")
    else:
        inside = into.absolute().is_relative_to(source.absolute())
    if inside:
        raise ConfigError(f"--compact {target} is inside the archive {out}: give another folder")


def _within(group: list[Hour]) -> Column:
    """That a row is in one of these hours; files of others are not opened."""
    found = f.lit(False)  # noqa: FBT003 - a value
    for each in group:
        here = (f.col("topic") == each.topic) & (f.col("hour") == each.hour)
        found = found | (here & (f.col("date") == f.to_date(f.lit(each.date))))
    return found


def _notes(target: str) -> str:
    return f"{target.rstrip('/')}/{OWN}/compacted"


def _noted(spark: SparkSession, target: str) -> dict[Hour, str]:
    path = _notes(target)
    if not is_there(spark, path):
        return {}
    rows = spark.read.schema(_NOTES).json(path).orderBy("noted").collect()
    return {Hour(row["topic"], row["date"], row["hour"]): row["digest"] for row in rows}


def _note(spark: SparkSession, target: str, done: dict[Hour, str]) -> None:
    now = datetime.now(UTC)
    rows = [(*hour, digest, now) for hour, digest in done.items()]
    spark.createDataFrame(rows, _NOTES).coalesce(1).write.mode("append").json(_notes(target))
