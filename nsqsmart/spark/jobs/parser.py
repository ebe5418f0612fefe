"""The flags of every job, and what their values mean. Nothing here needs Spark."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from nsqsmart import __version__
from nsqsmart.errors import ConfigError
from nsqsmart.names import check_topic

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

_ARCHIVE = """\
Drain topics into Parquet files, by topic, date and hour of publishing (UTC):

  OUT/topic=orders/date=2026-03-01/hour=7/part-....parquet

A message is finished on its nsqd once it is safe in the spool, and is in the files once, whatever
is killed and restarted; only what nsqd itself delivers again after that comes twice. Read them
with Spark, which passes over files of a run that was killed, or compact them first.

The channel is for this job alone. On a redesigned cluster a new channel begins at the end of the
topic: --start earliest begins with what there is.

--compact DIR rewrites the hours that are over into DIR, one file an hour or a few, rows in order;
OUT stays as it is. What has not changed since the last time is passed over, so it may be killed
and run again. Without --topic it does nothing else.
"""
_LAG = """\
Ask every nsqd for its figures and print them by topic, partition, nsqd and channel: what waits,
what is in flight, what is put off, and how often messages were requeued or not answered in time.
Needs no Spark, unless the figures are to go to Parquet (--out).

Exit code 75 if an nsqd gave no figures: those of the others are printed.
"""
_REPLAY = """\
Publish what an archive holds, at least once: what a task had published before it failed stays
published and comes again.

Trace ids are kept. With --keep-partitions a message goes to the partition it came from, and the
messages of a partition go in their order (by offset, else internal id, else time); without, NSQ
spreads them, and there is no order to keep.

A manifest beside the archive, in ARCHIVE/_nsqsmart/replays, says which window was replayed and how
many rows of each partition; its state is "begun" until the last message was taken.
"""
_ORDER_AUDIT = """\
Look through an archive, or through trace logs, partition by partition, for

  inversions  an internal id that falls while the offset rises; with --key and --sequence a
              sequence that falls within a key
  holes       a message that does not begin where the one before it ends (offset + size)
  duplicates  the same message twice (by topic, partition and internal id; of an original nsqd by
              nsqd and message id); in trace logs: finished twice in one channel

Inversions by id and holes need offsets: archive with --positions, or trace logs of a publisher.
--key and --sequence are SQL expressions over the columns of the archive:

  --key "get_json_object(CAST(value AS STRING), '$.customer')"
  --sequence "CAST(get_json_object(CAST(value AS STRING), '$.number') AS BIGINT)"

Exit code 1 if order was violated; with --strict also for holes and duplicates.
"""
_TRACE = """\
Join trace logs into the life of every traced message, in every channel of its topic:

  ok           finished at the first delivery
  redelivered  delivered more than once, and finished
  unconsumed   published, and not finished as far as the logs go
  late         finished, and later than --late SECONDS after it was published

LOG is a file, a folder or a pattern: what producers and consumers write on the logger
nsqsmart.trace, and the logs of redesigned nsqds, whose [TRACE] lines say when a message was stored
and fill in for consumers that keep no log. Other lines are counted and left out. Events are
joined by topic, partition and internal id, never by trace id alone.

The report is one HTML file without scripts, under 500 KB whatever the logs hold.
"""
_DEMO = """\
An embedded redesigned cluster in this process; traced messages are published, by key, and
consumed, some of them twice; the topic is archived to Parquet, the trace logs become a report, the
archive is replayed into a second topic, and both are audited. Every count is checked.

