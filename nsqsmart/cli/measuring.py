"""What ``bench`` measures: messages that say when they left and come back."""

from __future__ import annotations

import struct
import threading
from collections import deque
from statistics import quantiles
from time import monotonic
from typing import Any

from nsqsmart import Message, Pending, Producer
from nsqsmart.cli.progress import Bar
from nsqsmart.cli.waiting import result_of, wait_for

_HEAD = struct.Struct(">Qd")
_BEHIND = 4000
"""Messages that may be between publishing and consuming: an ephemeral channel of an original nsqd
drops what is beyond its 10,000."""
_MOST_WAITING = 1000
_STEP = 100


class Measurement:
    """One run: publish in one thread, take in those of the consumer."""

    def __init__(self, count: int, size: int, bar: Bar) -> None:
        self._count = count
        self._filling = b"x" * (size - _HEAD.size)
        self._size = size
        self._bar = bar
        self._begun = self._published_at = self._consumed_at = 0.0
        self._published = 0
        self._seen: set[int] = set()
        self._times: list[float] = []
        self._more = threading.Condition()  # guards the two above

    def publish(self, producer: Producer, topic: str, *, one_by_one: bool) -> None:
        """Publish all, no faster than they are taken; raises PublishError."""
        waiting: deque[Pending] = deque()
        self._begun = monotonic()
        for number in range(self._count):
            body = _HEAD.pack(number, monotonic()) + self._filling
            if one_by_one:
                producer.publish(topic, body)
            else:
                waiting.append(producer.publish_async(topic, body))
            if len(waiting) > _MOST_WAITING:
                result_of(waiting.popleft())
            if number % _STEP == 0:
                self._hold_back(number)
        for pending in waiting:
            result_of(pending)
        self._published_at = monotonic()
        self._published = self._count

    def _hold_back(self, number: int) -> None:
        with self._more:
            wait_for(self._more, lambda: number - len(self._seen) < _BEHIND, 10)

    def take(self, message: Message) -> None:
        """The handler."""
        number, left = _HEAD.unpack(message.body[: _HEAD.size])
        now = monotonic()
        with self._more:
            if number in self._seen:
                return
            self._seen.add(number)
            self._times.append(now - left)
            self._consumed_at = now
            if len(self._seen) % _STEP == 0 or len(self._seen) == self._count:
                self._more.notify_all()
        self._bar.advance(1)

    def wait(self, patience: float) -> None:
        """Until all have come, or *patience* seconds are over."""
        with self._more:
            wait_for(self._more, lambda: len(self._seen) == self._count, patience)

    def report(self) -> dict[str, Any]:
        """Counts, seconds, messages a second, and milliseconds on the way."""
        with self._more:
            consumed, times = len(self._seen), list(self._times)
        publishing = max(self._published_at - self._begun, 1e-9)
        consuming = max(self._consumed_at - self._begun, 1e-9)
        cuts = quantiles(times, n=100) if len(times) > 1 else (times or [0.0]) * 99
        return {
            "published": self._published,
            "consumed": consumed,
            "size": self._size,
            "publish_seconds": round(publishing, 3),
            "publish_rate": round(self._published / publishing),
            "consume_seconds": round(consuming, 3),
            "consume_rate": round(consumed / consuming),
            "latency_p50_ms": round(cuts[49] * 1000, 2),
            "latency_p99_ms": round(cuts[98] * 1000, 2),
        }

    @staticmethod
    def text(report: dict[str, Any]) -> str:
        """The report for people."""
        megabytes = report["publish_rate"] * report["size"] / 1e6
        return (
            f"published  {report['published']:,} messages of {report['size']} bytes in "
            f"{report['publish_seconds']} s: {report['publish_rate']:,}/s, {megabytes:.1f} MB/s\n"
            f"consumed   {report['consumed']:,} in {report['consume_seconds']} s: "
            f"{report['consume_rate']:,}/s\n"
            f"on the way p50 {report['latency_p50_ms']} ms, p99 {report['latency_p99_ms']} ms"
        )
