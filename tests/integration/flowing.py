"""Messages on their way through ordered and plain partitions, and what became of each.

A body is "MARK PARTITION NUMBER"; of each partition the numbers rise, and the next one is published
only when the one before was stored.
"""

from __future__ import annotations

import threading
from itertools import count, pairwise
from math import inf
from time import monotonic
from typing import NamedTuple

import nsqsmart
from nsqsmart.errors import PublishError
from nsqsmart.testing.history import History, inversions
from tests.sites import CHANNEL

_TO_END = 150


class Handling(NamedTuple):
    """A handler that has run."""

    at: float
    partition: int
    internal_id: int
    number: int


class Flow:
    """Publishes to every partition of a topic and consumes it, until it is stopped."""

    def __init__(
        self, url: str, topic: str, partitions: int, mark: str, pace: float, options: dict
    ) -> None:
        self.topic, self.partitions = topic, range(partitions)
        self.history: History[tuple[int, int]] = History()
        self.handled: list[Handling] = []
        self.twice_at_once = 0
        self.failed = 0
        self._mark, self._pace = f"{mark} ".encode(), pace
        self._now: set[tuple[int, int]] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._never = threading.Event()
        self.producer = nsqsmart.Producer(url, retry_unanswered=True, **options)
        consuming = {"address": url, "workers": 4, "positions": True, **options}
        consuming = {name: consuming[name] for name in consuming if "response" not in name}
        consuming.pop("retry_pause", None)
        consuming.pop("max_retry_pause", None)
        self.consumer = nsqsmart.Consumer(topic, CHANNEL, self._handle, **consuming).start()
        self._threads = [threading.Thread(target=self._publish, args=(p,)) for p in self.partitions]
        for thread in self._threads:
            thread.start()

    def _publish(self, partition: int) -> None:
        for number in count():
            if self._stop.wait(self._pace):
                return
            body = self._mark + b"%d %d" % (partition, number)
            try:
                self.producer.publish(self.topic, body, partition=partition)
            except PublishError:
                self.failed += 1
            else:
                self.history.acknowledged((partition, number))

    def _handle(self, message: nsqsmart.Message) -> None:
        if not message.body.startswith(self._mark):
            return  # left behind by another row
        known = (message.partition, message.internal_id)
        with self._lock:
            self.twice_at_once += known in self._now
            self._now.add(known)
        self._never.wait(self._pace / 2)
        number = int(message.body.split()[-1])
        with self._lock:
            self._now.discard(known)
            self.handled.append(Handling(monotonic(), *known, number))
        self.history.consumed((message.partition, number))

    def finished(self, partition: int) -> int:
        """How many different messages of *partition* were handled."""
        with self._lock:
            return len({each.number for each in self.handled if each.partition == partition})

    def on(self, address: object) -> set[object]:
        """The connections to the nsqd at *address*."""
        return {s for s in self.consumer._runtime.snapshot() if s.target.address == address}

    def is_elsewhere(self, gone: set[object]) -> bool:
        """Whether other connections have taken the place of those that are *gone*."""
        live = {s.target.partition for s in self.consumer._runtime.snapshot() if s.live}
        return {s.target.partition for s in gone} <= live and not any(s.live for s in gone)

    def end_publishing(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(_TO_END)
        self.producer.close()

    def lost(self) -> list[tuple[int, int]]:
        """What was stored, and never handled."""
        return self.history.lost()

    def row(self, ordered: bool, since: float) -> Outcome:
        """What became of it."""
        with self._lock:
            handled = list(self.handled)
        gaps = {
            partition: gap([each.at for each in handled if each.partition == partition], since)
            for partition in self.partitions
        }
        return Outcome(
            self.topic,
            ordered,
            self.history.published,
            len(self.lost()),
            len(handled) - len({(each.partition, each.internal_id) for each in handled}),
            self.consumer._runtime.order_violations,
            len(inversions((each.partition, each.internal_id) for each in handled)),
            self.twice_at_once,
            self.consumer.stats().channels_lost,
            max(gaps.values()),
        )


class Outcome(NamedTuple):
    """A row of the table."""

    topic: str
    ordered: bool
    stored: int
    lost: int
    again: int
    violations: int
    inversions: int
    at_once: int
    channels_lost: int
    gap: float

    def __str__(self) -> str:
        kind = "ordered" if self.ordered else "plain"
        return (
            f"{kind:7} | stored {self.stored} | lost {self.lost} | handled again {self.again} | "
            f"order violations {self.violations} | inversions {self.inversions} | "
            f"two at once {self.at_once} | channels lost {self.channels_lost} | "
            f"longest gap {self.gap:.2f} s"
        )

    def check(self) -> None:
        """Fail unless all is as promised."""
        assert self.lost == 0, self
        assert self.channels_lost == 0, self
        if self.ordered:
            assert (self.violations, self.inversions, self.at_once) == (0, 0, 0), self


def gap(times: list[float], since: float) -> float:
    """The longest time without a message, behind *since*."""
    return max((b - a for a, b in pairwise(sorted(times)) if b >= since), default=inf)
