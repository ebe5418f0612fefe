"""What a consuming contestant's handler does, and how its session waits.

Figures of a consuming order: ``consume`` (RDY 200, a handler that does nothing), ``inline`` and
``batch`` (nsqsmart alone), ``block`` (a handler that blocks for a millisecond), ``one`` (RDY 1),
``latency`` and ``unbuffered`` (from the time that is written in a body), ``memory`` (what holding
messages costs), ``many`` (several addresses).
"""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from collections.abc import Callable

from driver import Order

RDY = 200
BLOCK_SECONDS = 0.001
HELD = 2000
LATE = ("latency", "unbuffered", "buffered")
_PATIENCE = 100.0


def rdy_of(order: Order) -> int:
    """Messages in flight."""
    return {"one": 1, "memory": HELD, "many": RDY * order.width}.get(order.figure, RDY)


class Tally:
    """Counts messages, and says when the awaited ones are there."""

    def __init__(self, order: Order) -> None:
        self.done = threading.Event()
        self.seen = 0
        self.target = 1 << 62
        self._taken: list[int] = []
        self.note: Callable[[bytes], None] = self._count
        if order.figure in LATE:
            self.note = self._time
        elif order.figure == "block":
            self.note = self._block

    def _count(self, _body: bytes) -> None:
        self.seen += 1
        if self.seen >= self.target:
            self.done.set()

    def _block(self, body: bytes) -> None:
        time.sleep(BLOCK_SECONDS)
        self._count(body)

    def _time(self, body: bytes) -> None:
        self._taken.append(time.time_ns() - int(body[:19]))
        self._count(body)

    def expect(self, count: int) -> None:
        """From now on so many."""
        self._taken.clear()
        self.done.clear()
        self.target = self.seen + count

    def taken(self) -> list[int]:
        """What each message took, of those that say when they left."""
        return list(self._taken)

    def work(self, count: int) -> list[int]:
        """Wait for so many, while other threads handle them."""
        self.expect(count)
        if not self.done.wait(_PATIENCE):
            raise SystemExit(f"{self.seen} messages came, {self.target} were awaited")
        return self.taken()


class Weight:
    """What messages that are held cost: bytes each, as the p50 of the sample."""

    def __init__(self) -> None:
        self.held: list[object] = []
        gc.collect()
        tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]

    def hold(self, message: object) -> bool:
        """Keep it; False once there are enough."""
        self.held.append(message)
        return len(self.held) < HELD

    def bytes_each(self) -> list[int]:
        """A sample's p50 is thousandths of this."""
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - self._before
        tracemalloc.stop()
        return [grown * 1000 // len(self.held)]
