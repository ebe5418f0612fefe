"""``trace``: trace logs to the lives of messages, and a page that shows them."""

from __future__ import annotations

import argparse

from nsqsmart.errors import ConfigError
from nsqsmart.spark.jobs import flags
from nsqsmart.spark.jobs.running import Console, open_session

_ABOUT = """\
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


def add_parser(jobs: flags.Jobs[flags.Parser]) -> None:
    """Add the job to the parser."""
    parser = jobs.add_parser(
        "trace",
        help="the life of traced messages, as a page",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("logs", metavar="LOG", nargs="+", help="a file, a folder or a pattern")
    parser.add_argument(
        "--out", default="trace-report.html", metavar="FILE", help="(trace-report.html)"
    )
    parser.add_argument(
        "--table", metavar="DIR", help="keep the lives as Parquet too; DIR is written anew"
    )
    flags.add_topics(parser, "these alone; may be repeated, or have commas (all)")
    parser.add_argument(
        "--late", type=flags.seconds, metavar="SECONDS", help="finished after that is late"
    )
    flags.add_spark(parser)
    flags.add_json(parser)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Join and draw; 0 if there was anything to join."""
    if not chosen.out:
        raise ConfigError("--out is empty: name the file of the report")
    console = Console(as_json=chosen.json)
    with open_session(chosen, "trace") as spark:
        from nsqsmart.spark.jobs.tracing import trace

        return console.finish(trace(spark, chosen, console))
