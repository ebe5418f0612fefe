"""The loop of a contestant's process: an order in, a turn at a server, a sample out.

An order is one line on standard input, the fields of Order with blanks between them; the answer is
one line of JSON on standard output: ``rate`` in messages a second, ``cpu`` in seconds per million
messages, ``p50`` in microseconds a call (0 where a call does not wait). Each turn has connections
of its own, and heartbeats in between are not answered. Whatever goes wrong ends the process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from statistics import median
from time import perf_counter, perf_counter_ns, process_time
from typing import Any, NamedTuple


class Order(NamedTuple):
    """What to do: *count* messages after *warm* that are not counted."""

    figure: str
    host: str
    port: int
    topic: str
    count: int
    warm: int
    width: int
    """Callers at a time, or messages a batch."""
    size: int
    """Bytes a message."""

    @property
    def body(self) -> bytes:
        """A message."""
        return b"x" * self.size

    @property
    def address(self) -> str:
        """As most clients want it."""
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, line: str) -> Order:
        """Read a line."""
        figure, host, port, topic, *rest = line.split()
        return cls(figure, host, int(port), topic, *map(int, rest))


Work = Callable[[int], list[int]]
"""Publish so many messages; returns what each call took, in nanoseconds."""

Session = Callable[[Order], AbstractContextManager[Work]]
"""A connected client, for one turn."""


def serve(sessions: dict[str, Session]) -> None:
    """Carry out orders until standard input ends."""
    for line in sys.stdin:
        order = Order.parse(line)
        with sessions[order.figure](order) as work:
            work(order.warm)
            sample = _measured(order.count, work)
        print(json.dumps(sample), flush=True)


def _measured(count: int, work: Work) -> dict[str, float]:
    cpu, wall = process_time(), perf_counter()
    taken = work(count)
    elapsed = perf_counter() - wall
    return {
        "rate": count / elapsed,
        "cpu": (process_time() - cpu) / count * 1e6,
        "p50": median(taken) / 1000 if taken else 0.0,
    }


def repeat(
    count: int, call: Callable[[Any, Any], object], topic: str | bytes, body: object
) -> list[int]:
    """Call so many times, and time each call."""
    taken: list[int] = []
    clock, note = perf_counter_ns, taken.append
    for _ in range(count):
        begun = clock()
        call(topic, body)
        note(clock() - begun)
    return taken


def in_threads(works: list[Work], count: int) -> list[int]:
    """*count* messages by one thread for each of *works*, all at once."""
    share = count // len(works)
    with ThreadPoolExecutor(len(works)) as pool:
        parts = pool.map(lambda work: work(share), works)
        return [each for part in parts for each in part]
