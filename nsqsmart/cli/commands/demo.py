"""``nsqsmart demo``: the acceptance test a person can watch.

A redesigned cluster of three nsqd in this process; keyed and traced publishing by several
threads; an ordered and a pooled consumer; in the middle a leader moves and an nsqd is killed.
Then the books are checked: nothing lost, order kept per key, every retry ended well.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from time import monotonic

from nsqsmart.cli.common.ending import TURN, pause
from nsqsmart.cli.demo.story import Ledger, Printer, Story, Workload
from nsqsmart.embedded import Cluster
from nsqsmart.errors import ConfigError

_MESSAGES = 4000
_POOLED_SHARE = 4
_KEYS = 40
_MAX_LINE = 1024 * 1024
_MAX_MESSAGES = 1_000_000


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo", help="watch messages go through a redesigned cluster on this machine"
    )
    parser.add_argument(
        "--messages",
        type=_count,
        default=None,
        metavar="N",
        help=f"how many ordered messages (default {_MESSAGES})",
    )
    parser.add_argument(
        "--input",
        type=Path,
        metavar="FILE",
        help="publish the lines of this file instead; any text",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=7,
        metavar="N",
        help="makes keys and failures repeatable (default 7)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    parser.add_argument("--plain", action="store_true", help="plain lines, no moving bar")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="leave the cluster up until Ctrl-C, and print its address",
    )
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Tell the story; 0 if every check holds, else 1."""
    printer = Printer(plain=chosen.plain, silent=chosen.json)
    bodies = _read_lines(chosen.input, chosen.messages) if chosen.input else None
    workload = _workload(chosen.messages or _MESSAGES, bodies, random.Random(chosen.seed))  # noqa: S311
    started = monotonic()
    source = f"{chosen.input.name}, " if chosen.input else ""
    printer.line(
        f"nsqsmart demo: embedded redesigned cluster, 3 nsqd, 2 nsqlookupd, 3 replicas "
        f"({source}seed {chosen.seed})\n"
    )
    with Cluster(dialect="redesigned", nsqds=3, lookupds=2) as cluster:
        story = Story(cluster, workload, printer)
        story.tell()
        report = story.report(seconds=monotonic() - started, seed=chosen.seed)
        _print_report(printer, report)
        if chosen.json:
            print(json.dumps(report))
        if chosen.keep:
            _keep(cluster.url, printer)
    return 0 if report["ok"] else 1


def _workload(count: int, bodies: list[bytes] | None, chance: random.Random) -> Workload:
    count = len(bodies) if bodies is not None else count
    keys = [f"customer-{chance.randrange(_KEYS)}" for _ in range(count)]
    orders = Ledger("orders", keys, 1_000_000_000, ordered=True)
    pooled = max(1, count // _POOLED_SHARE)
    clicks = Ledger("clicks", [""] * pooled, 2_000_000_000, ordered=False)
    # Two in a hundred clicks fail at first: their retries must end well.
    failing = {number for number in range(pooled) if chance.random() < 0.02} or {0}
    return Workload(orders, clicks, bodies, frozenset(failing))


def _read_lines(path: Path, limit: int | None) -> list[bytes]:
    """The lines of a file, line ends taken off; empty ones cannot be published."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--input {str(path)!r} cannot be read: {error.strerror}") from error
    lines = [line for line in data.splitlines() if line][:limit]
    if not lines:
        raise ConfigError(f"--input {str(path)!r} has no line that is not empty")
    longest = max(range(len(lines)), key=lambda number: len(lines[number]))
    if len(lines[longest]) > _MAX_LINE:
        raise ConfigError(
            f"--input {str(path)!r}: line {longest + 1} has {len(lines[longest])} bytes; "
            f"nsqd takes {_MAX_LINE} at most"
        )
    return lines


def _print_report(printer: Printer, report: dict[str, object]) -> None:
    marks = {True: "✓", False: "✗"}
    printer.line()
    for name, good in report["checks"].items():  # type: ignore[attr-defined]
        printer.line(f" {marks[good]} {name}")
    verdict = "all checks hold" if report["ok"] else "A CHECK FAILED"
    printer.line(f"\n{verdict}, {report['seconds']} s")


def _keep(url: str, printer: Printer) -> None:
    printer.line(
        f"\nthe cluster stays up until Ctrl-C; in another terminal:\n  export NSQSMART_URL={url}"
    )
    while True:
        pause(TURN)


def _count(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if not 0 < value <= _MAX_MESSAGES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {_MAX_MESSAGES}")
    return value
