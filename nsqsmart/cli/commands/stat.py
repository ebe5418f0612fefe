"""``nsqsmart stat``: what is in topics and channels, and how fast it moves."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

from nsqsmart import Admin, AdminConfig
from nsqsmart.cli.common import flags
from nsqsmart.cli.common.ending import pause
from nsqsmart.cli.common.figures import Row, rates, rows_of, with_replicas
from nsqsmart.cli.common.parsing import Commands, Parser, UsageError
from nsqsmart.errors import ConfigError, TopicNotExist, TransportError
from nsqsmart.names import check_channel, check_topic
from nsqsmart.terminal import RETRY_LATER, is_watched, table

_ABOUT = """\
Print depths and counts of every topic and channel, once, or every --interval with rates. depth is
what waits: of an original nsqd without what is in flight or deferred, of a redesigned one
everything that is not finished, as the servers count it. With TOPIC or --partitions it says how
many replicas of a redesigned partition have all of it, as in-sync 2/3.
"""


def add_parser(commands: Commands[Parser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("stat", help="depths, counts and rates", description=_ABOUT)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="[TOPIC [CHANNEL]]",
        help="only this topic, and this channel of it",
    )
    parser.add_argument("--topic", help="only this topic")
    parser.add_argument("--channel", help="only this channel")
    flags.add_seconds(parser, "--interval", "report every SECONDS, with rates")
    flags.add_count(parser, "--count", "end after N reports, 2 s apart without --interval")
    parser.add_argument(
        "--partitions", action="store_true", help="a line for each partition, with its leader"
    )
    flags.add_json(parser, "print each report as one line of JSON")
    flags.add_address(parser)
    flags.add_options(parser, AdminConfig)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Report; 75 if an nsqd gave no figures to the last report."""
    topic, channel = _names(chosen)
    admin = Admin(flags.address_of(chosen), **flags.client_options(chosen, AdminConfig))
    interval = chosen.interval or (2.0 if chosen.count else None)
    before: dict[Any, Row] | None = None
    since, reports, complete = monotonic(), 0, True
    with _output(chosen, moving=interval is not None) as show:
        while True:
            now, found = monotonic(), admin.stats(topic, channel)
            rows = rows_of(found, by_partition=chosen.partitions)
            if topic or chosen.partitions:
                rows = with_replicas(rows, _replicas(admin, rows))
            if topic and not rows and not found.unreachable:
                where = f"channel {channel!r} of topic {topic!r}" if channel else f"topic {topic!r}"
                raise ConfigError(f"no nsqd has the {where}: nsqsmart lookup lists what there is")
            complete = not found.unreachable
            # With an interval the first figures are there to be compared with, as in nsq_stat.
            if interval is None or before is not None:
                show(
                    rates(rows, before or {}, now - since),
                    [each._asdict() for each in found.unreachable],
                )
                reports += 1
            if interval is None or reports == chosen.count:
                break
            before, since = {row.place: row for row in rows}, now
            pause(interval)
    return 0 if complete else RETRY_LATER


def _replicas(admin: Admin, rows: list[Row]) -> dict[str, list[Any]]:
    """Those of every topic; a topic that is deleted meanwhile has none."""
    found: dict[str, list[Any]] = {}
    for topic in {row.topic for row in rows}:
        with suppress(TopicNotExist, TransportError):
            found[topic] = admin.replicas(topic)
    return found


def _names(chosen: argparse.Namespace) -> tuple[str | None, str | None]:
    words = list(chosen.words)
    topic = chosen.topic or (words.pop(0) if words else None)
    channel = chosen.channel or (words.pop(0) if words else None)
    if words:
        raise UsageError(f"{words[0]!r} is one word too many: TOPIC CHANNEL")
    if channel and not topic:
        raise UsageError("--channel needs a topic")
    return check_topic(topic) if topic else None, check_channel(channel) if channel else None


Show = Callable[[list[Row], list[dict[str, str]]], None]


@contextmanager
def _output(chosen: argparse.Namespace, *, moving: bool) -> Iterator[Show]:
    """How reports are shown: JSON, a table that is drawn over, or one table after the other."""
    if chosen.json:
        yield _show_json
        return
    if moving and is_watched(sys.stdout):
        try:
            from rich.live import Live  # noqa: PLC0415 - only where it is watched
            from rich.text import Text  # noqa: PLC0415
        except ImportError:
            pass
        else:
            with Live(auto_refresh=False) as live:
                yield lambda rows, missing: live.update(
                    Text("\n".join(_lines(rows, missing))), refresh=True
                )
            return
    yield lambda rows, missing: print("\n".join(_lines(rows, missing)), flush=True)


def _show_json(rows: list[Row], missing: list[dict[str, str]]) -> None:
    print(
        json.dumps({"channels": [row.record() for row in rows], "unreachable": missing}), flush=True
    )


def _lines(rows: list[Row], missing: list[dict[str, str]]) -> list[str]:
    partitions = any(row.leader is not None for row in rows)
    moving = any(row.ingress is not None for row in rows)
    replicas = any(row.replicas is not None for row in rows)
    head = ["topic", *(["partition", "leader"] if partitions else []), "channel"]
    head += ["depth", "disk", "in-flight", "deferred", "requeued", "timed-out", "messages"]
    head += ["clients", *(["in-sync"] if replicas else []), *(["in/s", "out/s"] if moving else [])]
    cells = [row.cells(partitions=partitions, moving=moving, replicas=replicas) for row in rows]
    said = [f"no figures from {each['nsqd']}: {each['reason']}" for each in missing]
    return [*(table(head, cells) if rows else ["no topics"]), *said]
