"""How fast messages get from an nsqd into Spark: against a PullSubscription, and against files.

python benchmarks/spark.py [--address ADDRESS] [--messages N] [--rounds N] [--rdy N]

The server is an original nsqd of the embedded cluster, in a process of its own; --address names
lookups of a real one, with one nsqd, on which the topic ``bench`` must not exist.

All contestants of all rounds read the same messages of 200 bytes, each on a channel of its own. A
Spark query runs on local[2] with AvailableNow and the options for a backlog (docs/spark.md): its
time is that of its batches, without the start of the session. CPU is that of this process and all
below it, the server's not.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

from harness import Sample, judge, report, shares

import nsqsmart
from nsqsmart.spark import session
from nsqsmart.spark.options import ReadOptions
from nsqsmart.spark.schema import arrow_schema
from nsqsmart.spark.source.filling import Reading, read
from nsqsmart.spark.source.survey import pull
from nsqsmart.spark.spool import slots as slot_module
from nsqsmart.spark.spool import store as store_module
from nsqsmart.spark.spool.plan import Task
from nsqsmart.spark.spool.slots import DoubtLedger, SlotLog
from nsqsmart.spark.spool.store import FileStore

BODY = 200
TOPIC, WARM = "bench", "warm"
PULL, NOOP, PARQUET, FILES = "PullSubscription", "Spark, noop", "Spark, Parquet", "files, noop"
GATES = {NOOP: 0.25}
BACKLOG = {"maxMessagesPerTrigger": "1000000", "pollTimeoutMs": "20000"}
_BATCH = 1000
_PATIENCE = 30.0
_LOOK_EVERY = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")
_WARM_UP = 5_000
_OTHERS: set[int] = set()
"""The server."""
_SERVER = """
import sys
from nsqsmart.embedded import Cluster
with Cluster(dialect="original", log=False, mem_queue_size=int(sys.argv[1])) as cluster:
    print(cluster.url, flush=True)
    sys.stdin.read()
"""


def publish(address: str, count: int) -> None:
    """*count* messages, all different."""
    with nsqsmart.Producer(address) as producer:
        for first in range(0, count, _BATCH):
            bodies = [b"%0200d" % number for number in range(first, min(first + _BATCH, count))]
            producer.publish_many(TOPIC, bodies)


def cpu() -> float:
    """Seconds of this process and all below it, dead ones that were waited for included."""
    above: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        above[int(entry.name)] = int(fields[1])
        used[int(entry.name)] = sum(map(int, fields[11:15])) / _TICKS
    mine = {os.getpid()}
    while more := {each for each, parent in above.items() if parent in mine} - mine - _OTHERS:
        mine |= more
    return sum(used[each] for each in mine & used.keys())


def settle(address: str, count: int) -> None:
    """Wait until every channel has its copy of all: to make them takes the server's time."""
    admin = nsqsmart.Admin(address)
    until = monotonic() + _PATIENCE * 4
    while any(
        channel.depth < count for topic in admin.stats(TOPIC).topics for channel in topic.channels
    ):
        if monotonic() > until:
            raise SystemExit(f"the channels did not get {count} messages each")
        sleep(_LOOK_EVERY)


# ------------------------------------------------------------------------------------ contestants


