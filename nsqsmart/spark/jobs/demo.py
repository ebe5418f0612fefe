"""``demo``: all jobs in a row, on this machine, with nothing installed but Java."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from nsqsmart.errors import ConfigError
from nsqsmart.spark.jobs import flags
from nsqsmart.spark.jobs.running import Console, open_session

_MESSAGES = 200_000
_ABOUT = """\
An embedded redesigned cluster in this process; traced messages are published, by key, and
consumed, some of them twice; the topic is archived to Parquet, the trace logs become a report, the
archive is replayed into a second topic, and both are audited. Every count is checked.

Exit code 1 if a check fails.
"""


def add_parser(jobs: flags.Jobs[flags.Parser]) -> None:
    """Add the job to the parser."""
    parser = jobs.add_parser(
        "demo",
        help="all of them in a row, on a cluster inside this process",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--messages", type=flags.count, default=_MESSAGES, metavar="N", help="(200000)"
    )
    parser.add_argument(
        "--keep", metavar="DIR", help="leave logs, archives and the report in DIR, an empty folder"
    )
    flags.add_spark(parser)
    flags.add_json(parser)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Tell the story; 0 if every check holds."""
    console = Console(as_json=chosen.json)
    with _folder(chosen.keep) as folder, open_session(chosen, "demo") as spark:
        from nsqsmart.spark.jobs.demo_story import Story

        with Story(spark, folder, chosen.messages, console) as story:
            summary = story.tell()
    return console.finish(summary)


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
