"""``archive``: topics to Parquet, and many small files of closed hours to few."""

from __future__ import annotations

import argparse
from typing import Any

from nsqsmart.errors import ConfigError
from nsqsmart.spark.jobs import flags
from nsqsmart.spark.jobs.flags import admin_of, check_topics
from nsqsmart.spark.jobs.running import Console, open_session

_ABOUT = """\
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


def add_parser(jobs: flags.Jobs[flags.Parser]) -> None:
    """Add the job to the parser."""
    parser = jobs.add_parser(
        "archive",
        help="topics to Parquet",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_what(parser)
    _add_where(parser)
    flags.add_nsq(parser)
    flags.add_spark(parser)
    flags.add_json(parser)
    parser.set_defaults(run=run)


def _add_what(parser: flags.Parser) -> None:
    parser.add_argument(
        "--out", required=True, help="the archive: a folder, or an URL that Spark can write to"
    )
    flags.add_topics(parser, "what to drain; may be repeated, or have commas")
    parser.add_argument("--channel", default="archive", help="a channel of its own (archive)")
    parser.add_argument(
        "--once", action="store_true", help="drain what there is now, and end; else until Ctrl-C"
    )
    parser.add_argument(
        "--every",
        type=flags.seconds,
        default=60.0,
        metavar="SECONDS",
        help="write files so often (60)",
    )
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
    parser.add_argument(
        "--most", type=flags.count, default=200_000, help="messages of a batch (200000)"
    )


def _add_where(parser: flags.Parser) -> None:
    parser.add_argument("--checkpoint", metavar="DIR", help="(OUT/_nsqsmart/checkpoint)")
    parser.add_argument(
        "--spool",
        metavar="DIR",
        help="a folder that driver and executors share (OUT/_nsqsmart/spool)",
    )
    parser.add_argument("--compact", metavar="DIR", help="rewrite the hours that are over into DIR")
    parser.add_argument(
        "--settle",
        type=flags.seconds,
        default=600.0,
        metavar="SECONDS",
        help="an hour is over so long after its end (600)",
    )
    parser.add_argument(
        "--rows-per-file", type=flags.count, default=5_000_000, metavar="N", help="(5000000)"
    )


def run(chosen: argparse.Namespace) -> int:
    """Archive, compact, or both; 0 if all went well."""
    if not chosen.topic and not chosen.compact:
        raise ConfigError("give --topic to archive, or --compact to compact, or both")
    if chosen.topic and chosen.compact and not chosen.once:
        raise ConfigError("--compact goes with --once: an archive that goes on is compacted beside")
    console = Console(as_json=chosen.json)
    if chosen.topic:
        # Before Spark is started, which takes its time.
        check_topics(admin_of(chosen.address, chosen.client), chosen.topic)
    summary: dict[str, Any] = {"ok": True, "job": "archive", "out": chosen.out}
    with open_session(chosen, "archive") as spark:
        from nsqsmart.spark.jobs.archives import compact
        from nsqsmart.spark.jobs.archiving import Archiving

        if chosen.topic:
            summary |= Archiving(spark, chosen, console).run()
        if chosen.compact:
            summary["compacted"] = compact(spark, chosen, console)
    return console.finish(summary)