def plain(address: str, channel: str, count: int, rdy: int) -> Sample:
    """One PullSubscription, which finishes what it gets."""
    left = count
    begun, before = perf_counter(), cpu()
    with nsqsmart.PullSubscription(address, TOPIC, channel, max_in_flight=rdy) as source:
        while left:
            found = source.pull(rdy // 2, timeout=_PATIENCE)
            if not found:
                raise SystemExit(f"{left} of {count} messages did not come")
            source.finish(found)
            left -= len(found)
    return Sample(count / (perf_counter() - begun), (cpu() - before) / count * 1e6)


def run(frame: Any, count: int, folder: Path, sink: str) -> Sample:
    """A query to its end; *count* rows, or the benchmark ends."""
    before = cpu()
    query = (
        frame.writeStream.format(sink)
        .option("checkpointLocation", str(folder / f"checkpoint-{sink}"))
        .option("path", str(folder / "out"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    used = cpu() - before
    batches = [each for each in query.recentProgress if each.numInputRows]
    rows = sum(each.numInputRows for each in batches)
    if rows != count:
        raise SystemExit(f"{sink}: {rows} rows of {count} messages")
    seconds = sum(each.durationMs["triggerExecution"] for each in batches) / 1000
    return Sample(count / seconds, used / count * 1e6)


class Round:
    """One turn of everybody."""

    def __init__(self, spark: Any, address: str, count: int, rdy: int, number: int) -> None:
        self.spark, self.address, self.count, self.rdy = spark, address, count, rdy
        self._number = number

    def channel(self, place: int) -> str:
        return f"round{self._number}-{place}"

    def stream(self, channel: str, folder: Path) -> Any:
        options = {
            "address": self.address,
            "subscribe": TOPIC,
            "channel": channel,
            "spoolLocation": str(folder / "spool"),
            "maxInFlight": str(self.rdy),
            "minPartitions": "2",
            **BACKLOG,
        }
        return self.spark.readStream.format("nsq").options(**options).load()

    def samples(self) -> dict[str, Sample]:
        """Everybody's; the files are what Parquet has written."""
        found = {PULL: plain(self.address, self.channel(0), self.count, self.rdy)}
        with folder() as place:
            found[NOOP] = run(self.stream(self.channel(1), place), self.count, place, "noop")
        with folder() as place:
            stream = self.stream(self.channel(2), place)
            found[PARQUET] = run(stream, self.count, place, "parquet")
            written = str(place / "out")
            schema = self.spark.read.parquet(written).schema
            files = self.spark.readStream.schema(schema).parquet(written)
            found[FILES] = run(files, self.count, place, "noop")
        return found


@contextmanager
def serving(address: str | None, count: int) -> Iterator[str]:
    """The address of a server that keeps *count* messages in memory."""
    if address:
        yield address
        return
    command = [sys.executable, "-c", _SERVER, str(2 * count)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        _OTHERS.add(process.pid)
        yield process.stdout.readline().strip()
        process.stdin.close()


@contextmanager
def folder() -> Iterator[Path]:
    """An empty one."""
    made = Path(tempfile.mkdtemp())
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


# ---------------------------------------------------------------------------------- what it costs


def costs(address: str, channel: str, count: int, rdy: int) -> dict[str, float]:
    """The share of each kind of work in one task, in this process and without Spark."""
    spent: Counter[str] = Counter()
    with folder() as place:
        given = {"address": address, "subscribe": TOPIC, "channel": channel}
        options = ReadOptions.parse(
            {
                **given,
                "spoolLocation": str(place),
                "maxInFlight": str(rdy),
                "pollTimeoutMs": "900000",
            }
        )
        (nsqd,) = {each.nsqd for each in nsqsmart.Admin(address).stats(TOPIC).topics}
        task = Task(TOPIC, None, nsqd, 0, count)
        store = FileStore(str(place))
        store.make_folder("task")
        store.make_folder("doubt")
        slots = SlotLog(store, "task", arrow_schema(headers=False), None)

        def connect() -> Any:
            return clocked_source(pull(options, task), spent)

        with clocked(spent):
            begun = perf_counter()
            rows = sum(
                map(len, read(Reading(task, slots, DoubtLedger(store, "doubt"), options, connect)))
            )
            total = perf_counter() - begun
    if rows != count:
        raise SystemExit(f"{rows} rows of {count} messages")
    spent["other"] = total - sum(spent.values())
    return {name: seconds / total for name, seconds in spent.items()}


def clocked_source(source: nsqsmart.PullSubscription, spent: Counter[str]) -> Any:
    """*source*, whose calls are timed."""
    for name in ("pull", "finish", "drain", "open"):
        setattr(source, name, timer(getattr(source, name), spent, "socket"))
    return source


@contextmanager
def clocked(spent: Counter[str]) -> Iterator[None]:
    """Time what the spool does."""
    from nsqsmart.spark.source import filling

    places: list[tuple[Any, str, str]] = [
        (store_module.FileStore, "put_new", "files and fsync"),
        (store_module.FileStore, "get", "files and fsync"),
        (filling, "to_batch", "Arrow"),
        (slot_module, "encode", "Arrow"),
        (slot_module, "decode", "Arrow"),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    for owner, name, what in places:
        setattr(owner, name, timer(getattr(owner, name), spent, what))
    try:
        yield
    finally:
        for owner, name, was in before:
            setattr(owner, name, was)


def timer(call: Callable[..., Any], spent: Counter[str], what: str) -> Callable[..., Any]:
    def timed(*given: Any, **named: Any) -> Any:
        begun = perf_counter()
        try:
            return call(*given, **named)
        finally:
            spent[what] += perf_counter() - begun  # type: ignore[assignment]

    return timed


def main() -> int:
    """Run the rounds; 1 if a gate is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--address", help="lookups of a real server")
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rdy", type=int, default=2500)
    chosen = parser.parse_args()
    count = chosen.messages
    with serving(chosen.address, count) as address, folder() as place:
        make_channels(address, chosen.rounds)
        publish(address, count)
        settle(address, count)
        spark = session("benchmark", spark_master="local[2]", spark_ui_enabled="false")
        spark.sparkContext.setLogLevel("ERROR")
        warm(spark, address, place)
        rounds = [
            Round(spark, address, count, chosen.rdy, number).samples()
            for number in range(chosen.rounds)
        ]
        found = costs(address, "costs", count, chosen.rdy)
        spark.stop()
    ratios = report(f"Spark, {count:,} messages of {BODY} bytes, RDY {chosen.rdy}", rounds, PULL)
    least, middle, most = shares(rounds, NOOP, FILES)
    print(f"  {NOOP} against {FILES}: {middle:.2f} ({least:.2f} .. {most:.2f})")
    print("  one task: " + ", ".join(f"{name} {each:.0%}" for name, each in sorted(found.items())))
    return judge(GATES, ratios)


def make_channels(address: str, rounds: int) -> None:
    """Before the messages, so that each has all of them."""
    admin = nsqsmart.Admin(address)
    admin.create_topic(WARM)
    admin.create_channel(WARM, "all")
    admin.create_topic(TOPIC)
    for number in range(rounds):
        for place in range(3):
            admin.create_channel(TOPIC, f"round{number}-{place}")
    admin.create_channel(TOPIC, "costs")


def warm(spark: Any, address: str, place: Path) -> None:
    """The first query of a session pays for its classes, and for the workers."""
    with nsqsmart.Producer(address) as producer:
        producer.publish_many(WARM, [b"x"] * _WARM_UP)
    options = {"address": address, "subscribe": WARM, "channel": "all"}
    stream = spark.readStream.format("nsq").options(**options, minPartitions="2")
    frame = stream.option("spoolLocation", str(place / "spool")).load()
    run(frame, _WARM_UP, place, "parquet")
    written = str(place / "out")
    files = spark.readStream.schema(spark.read.parquet(written).schema).parquet(written)
    run(files, _WARM_UP, place, "noop")


if __name__ == "__main__":
    sys.exit(main())