Exit code 1 if a check fails.
"""


def _add_archive(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", required=True, help="the archive: a folder, or an URL that Spark can write to"
    )
    _add_topics(parser, "what to drain; may be repeated, or have commas")
    parser.add_argument("--channel", default="archive", help="a channel of its own (archive)")
    parser.add_argument(
        "--once", action="store_true", help="drain what there is now, and end; else until Ctrl-C"
    )
    _add_seconds(parser, "--every", "write files so often (60)", default=60.0)
    parser.add_argument(
        "--start",
        choices=("stored", "earliest", "latest"),
        default="stored",
        help="where a new archive begins: what the channel holds (stored); others on a "
        "redesigned cluster only",
    )
    parser.add_argument("--headers", action="store_true", help="with a column for headers")
    parser.add_argument(
        "--positions",
        action="store_true",
        help="with the offset and size of every message, for order-audit; redesigned only",
    )
    parser.add_argument("--most", type=_count, default=200_000, help="messages of a batch (200000)")
    parser.add_argument("--checkpoint", metavar="DIR", help="(OUT/_nsqsmart/checkpoint)")
    parser.add_argument(
        "--spool",
        metavar="DIR",
        help="a folder that driver and executors share (OUT/_nsqsmart/spool)",
    )
    parser.add_argument("--compact", metavar="DIR", help="rewrite the hours that are over into DIR")
    _add_seconds(parser, "--settle", "an hour is over so long after its end (600)", default=600.0)
    _add_count(parser, "--rows-per-file", "(5000000)", default=5_000_000)


def _add_lag(parser: argparse.ArgumentParser) -> None:
    _add_topics(parser, "of these alone; may be repeated, or have commas (all)")
    parser.add_argument("--channel", help="of this channel alone (all)")
    _add_count(parser, "--samples", "ask so many times (1)", default=1)
    _add_seconds(parser, "--every", "so often (10)", default=10.0)
    parser.add_argument("--out", help="append the figures to this Parquet folder, with Spark")


def _add_replay(parser: argparse.ArgumentParser) -> None:
    _add_count(parser, "--rate", "messages a second, of the whole job")
    parser.add_argument(
        "--drop-trace-ids", action="store_true", help="needed where the target cannot trace"
    )
    parser.add_argument(
        "--drop-headers", action="store_true", help="needed where the target has none"
    )
    parser.add_argument("--manifest", metavar="FILE", help="write it here instead")
    parser.add_argument("archive", metavar="ARCHIVE", help="what archive wrote, or compacted")
    _add_topics(parser, "replay these topics of the archive; may be repeated, or have commas (all)")
    parser.add_argument(
        "--to-topic", type=check_topic, metavar="TOPIC", help="into this one (the same as before)"
    )
    parser.add_argument(
        "--since",
        type=_moment,
        metavar="TIME",
        help="published at or after, 2026-03-01T12:00Z",
    )
    parser.add_argument("--until", type=_moment, metavar="TIME", help="published before")
    parser.add_argument(
        "--keep-partitions", action="store_true", help="to the same partitions, in order"
    )


def _add_order_audit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "archive", metavar="ARCHIVE", nargs="?", help="what archive wrote, or compacted"
    )
    parser.add_argument(
        "--trace-log",
        action="append",
        default=[],
        metavar="FILE",
        help="a trace log instead, or a pattern of them; may be repeated",
    )
    _add_topics(parser, "these alone; may be repeated, or have commas (all)")
    parser.add_argument("--key", metavar="EXPR", help="what order is kept for")
    parser.add_argument("--sequence", metavar="EXPR", help="what rises within a key")
    parser.add_argument("--strict", action="store_true", help="holes and duplicates fail, too")


def _add_trace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("logs", metavar="LOG", nargs="+", help="a file, a folder or a pattern")
    parser.add_argument(
        "--out", default="trace-report.html", metavar="FILE", help="(trace-report.html)"
    )
    parser.add_argument(
        "--table", metavar="DIR", help="keep the lives as Parquet too; DIR is written anew"
    )
    _add_topics(parser, "these alone; may be repeated, or have commas (all)")
    _add_seconds(parser, "--late", "finished after that is late")


def _add_demo(parser: argparse.ArgumentParser) -> None:
    _add_count(parser, "--messages", "(200000)", default=200_000)
    parser.add_argument(
        "--keep", metavar="DIR", help="leave logs, archives and the report in DIR, an empty folder"
    )


def _add_seconds(
    parser: argparse.ArgumentParser, flag: str, what: str, default: float | None = None
) -> None:
    parser.add_argument(flag, type=_seconds, default=default, metavar="SECONDS", help=what)


def _add_count(
    parser: argparse.ArgumentParser, flag: str, what: str, default: int | None = None
) -> None:
    parser.add_argument(flag, type=_count, default=default, metavar="N", help=what)


def _add_topics(parser: argparse.ArgumentParser, what: str) -> None:
    """``--topic``, which may be repeated; *what* is its help."""
    parser.add_argument(
        "--topic", action="extend", type=_topics, default=[], metavar="TOPIC", help=what
    )


def _add_spark(parser: argparse.ArgumentParser) -> None:
    """What Spark is told."""
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master",
        metavar="URL",
        help="where to run, as local[2] or spark://host:7077 (default: what spark-submit or "
        "spark-defaults.conf says, else all cores of this machine)",
    )
    group.add_argument(
        "--conf",
        action="append",
        type=_pair,
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark, as spark.driver.memory=4g; may be repeated",
    )


def _add_nsq(parser: argparse.ArgumentParser) -> None:
    """Where NSQ is."""
    group = parser.add_argument_group("NSQ")
    group.add_argument(
        "--address",
        metavar="URL",
        help="nsq+lookupd://HOST:4161,... (default: the environment variable NSQSMART_URL)",
    )
    group.add_argument(
        "--client",
        action="append",
        type=_pair,
        default=[],
        metavar="NAME=VALUE",
        help="an option of the nsqsmart client, as publish_timeout=10; may be repeated",
    )


def _pair(text: str) -> tuple[str, str]:
    """``NAME=VALUE``."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _topics(text: str) -> list[str]:
    """Topics with commas between them."""
    try:
        found = [check_topic(each.strip()) for each in text.split(",") if each.strip()]
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not found:
        raise argparse.ArgumentTypeError("name at least one topic")
    return found


