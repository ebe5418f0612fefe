"""``demo``: all jobs in a row, on this machine, with nothing installed but Java."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Self

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import nsqsmart
from nsqsmart.embedded import Cluster
from nsqsmart.errors import ConfigError
from nsqsmart.spark.jobs import demo_consumer
from nsqsmart.spark.jobs.archive import ArchiveQuery
from nsqsmart.spark.jobs.archive_files import read_archive
from nsqsmart.spark.jobs.demo_consumer import traced_to
from nsqsmart.spark.jobs.order_audit import audit
from nsqsmart.spark.jobs.parser import make_parser
from nsqsmart.spark.jobs.replay import replay
from nsqsmart.spark.jobs.runtime import Console, open_session
from nsqsmart.spark.jobs.trace import trace

_FIRST, _SECOND = "orders", "orders-again"
_CONSUMER, _ARCHIVE = "billing", "archive"
_PARTITIONS = 2
_KEYS = 100
_LATE = "30s"


def run(chosen: argparse.Namespace, console: Console) -> int:
    """Tell the story; 0 if every check holds."""
    with (
        _folder(chosen.keep) as folder,
        open_session(chosen) as spark,
        Story(spark, folder, chosen.messages, console) as story,
    ):
        return console.finish(story.tell())


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    if keep is None:
        with TemporaryDirectory(prefix="nsqsmart-demo-") as name:
            yield Path(name)
        return
    folder = Path(keep)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ConfigError(f"--keep {folder} is not empty")
    yield folder


class Story:
    """A cluster, and everything that happens to its messages."""

    def __init__(self, spark: SparkSession, folder: Path, count: int, console: Console) -> None:
        self._spark = spark
        self._folder = folder
        self._count = count
        self._console = console
        self._quiet = Console(as_json=True, silent=True)
        self._checks: dict[str, bool] = {}
        self._took: list[dict[str, Any]] = []
        self._began = monotonic()
        self._requeued = 0

    def __enter__(self) -> Self:
        self._cluster = Cluster(dialect="redesigned", nsqds=2, lookupds=1, log=False)
        return self

    def __exit__(self, *_error: object) -> None:
        self._cluster.close()

    def tell(self) -> dict[str, Any]:
        """Everything, in order; the summary."""
        for topic, channels in ((_FIRST, (_CONSUMER, _ARCHIVE)), (_SECOND, (_ARCHIVE,))):
            self._cluster.create_topic(topic, partitions=_PARTITIONS)
            for channel in channels:
                self._cluster.create_channel(topic, channel)
        self._live()
        first = self._archive(_FIRST)
        figures = self._report()
        self._replay(first)
        second = self._archive(_SECOND)
        self._compare(first, second)
        for topic, out in ((_FIRST, first), (_SECOND, second)):
            self._audit(topic, out)
        for name, good in self._checks.items():
            self._console.say(f"  {'✓' if good else '✗'} {name}")
        ok = all(self._checks.values())
        self._console.say("all checks hold" if ok else "A CHECK FAILED")
        return {
            "ok": ok,
            "job": "demo",
            "messages": self._count,
            "requeued": self._requeued,
            "steps": self._took,
            "checks": self._checks,
            "report_bytes": figures["report_bytes"],
            "channels": figures["channels"],
        }

    def _step(self, name: str, text: str) -> None:
        seconds, self._began = monotonic() - self._began, monotonic()
        self._took.append({"step": name, "seconds": round(seconds, 1)})
        self._console.say(f"{len(self._took)} {name:<10} {text} ({seconds:.1f} s)")

    # ------------------------------------------------------------------------- publish and consume

    def _live(self) -> None:
        """Publish and consume at the same time, both with a trace log."""
        self._step("begin", "two nsqds, topics of two partitions, and Spark")
        log = str(self._folder / "consumed.jsonl")
        consumer = subprocess.Popen(  # noqa: S603 - ourselves
            [
                *(sys.executable, "-m", demo_consumer.__name__),
                *(self._cluster.url, _FIRST, _CONSUMER, log, str(self._count)),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            with traced_to(self._folder / "published.jsonl", _FIRST):
                accepted = self._publish()
            figures = self._await_consumer(consumer)
        finally:
            consumer.kill()
            consumer.wait()
        finished, self._requeued = figures["finished"], figures["requeued"]
        self._checks["every message was accepted"] = accepted == self._count
        self._checks["every message was finished by the consumer"] = finished == self._count
        self._step(
            "live",
            f"{accepted:,} traced messages published by key, and consumed by another process; "
            f"{self._requeued:,} failed at first and came again",
        )

    def _publish(self) -> int:
        pending = []
        with nsqsmart.Producer(self._cluster.url) as producer:
            for number in range(self._count):
                key = f"customer-{number % _KEYS}"
                body = b'{"customer":"%s","number":%d}' % (key.encode(), number)
                pending.append(producer.publish_async(_FIRST, body, key=key, trace=True))
                if not number % 1000:
                    self._console.progress(f"{number:,} published")
            return sum(each.result().count for each in pending)

    def _await_consumer(self, consumer: subprocess.Popen[str]) -> dict[str, int]:
        """Until it has ended; what it said last."""
        assert consumer.stdout is not None  # noqa: S101 - as it was started
        figures = {"finished": 0, "requeued": 0}
        with consumer.stdout as lines:
            for line in lines:
                figures |= json.loads(line)
                self._console.progress(f"{figures['handled']:,} consumed")
        return figures

    # ------------------------------------------------------------------------------------ the jobs

    def _archive(self, topic: str) -> Path:
        out = self._folder / topic
        told = ("--address", self._cluster.url, "--topic", topic, "--channel", _ARCHIVE)
        done = ArchiveQuery(
            self._spark,
            _parse("archive", *told, "--out", str(out), "--once", "--positions"),
            self._quiet,
        ).run()
        self._checks[f"{topic}: every message is in the archive"] = done["rows"] == self._count
        self._step("archive", f"{done['rows']:,} rows of {topic} to Parquet")
        return out

    def _report(self) -> dict[str, Any]:
        page = self._folder / "report.html"
        logs = [str(self._folder / name) for name in ("published.jsonl", "consumed.jsonl")]
        told = _parse("trace", *logs, "--late", _LATE, "--out", str(page))
        figures = trace(self._spark, told, self._quiet)
        mine = next(each for each in figures["channels"] if each["channel"] == _CONSUMER)
        self._checks["the trace has every message"] = figures["published"] == self._count
        self._checks["the trace knows what became of each"] = mine["messages"] == self._count
        self._checks["none is unconsumed in the trace"] = mine["unconsumed"] == 0
        self._checks["the trace has every delivery that failed"] = (
            mine["delivered_again"] == self._requeued
        )
        p50, p99 = (mine["whole_us"][name] or 0 for name in ("p50", "p99"))
        self._step(
            "trace",
            f"{figures['lines']:,} lines, a report of {figures['report_bytes'] / 1024:.0f} KiB; "
            f"publish to finish p50 {p50 / 1000:,.0f} ms, p99 {p99 / 1000:,.0f} ms",
        )
        return figures

    def _replay(self, source: Path) -> None:
        told = ("--address", self._cluster.url, "--to-topic", _SECOND, "--keep-partitions")
        done = replay(self._spark, _parse("replay", str(source), *told), self._quiet)
        self._checks["every row was replayed"] = done["rows"] == self._count
        self._step("replay", f"{done['rows']:,} rows to {_SECOND}, partitions and order kept")

    def _compare(self, first: Path, second: Path) -> None:
        """Bodies, partitions and trace ids, as one sum each."""
        sums = []
        for out in (first, second):
            row = f.xxhash64("value", "partition", "trace_id").cast("decimal(20,0)")
            sums.append(read_archive(self._spark, str(out)).agg(f.sum(row)).collect()[0][0])
        self._checks["both archives hold the same, trace ids too"] = sums[0] == sums[1]
        self._step("compare", "bodies, partitions and trace ids of both archives")

    def _audit(self, topic: str, out: Path) -> None:
        told = _parse(
            "order-audit",
            str(out),
            *("--key", "get_json_object(CAST(value AS STRING), '$.customer')"),
            *("--sequence", "CAST(get_json_object(CAST(value AS STRING), '$.number') AS BIGINT)"),
        )
        found = audit(self._spark, told, self._quiet)
        wrong = ("duplicates", "inversions", "holes", "key_inversions")
        names = ", ".join(f"{found[name]} {name.replace('_', ' ')}" for name in wrong)
        held = found["with_offsets"] == self._count and not any(found[name] for name in wrong)
        self._checks[f"{topic}: order held, nothing is missing or twice"] = held
        self._step("audit", f"{topic}: {found['messages']:,} rows, {names}")


def _parse(*arguments: str) -> argparse.Namespace:
    return make_parser().parse_args(arguments)
