"""``order-audit``: did order hold, is anything missing, is anything there twice."""

from __future__ import annotations

import argparse

from nsqsmart.errors import ConfigError
from nsqsmart.spark.jobs import flags
from nsqsmart.spark.jobs.running import Console, open_session

_ABOUT = """\
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


def add_parser(jobs: flags.Jobs[flags.Parser]) -> None:
    """Add the job to the parser."""
    parser = jobs.add_parser(
        "order-audit",
        help="inversions, holes, duplicates",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
    flags.add_topics(parser, "these alone; may be repeated, or have commas (all)")
    parser.add_argument("--key", metavar="EXPR", help="what order is kept for")
    parser.add_argument("--sequence", metavar="EXPR", help="what rises within a key")
    parser.add_argument("--strict", action="store_true", help="holes and duplicates fail, too")
    flags.add_spark(parser)
    flags.add_json(parser)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Audit; 0 if order held."""
    if bool(chosen.archive) == bool(chosen.trace_log):
        raise ConfigError("give an ARCHIVE, or --trace-log, one of them")
    if bool(chosen.key) != bool(chosen.sequence):
        raise ConfigError("--key and --sequence belong together")
    if chosen.key and chosen.trace_log:
        raise ConfigError("--key needs an archive: trace logs have no bodies")
    console = Console(as_json=chosen.json)
    with open_session(chosen, "order-audit") as spark:
        from nsqsmart.spark.jobs.auditing import audit

        return console.finish(audit(spark, chosen, console))
