"""``archive``: topics to Parquet, and many small files of closed hours to few."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from nsqsmart.config import variable
from nsqsmart.errors import ConfigError
from nsqsmart.spark.jobs.archive_files import FILE_LOG, OWN, PLACES, compact, is_there, local
from nsqsmart.spark.jobs.runtime import (
    Console,
    admin_of,
    check_topics,
    open_session,
    source_options,
)
from nsqsmart.terminal import signals_to

_TICK = 0.25
_PATIENCE = 60.0


def run(chosen: argparse.Namespace, console: Console) -> int:
    """Archive, compact, or both; 0 if all went well."""
    if not chosen.topic and not chosen.compact:
        raise ConfigError("give --topic to archive, or --compact to compact, or both")
    if chosen.topic and chosen.compact and not chosen.once:
        raise ConfigError("--compact goes with --once: an archive that goes on is compacted beside")
    if chosen.topic:
        # Before Spark is started, which takes its time.
        check_topics(admin_of(chosen.address, chosen.client), chosen.topic)
    summary: dict[str, Any] = {"ok": True, "job": "archive", "out": chosen.out}
    with open_session(chosen) as spark:
        if chosen.topic:
            summary |= ArchiveQuery(spark, chosen, console).run()
        if chosen.compact:
            summary["compacted"] = compact(spark, chosen, console)
    return console.finish(summary)


class ArchiveQuery:
    """One run of the query, until everything is drained or a signal ends it."""

    def __init__(self, spark: SparkSession, chosen: argparse.Namespace, console: Console) -> None:
        self._spark = spark
        self._chosen = chosen
        self._console = console
        own = f"{chosen.out.rstrip('/')}/{OWN}"
        self._checkpoint = chosen.checkpoint or f"{own}/checkpoint"
        self._spool = chosen.spool or _shared(f"{own}/spool")
        self._rows: dict[tuple[int, str], int] = {}
        self._told = False

    def run(self) -> dict[str, Any]:
        """What was done; raises what the query failed of."""
        self._check_out()
        self._console.say(
            f"archiving {', '.join(self._chosen.topic)} (channel {self._chosen.channel}) "
            f"to {self._chosen.out}"
        )
        # Ctrl-C and SIGTERM do nothing else meanwhile.
        with signals_to(self._end):
            query = self._start()
            self._watch(query)
        self._count(query)
        if (error := query.exception()) is not None:
            raise error
        rows, batches = sum(self._rows.values()), sum(map(bool, self._rows.values()))
        why = "ended by a signal" if self._told else "drained"
        self._console.say(f"{why}: {rows:,} rows in {batches} batches")
        return {
            "topics": self._chosen.topic,
            "channel": self._chosen.channel,
            "rows": rows,
            "batches": batches,
            "ended": "signal" if self._told else "drained",
        }

    def _end(self) -> None:
        self._told = True

    def _check_out(self) -> None:
        """Refuse what would lose messages, or mix them with something else."""
        out = self._chosen.out
        folder = local(out)
        if folder is not None and folder.exists():
            _check_folder(folder)
        logged = is_there(self._spark, f"{out}/{FILE_LOG}")
        if logged and not is_there(self._spark, f"{self._checkpoint}/metadata"):
            # Spark numbers batches anew and passes over those that the log has: finished, not kept.
            raise ConfigError(
                f"{out} was written with another checkpoint than {self._checkpoint}, and Spark "
                "would leave out the first batches of a new one: give its --checkpoint, or "
                "another --out"
            )

    def _start(self) -> StreamingQuery:
        chosen = self._chosen
        rows = (
            self._spark.readStream.format("nsq")
            .options(**self._options())
            .load()
            .withColumn("date", f.to_date("timestamp"))
            .withColumn("hour", f.hour("timestamp"))
        )
        writer = (
            rows.writeStream.format("parquet")
            .partitionBy(*PLACES)
            .option("path", chosen.out)
            .option("checkpointLocation", self._checkpoint)
        )
        if chosen.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(chosen.every * 1000)} milliseconds").start()

    def _options(self) -> dict[str, Any]:
        chosen = self._chosen
        options: dict[str, Any] = {
            "address": chosen.address or os.environ.get(variable("url"), ""),
            "subscribe": ",".join(chosen.topic),
            "channel": chosen.channel,
            "spoolLocation": self._spool,
            "startingOffsets": chosen.start,
            "includeHeaders": str(chosen.headers).lower(),
            "maxMessagesPerTrigger": chosen.most,
            **source_options(chosen.client),
        }
        if chosen.positions:
            options["nsq.positions"] = "true"
        return options

    def _watch(self, query: StreamingQuery) -> None:
        """Until it has ended, or it was told to and has put away what it was at."""
        while query.isActive and not self._told:
            sleep(_TICK)
            self._count(query)
            self._console.progress(f"{sum(self._rows.values()):,} rows")
        if not query.isActive:
            return
        self._console.say("ending: the batch under way is written first")
        latest = _latest(query)
        until = monotonic() + _PATIENCE
        while query.isActive and monotonic() < until:
            if not query.status["isTriggerActive"] or _latest(query) != latest:
                break
            sleep(_TICK)
        query.stop()

    def _count(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            self._rows[progress.batchId, progress.timestamp] = progress.numInputRows


def _latest(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress.batchId)


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(f"--out {folder} is not a folder")
    there = {each.name for each in folder.iterdir()}
    if there and not there & {FILE_LOG, OWN}:
        raise ConfigError(
            f"--out {folder} is not empty and not an archive: it holds {min(there)!r}"
        )


def _shared(path: str) -> str:
    folder = local(path)
    if folder is None:
        raise ConfigError(
            f"the spool cannot be at {path}: give --spool, a folder that driver and executors share"
        )
    return str(folder.absolute())