def _seconds(text: str) -> float:
    """A time: ``60``, ``250ms``, ``5m``, ``1h``."""
    figures = text.strip().rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text.strip()[len(figures) :] or "s"
    try:
        value = float(figures) * _UNITS[unit]
    except (ValueError, KeyError):
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time, such as 60, 250ms, 5m or 1h")
    return value


def _count(text: str) -> int:
    """A whole number, at least 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _moment(text: str) -> datetime:
    """A time as ``2026-03-01T12:00:00Z``; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time, such as 2026-03-01 or 2026-03-01T12:00:00Z"
        ) from error
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


_JOBS = {
    "archive": ("topics to Parquet", _ARCHIVE, _add_archive),
    "lag": ("what waits in every channel", _LAG, _add_lag),
    "replay": ("Parquet to a topic", _REPLAY, _add_replay),
    "order-audit": ("inversions, holes, duplicates", _ORDER_AUDIT, _add_order_audit),
    "trace": ("the life of traced messages, as a page", _TRACE, _add_trace),
    "demo": ("all of them in a row, on a cluster inside this process", _DEMO, _add_demo),
}
_ASKING_NSQ = ("archive", "lag", "replay")


def make_parser() -> argparse.ArgumentParser:
    """The parser of all jobs; ``job`` is the name of the one that was chosen."""
    parser = argparse.ArgumentParser(
        prog="python -m nsqsmart.spark", description="Jobs between NSQ and tables, on Spark."
    )
    parser.add_argument("--version", action="version", version=f"nsqsmart {__version__}")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    for name, (brief, about, add_flags) in _JOBS.items():
        job = jobs.add_parser(
            name,
            help=brief,
            description=about,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_flags(job)
        if name in _ASKING_NSQ:
            _add_nsq(job)
        _add_spark(job)
        job.add_argument(
            "--json",
            action="store_true",
            help="print one JSON object on the last line of stdout, and everything else on stderr",
        )
    return parser
