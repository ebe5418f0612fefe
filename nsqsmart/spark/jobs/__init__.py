"""The jobs: ``python -m nsqsmart.spark JOB --help``.

Exit codes: 0 good, 1 a failed check or bad configuration, 2 usage, 75 worth retrying later,
130 after Ctrl-C. ``--json`` prints one JSON object on the last line of stdout.

::

    archive      archiving, archives (also compacts)
    lag          asks nsqds; needs Spark only for --out
    replay       replaying, archives
    order_audit  auditing, archives, report/events
    trace        tracing, report/
    demo         demo_story, which runs the other jobs; demo_consumer is a process of its own

The modules on the left have the flags of a job, and import nothing of Spark before it runs; what it
does is in those on the right. ``flags`` and ``running`` (session, console, exit code) are for all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nsqsmart import __version__
from nsqsmart.spark.jobs import archive, demo, lag, order_audit, replay, trace
from nsqsmart.spark.jobs.running import expected, judge
from nsqsmart.terminal import INTERRUPTED

__all__ = ["main"]

_JOBS = (archive, lag, replay, order_audit, trace, demo)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line *arguments* (default: those of the process); returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m nsqsmart.spark", description="Jobs between NSQ and tables, on Spark."
    )
    parser.add_argument("--version", action="version", version=f"nsqsmart {__version__}")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    for each in _JOBS:
        each.add_parser(jobs)
    chosen = parser.parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if not isinstance(error, expected()):
            raise
        code, text = judge(error)
        print(f"nsqsmart {chosen.job}: {text}", file=sys.stderr)
        return code
