"""``python -m tests.storm --seed N --minutes M [--dialect original|redesigned] [--keep DIR]``.

On embedded servers, or on the real ones whose folder ``NSQSMART_TEST_NSQ_BIN`` (original) or
``NSQSMART_TEST_YZ_BIN`` (redesigned) names. Exit code 0: the client is to blame for nothing; 1: it
is; 2: there is nothing to run on.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.storm.checker import Verdict
from tests.storm.run import Storm, is_real, open_site, scale_of
from tests.storm.table import table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one storm; see above for the exit codes."""
    chosen = _parse(arguments)
    where = "real" if is_real(chosen.dialect) else "embedded"
    print(
        f"seed {chosen.seed}, {chosen.minutes:g} min, {where} {chosen.dialect} servers", flush=True
    )
    logger = logging.getLogger("nsqsmart")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory(prefix="storm-") as temporary:
            verdict = run_one(chosen, Path(chosen.keep or temporary))
    except pytest.skip.Exception as missing:
        print(missing)
        return 2
    finally:
        logger.setLevel(level)
    print("\n".join(table(verdict)))
    return 0 if verdict.good else 1


def run_one(chosen: argparse.Namespace, folder: Path) -> Verdict:
    """The storm that was chosen; *folder* gets the history, and what servers and clients said."""
    (folder / "servers").mkdir(parents=True, exist_ok=True)
    (folder / "history").mkdir()
    with open_site(chosen.dialect, folder / "servers") as site:
        storm = Storm(site, scale_of(chosen.dialect), folder / "history")
        return storm.run(chosen.seed, 60 * chosen.minutes)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("--seed", type=int, required=True, help="which script")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long")
    parser.add_argument("--dialect", choices=["original", "redesigned"], default="redesigned")
    parser.add_argument("--keep", metavar="DIR", help="a new folder for the history and the logs")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
