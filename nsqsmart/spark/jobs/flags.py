"""The flags that several jobs have, what their values mean, and the cluster they name."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from nsqsmart import Admin, AdminConfig
from nsqsmart.config import options_of
from nsqsmart.errors import ConfigError
from nsqsmart.names import check_topic

Parser = argparse.ArgumentParser
Jobs = argparse._SubParsersAction  # noqa: SLF001 - argparse has no other name for it

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

_SHOWN = 5


def add_json(parser: Parser) -> None:
    """How the job ends."""
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object on the last line of stdout, and everything else on stderr",
    )


def add_topics(parser: Parser, what: str) -> None:
    """``--topic``, which may be repeated; *what* is its help."""
    parser.add_argument(
        "--topic", action="extend", type=topics, default=[], metavar="TOPIC", help=what
    )


def add_spark(parser: Parser) -> None:
    """What Spark is told."""
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master",
        metavar="URL",
        help="where to run, as local[2] or spark://host:7077 (default: what spark-submit or "
        "spark-defaults.conf says, else all cores of this machine)",
    )
    group.add_argument(
        "--conf",
        action="append",
        type=pair,
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark, as spark.driver.memory=4g; may be repeated",
    )


def add_nsq(parser: Parser) -> None:
    """Where NSQ is."""
    group = parser.add_argument_group("NSQ")
    group.add_argument(
        "--address",
        metavar="URL",
        help="nsq+lookupd://HOST:4161,... (default: the environment variable NSQSMART_URL)",
    )
    group.add_argument(
        "--client",
        action="append",
        type=pair,
        default=[],
        metavar="NAME=VALUE",
        help="an option of the nsqsmart client, as publish_timeout=10; may be repeated",
    )


def pair(text: str) -> tuple[str, str]:
    """``NAME=VALUE``."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def topics(text: str) -> list[str]:
    """Topics with commas between them."""
    try:
        found = [check_topic(each.strip()) for each in text.split(",") if each.strip()]
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not found:
        raise argparse.ArgumentTypeError("name at least one topic")
    return found


def seconds(text: str) -> float:
    """A time: ``60``, ``250ms``, ``5m``, ``1h``."""
    figures = text.strip().rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text.strip()[len(figures) :] or "s"
    try:
        value = float(figures) * _UNITS[unit]
    except (ValueError, KeyError):
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time, such as 60, 250ms, 5m or 1h")
    return value


def count(text: str) -> int:
    """A whole number, at least 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def moment(text: str) -> datetime:
    """A time as ``2026-03-01T12:00:00Z``; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time, such as 2026-03-01 or 2026-03-01T12:00:00Z"
        ) from error
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


def admin_of(address: str | None, client: Iterable[tuple[str, str]]) -> Admin:
    """An Admin; of the client's options it takes those that it knows."""
    known = options_of(AdminConfig)
    mine: dict[str, Any] = {name: value for name, value in client if name in known}
    return Admin(address, **mine)


def check_topics(admin: Admin, topics: Sequence[str]) -> None:
    """Raise ConfigError if no lookup knows one of them, DiscoveryError if none answers."""
    known = admin.topics()
    for topic in topics:
        if topic not in known:
            near = difflib.get_close_matches(topic, known, n=1)
            hint = f": did you mean {near[0]}?" if near else f"; known are {_few(known)}"
            raise ConfigError(f"no lookup of {admin} knows topic {topic!r}{hint}")


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN]) or "none"
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def source_options(client: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """The client's options as the data source takes them."""
    return {f"nsq.{name}": value for name, value in client}
