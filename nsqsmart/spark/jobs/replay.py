"""``replay``: an archive back to NSQ."""

from __future__ import annotations

import argparse

from nsqsmart.errors import ConfigError
from nsqsmart.names import check_topic
from nsqsmart.spark.jobs import flags
from nsqsmart.spark.jobs.running import Console, open_session

_ABOUT = """\
Publish what an archive holds, at least once: what a task had published before it failed stays
published and comes again.

Trace ids are kept. With --keep-partitions a message goes to the partition it came from, and the
messages of a partition go in their order (by offset, else internal id, else time); without, NSQ
spreads them, and there is no order to keep.

A manifest beside the archive, in ARCHIVE/_nsqsmart/replays, says which window was replayed and how
many rows of each partition; its state is "begun" until the last message was taken.
"""


def add_parser(jobs: flags.Jobs[flags.Parser]) -> None:
    """Add the job to the parser."""
    parser = jobs.add_parser(
        "replay",
        help="Parquet to a topic",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_what(parser)
    parser.add_argument(
        "--rate", type=flags.count, metavar="N", help="messages a second, of the whole job"
    )
    parser.add_argument(
        "--drop-trace-ids", action="store_true", help="needed where the target cannot trace"
    )
    parser.add_argument(
        "--drop-headers", action="store_true", help="needed where the target has none"
    )
    parser.add_argument("--manifest", metavar="FILE", help="write it here instead")
    flags.add_nsq(parser)
    flags.add_spark(parser)
    flags.add_json(parser)
    parser.set_defaults(run=run)


def _add_what(parser: flags.Parser) -> None:
    parser.add_argument("archive", metavar="ARCHIVE", help="what archive wrote, or compacted")
    flags.add_topics(
        parser, "replay these topics of the archive; may be repeated, or have commas (all)"
    )
    parser.add_argument(
        "--to-topic", type=check_topic, metavar="TOPIC", help="into this one (the same as before)"
    )
    parser.add_argument(
        "--since",
        type=flags.moment,
        metavar="TIME",
        help="published at or after, 2026-03-01T12:00Z",
    )
    parser.add_argument("--until", type=flags.moment, metavar="TIME", help="published before")
    parser.add_argument(
        "--keep-partitions", action="store_true", help="to the same partitions, in order"
    )


def run(chosen: argparse.Namespace) -> int:
    """Replay; 0 if every row was taken."""
    if chosen.since and chosen.until and chosen.since >= chosen.until:
        raise ConfigError(f"--since {chosen.since} is not before --until {chosen.until}")
    console = Console(as_json=chosen.json)
    with open_session(chosen, "replay") as spark:
        from nsqsmart.spark.jobs.replaying import replay

        return console.finish(replay(spark, chosen, console))
