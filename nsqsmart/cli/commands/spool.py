"""``nsqsmart spool``: what waits on the disk, and send it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from typing import Any

from nsqsmart import Producer, ProducerConfig, spool_status
from nsqsmart.cli.common import flags
from nsqsmart.cli.common.ending import in_haste
from nsqsmart.cli.common.parsing import Commands, Parser
from nsqsmart.config import variable
from nsqsmart.errors import ConfigError
from nsqsmart.terminal import RETRY_LATER, table

_SECOND = 1_000_000_000
_ABOUT = """\
status prints what waits in a spool; flush sends it, in order. Exit code 0: nothing waits (any
longer); 75: something does, worth retrying later; 1: a server refuses something, or a file is
damaged; 2: usage. What is refused is set aside and does not hold up the others.
"""


def add_parser(commands: Commands[Parser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "spool", help="send what waits on the disk, or show it", description=_ABOUT
    )
    parser.add_argument("action", choices=["status", "flush"], help="show what waits, or send it")
    parser.add_argument("--spool", metavar="DIR", help=f"the folder (default: {variable('spool')})")
    flags.add_seconds(parser, "--deadline", "flush: give up after this time")
    flags.add_json(parser, "print one JSON object")
    flags.add_address(parser)
    flags.add_options(parser, ProducerConfig)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Show or send; see the exit codes above."""
    folder = chosen.spool or os.environ.get(variable("spool"))
    if not folder:
        raise ConfigError(f"no spool: give --spool DIR or set {variable('spool')}")
    if chosen.action == "status":
        return _status(folder, as_json=chosen.json)
    return _flush(folder, chosen)


def _status(folder: str, *, as_json: bool) -> int:
    found = spool_status(folder)
    rows: list[dict[str, Any]] = [
        {
            "topic": each.topic,
            "messages": each.messages,
            "bytes": each.bytes,
            "oldest": _time(each.oldest),
            "refused": each.refused,
            "damaged": list(each.damaged),
        }
        for each in found
    ]
    if as_json:
        print(json.dumps({"spool": folder, "topics": rows}))
    elif not rows:
        print("nothing waits")
    else:
        head = ["topic", "messages", "bytes", "oldest", "refused"]
        print("\n".join(table(head, [[row[name] for name in head] for row in rows])))
        for each in found:
            for file in each.damaged:
                print(f"damaged: {file}")
    if any(each.messages for each in found):
        return RETRY_LATER
    return 1 if found else 0


def _flush(folder: str, chosen: argparse.Namespace) -> int:
    options = flags.client_options(chosen, ProducerConfig) | {"spool": folder}
    producer = Producer(flags.address_of(chosen), **options)
    with in_haste(producer):
        found = producer.flush_spool(chosen.deadline)
    if chosen.json:
        rows = [
            {
                "topic": each.topic,
                "sent": each.sent,
                "refused": each.refused,
                "error": None if each.error is None else str(each.error),
            }
            for each in found
        ]
        print(json.dumps({"spool": folder, "topics": rows}))
    for each in found:
        if each.refused:
            _say(f"{each.topic}: {each.refused} refused and set aside: nsqsmart spool status")
        if each.error is not None:
            _say(f"{each.topic}: {each.sent} sent, others still wait: {each.error}")
    failures = [each.error for each in found if each.error is not None]
    if any(not failure.retryable for failure in failures) or any(each.refused for each in found):
        return 1
    return RETRY_LATER if failures else 0


def _time(nanoseconds: int | None) -> str | None:
    if nanoseconds is None:
        return None
    return f"{datetime.fromtimestamp(nanoseconds // _SECOND, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _say(text: str) -> None:
    print(f"nsqsmart spool: {text}", file=sys.stderr)
