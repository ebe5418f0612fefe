"""``replay``: an archive back to NSQ: one task for each partition, its rows in their order."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from nsqsmart import Admin
from nsqsmart.config import variable
from nsqsmart.errors import ConfigError
from nsqsmart.spark.jobs.archive_files import OWN, local, read_archive
from nsqsmart.spark.jobs.runtime import (
    Console,
    admin_of,
    check_topics,
    open_session,
    source_options,
)

_ORDER = ("offset", "internal_id", "timestamp_ns")
_UNTRACED = 0


class Origin(NamedTuple):
    """Where messages came from, and how many there are to replay."""

    topic: str
    partition: int | None
    rows: int


def run(chosen: argparse.Namespace, console: Console) -> int:
    """Replay; 0 if every row was taken."""
    if chosen.since and chosen.until and chosen.since >= chosen.until:
        raise ConfigError(f"--since {chosen.since} is not before --until {chosen.until}")
    with open_session(chosen) as spark:
        return console.finish(replay(spark, chosen, console))


def replay(spark: SparkSession, chosen: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Publish what was chosen; returns the summary, which is the manifest as well."""
    rows = _within(read_archive(spark, chosen.archive, chosen.topic), chosen)
    origins = _origins(rows)
    total = sum(each.rows for each in origins)
    targets = sorted({chosen.to_topic or each.topic for each in origins})
    _check_targets(chosen, targets, origins)
    console.say(
        f"replaying {total:,} rows of {len(origins)} partitions "
        f"to {', '.join(targets) or 'nothing'}"
        + (f", at most {chosen.rate:,} a second" if chosen.rate else "")
    )
    manifest = _manifest(chosen, origins, total)
    path = _path(chosen)
    _write(path, {**manifest, "state": "begun"})
    if origins:
        _publish(_prepared(rows, chosen, origins), chosen, len(origins))
    ended = datetime.now(UTC).isoformat()
    _write(path, {**manifest, "state": "finished", "ended": ended})
    console.say(f"replayed {total:,} rows; the manifest is {path}")
    return {"ok": True, "job": "replay", **manifest, "manifest": str(path)}


def _within(rows: DataFrame, chosen: argparse.Namespace) -> DataFrame:
    if chosen.since:
        rows = rows.where(f.col("timestamp") >= f.lit(chosen.since))
        if "date" in rows.columns:  # so that Spark opens no file of another day
            rows = rows.where(f.col("date") >= f.lit(chosen.since.date()))
    if chosen.until:
        rows = rows.where(f.col("timestamp") < f.lit(chosen.until))
        if "date" in rows.columns:
            rows = rows.where(f.col("date") <= f.lit(chosen.until.date()))
    return rows


def _origins(rows: DataFrame) -> list[Origin]:
    counts = rows.groupBy("topic", _partition(rows).alias("partition")).count().collect()
    return sorted(
        (Origin(row["topic"], row["partition"], row["count"]) for row in counts),
        key=lambda each: (each.topic, -1 if each.partition is None else each.partition),
    )


def _partition(rows: DataFrame) -> Column:
    """The partition it came from; null on an original nsqd, and where there is no such column."""
    return f.col("partition") if "partition" in rows.columns else f.lit(None).cast("int")


def _check_targets(
    chosen: argparse.Namespace, targets: Sequence[str], origins: Sequence[Origin]
) -> None:
    """Refuse now what would fail in every task."""
    if chosen.keep_partitions and any(each.partition is None for each in origins):
        raise ConfigError(
            f"--keep-partitions: {chosen.archive} has messages of an original nsqd, which have no "
            "partition"
        )
    admin = admin_of(chosen.address, chosen.client)
    if "nsq+lookupd" not in repr(admin) and "nsqs+lookupd" not in repr(admin):
        return  # nsqds themselves: there is no lookup to ask
    redesigned = any(str(each.dialect) == "redesigned" for each in admin.nodes())
    if redesigned:
        # An original cluster makes a topic when it is first published to.
        check_topics(admin, targets)
    elif not chosen.drop_trace_ids or chosen.keep_partitions:
        _refuse_original(chosen, origins)
    if chosen.keep_partitions:
        _check_partitions(admin, chosen, targets, origins)


