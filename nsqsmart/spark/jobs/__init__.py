"""The jobs: ``python -m nsqsmart.spark JOB --help``.

Exit codes: 0 good, 1 a failed check or bad configuration, 2 usage, 75 worth retrying later,
130 after Ctrl-C. ``--json`` prints one JSON object on the last line of stdout.

::

    parser         the flags of every job; imports nothing of Spark
    runtime        session, cluster, console and exit code, for all of them
    archive        the query; archive_files reads and compacts what it wrote
    lag            asks nsqds; needs Spark only for --out
    replay         from archive_files to the sink
    order_audit    looks through archive_files, or report/events
    trace          draws with report/
    demo           runs the others; demo_consumer is a process of its own

The module of a job has its name, and a ``run``; only the one that was chosen is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from nsqsmart.spark.jobs.parser import make_parser
from nsqsmart.spark.jobs.runtime import Console, expected, judge
from nsqsmart.spark.requirements import check_packages
from nsqsmart.terminal import INTERRUPTED

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line *arguments* (default: those of the process); returns the exit code."""
    chosen = make_parser().parse_args(arguments)
    try:
        if chosen.job != "lag":
            check_packages()
        job = import_module(f"nsqsmart.spark.jobs.{chosen.job.replace('-', '_')}")
        return int(job.run(chosen, Console(as_json=chosen.json)))
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if not isinstance(error, expected()):
            raise
        code, text = judge(error)
        print(f"nsqsmart {chosen.job}: {text}", file=sys.stderr)
        return code
