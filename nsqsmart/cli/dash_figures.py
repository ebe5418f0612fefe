"""What the page shows: the figures of now, and how they were in the last minutes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Hashable
from typing import Any

from nsqsmart import Admin, __version__
from nsqsmart.cli.figures import Row, rates, rows_of
from nsqsmart.errors import NsqError

_SAMPLES = 150
_MOST_TOPICS = 500


class Figures:
    """Asks the servers at most once an *interval*, however many look."""

    def __init__(self, admin: Admin, interval: float) -> None:
        self._admin = admin
        self._interval = interval
        self._asking = threading.Lock()  # guards everything below
        self._asked_at = float("-inf")
        self._rows: dict[Hashable, Row] = {}
        self._pasts: dict[Hashable, deque[tuple[int, float | None]]] = {}
        self._found: dict[str, Any] = {}

    def now(self) -> dict[str, Any]:
        """The figures, at most an interval old; with an ``error`` where there are none."""
        with self._asking:
            began = time.monotonic()
            if began - self._asked_at >= self._interval:
                try:
                    self._found = self._ask(began - self._asked_at)
                except NsqError as error:
                    # What was known last stays on the page, and the reason above it.
                    self._found = {"topics": [], "nodes": [], **self._found, "error": str(error)}
                self._asked_at = time.monotonic()
            return self._found

    def _ask(self, since: float) -> dict[str, Any]:
        stats = self._admin.stats()
        rows = rates(rows_of(stats, by_partition=False), self._rows, since)
        self._rows = {row.place: row for row in rows}
        self._remember(rows)
        names = sorted({row.topic for row in rows})
        return {
            "version": __version__,
            "cluster": repr(self._admin).removeprefix("<Admin ").removesuffix(">"),
            "at": time.time_ns() // 1_000_000,
            "interval": self._interval,
            "nodes": self._nodes(stats),
            "topics": [self._topic(name, rows, stats) for name in names[:_MOST_TOPICS]],
            "left_out": max(0, len(names) - _MOST_TOPICS),
            "error": None,
        }

    def _remember(self, rows: list[Row]) -> None:
        pasts: dict[Hashable, deque[tuple[int, float | None]]] = {}
        for row in rows:
            past = self._pasts.get(row.place) or deque(maxlen=_SAMPLES)
            past.append((row.depth, row.egress if row.channel else row.ingress))
            pasts[row.place] = past
        self._pasts = pasts

    def _nodes(self, stats: Any) -> list[dict[str, Any]]:
        silent = {each.nsqd: each.reason for each in stats.unreachable}
        listed = {
            node.nsqd: {"nsqd": node.nsqd, "version": node.version, "name": node.hostname}
            for node in self._admin.nodes()
        }
        for nsqd in silent:
            listed.setdefault(nsqd, {"nsqd": nsqd, "version": "", "name": ""})
        leads: dict[str, int] = {}
        for entry in stats.topics:
            leads[entry.nsqd] = leads.get(entry.nsqd, 0) + entry.leader
        return [
            {**node, "reason": silent.get(nsqd), "leads": leads.get(nsqd, 0)}
            for nsqd, node in sorted(listed.items())
        ]

    def _topic(self, name: str, rows: list[Row], stats: Any) -> dict[str, Any]:
        own = [row for row in rows if row.topic == name]
        entries = [entry for entry in stats.topics if entry.topic == name]
        return {
            "topic": name,
            "messages": sum(entry.message_count for entry in entries if entry.leader),
            "ingress": max((row.ingress for row in own if row.ingress is not None), default=None),
            "paused": any(entry.paused for entry in entries),
            "partitions": [
                {"partition": entry.partition, "nsqd": entry.nsqd, "leader": entry.leader}
                for entry in entries
            ],
            "channels": [self._channel(row) for row in own if row.channel],
            "waiting": sum(row.depth for row in own if not row.channel),
        }

    def _channel(self, row: Row) -> dict[str, Any]:
        past = self._pasts[row.place]
        return {
            **row.record(),
            "depths": [depth for depth, _ in past],
            "rates": [rate for _, rate in past],
        }
