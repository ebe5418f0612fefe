"""``lag``: what waits in every channel, from the servers' own figures; nothing is consumed."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from nsqsmart import Admin
from nsqsmart.errors import ConfigError
from nsqsmart.spark.jobs.runtime import Console, admin_of, check_topics, open_session
from nsqsmart.terminal import RETRY_LATER, table

_COLUMNS = (
    "sampled_at TIMESTAMP, topic STRING, partition INT, nsqd STRING, channel STRING, "
    "unfinished BIGINT, waiting BIGINT, in_flight BIGINT, deferred BIGINT, requeues BIGINT, "
    "timeouts BIGINT, clients INT, paused BOOLEAN"
)


Lag = dict[str, Any]
"""One channel on one nsqd, or of one partition; counts of messages."""


def run(chosen: argparse.Namespace, console: Console) -> int:
    """Sample, print, and keep if asked to; 75 if an nsqd gave no figures."""
    admin = admin_of(chosen.address, chosen.client)
    if chosen.topic:
        check_topics(admin, chosen.topic)
    every: list[Lag] = []
    latest: list[Lag] = []
    unreachable: dict[str, str] = {}
    for number in range(chosen.samples):
        if number:
            threading.Event().wait(chosen.every)
        latest, missing = sample(admin, chosen.topic, chosen.channel)
        unreachable |= missing
        every += latest
        _print(console, latest, f"sample {number + 1} of {chosen.samples}")
        for nsqd, reason in missing.items():
            console.say(f"no figures from {nsqd}: {reason}")
    if chosen.channel and not every:
        raise ConfigError(f"no topic that was looked at has a channel {chosen.channel!r}")
    if chosen.out:
        with open_session(chosen) as spark:
            frame = spark.createDataFrame(every, _COLUMNS)
            frame.coalesce(1).write.mode("append").parquet(chosen.out)
    code = console.finish(
        {
            "ok": not unreachable,
            "job": "lag",
            "samples": chosen.samples,
            "rows": len(every),
            "unfinished": sum(each["unfinished"] for each in latest),
            "unreachable": unreachable,
            "channels": [{**each, "sampled_at": each["sampled_at"].isoformat()} for each in latest],
        }
    )
    return RETRY_LATER if code else code


def sample(
    admin: Admin, topics: Sequence[str], channel: str | None
) -> tuple[list[Lag], dict[str, str]]:
    """The figures now, and the nsqds that gave none, with the reason."""
    now = datetime.now(UTC)
    found: list[Lag] = []
    missing: dict[str, str] = {}
    asked: list[str | None] = [*topics] or [None]
    for topic in asked:
        stats = admin.stats(topic, channel)
        missing |= {each.nsqd: each.reason for each in stats.unreachable}
        found += [
            {
                "sampled_at": now,
                "topic": entry.topic,
                "partition": entry.partition,
                "nsqd": entry.nsqd,
                "channel": each.channel,
                "unfinished": each.unfinished,
                "waiting": each.waiting,
                "in_flight": each.in_flight,
                "deferred": each.deferred,
                "requeues": each.requeue_count,
                "timeouts": each.timeout_count,
                "clients": each.clients,
                "paused": each.paused,
            }
            for entry in stats.topics
            for each in entry.channels
        ]
    return found, missing


def _print(console: Console, rows: Sequence[Lag], title: str) -> None:
    head = ("topic", "part", "nsqd", "channel", "waiting", "in flight", "deferred", "requeues")
    moment = f", {rows[0]['sampled_at']:%H:%M:%S} UTC" if rows else ": no channels"
    console.say(f"{title}{moment}")
    names = ("waiting", "in_flight", "deferred", "requeues")
    cells = [
        (
            *(each["topic"], each["partition"], each["nsqd"]),
            each["channel"] + (" (paused)" if each["paused"] else ""),
            *(each[name] for name in names),
        )
        for each in rows
    ]
    for line in table(head, cells) if rows else ():
        console.say(line)