def _refuse_original(chosen: argparse.Namespace, origins: Sequence[Origin]) -> None:
    if chosen.keep_partitions:
        raise ConfigError("--keep-partitions: the target is an original cluster and has none")
    if any(each.partition is not None for each in origins):
        raise ConfigError(
            "the target is an original cluster, which cannot trace: give --drop-trace-ids"
        )


def _check_partitions(
    admin: Admin, chosen: argparse.Namespace, targets: Sequence[str], origins: Sequence[Origin]
) -> None:
    for topic in targets:
        there = admin.topology(topic).partition_num
        sources = [each for each in origins if (chosen.to_topic or each.topic) == topic]
        highest = max((each.partition or 0 for each in sources), default=0)
        if highest >= there:
            raise ConfigError(
                f"--keep-partitions: the archive has partition {highest}, and topic {topic!r} has "
                f"{there} partitions only"
            )


def _prepared(rows: DataFrame, chosen: argparse.Namespace, origins: Sequence[Origin]) -> DataFrame:
    """The columns that the sink takes, one task for each origin, in order."""
    number = f.lit(0)
    for task, origin in enumerate(origins):
        here = (f.col("topic") == origin.topic) & f.col("_partition").eqNullSafe(
            f.lit(origin.partition)
        )
        number = f.when(here, f.lit(task)).otherwise(number)
    ordered = (
        rows.withColumn("_partition", _partition(rows))
        .withColumn("_task", number)
        .repartitionById(len(origins), "_task")
        .sortWithinPartitions(*(name for name in _ORDER if name in rows.columns))
    )
    topic = f.lit(chosen.to_topic) if chosen.to_topic else f.col("topic")
    columns = [f.col("value"), topic.alias("topic")]
    if chosen.keep_partitions:
        columns.append(f.col("partition"))
    if "trace_id" in rows.columns and not chosen.drop_trace_ids:
        columns.append(f.nullif("trace_id", f.lit(_UNTRACED)).alias("trace_id"))
    if "headers" in rows.columns and not chosen.drop_headers:
        columns.append(f.col("headers"))
    return ordered.select(*columns)


def _publish(rows: DataFrame, chosen: argparse.Namespace, tasks: int) -> None:
    options = source_options(chosen.client)
    writer = rows
    if chosen.rate:
        # Each task has its share: fewer of them than messages a second.
        tasks = min(tasks, chosen.rate)
        writer = rows.coalesce(tasks)
        options = {**options, "publishRate": str(chosen.rate // tasks)}
    address = chosen.address or os.environ.get(variable("url"), "")
    writer.write.format("nsq").options(address=address, **options).mode("append").save()


def _manifest(chosen: argparse.Namespace, origins: Sequence[Origin], total: int) -> dict[str, Any]:
    return {
        "archive": chosen.archive,
        "to_topic": chosen.to_topic,
        "since": chosen.since and chosen.since.isoformat(),
        "until": chosen.until and chosen.until.isoformat(),
        "keep_partitions": chosen.keep_partitions,
        "began": datetime.now(UTC).isoformat(),
        "rows": total,
        "partitions": [each._asdict() for each in origins],
        "guarantee": "at least once",
    }


def _path(chosen: argparse.Namespace) -> Path:
    if chosen.manifest:
        return Path(chosen.manifest)
    folder = local(chosen.archive)
    if folder is None:
        raise ConfigError(f"no manifest can be written beside {chosen.archive}: give --manifest")
    now = datetime.now(UTC)
    return folder / OWN / "replays" / f"{now:%Y%m%dT%H%M%S%fZ}.json"


def _write(path: Path, manifest: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(json.dumps(manifest, indent=2) + "\n")
    beside.replace(path)
