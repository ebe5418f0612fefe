"""The demo's books: what was published, what came back, and whether it came in order.

Messages are told apart by their trace id, which the demo chooses; so bodies stay untouched, and a
copy that a retry stored twice is recognised as a copy.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """One topic's books; thread-safe. *keys* gives the key of each message, by its number."""

    topic: str
    keys: list[str]
    first_id: int
    ordered: bool
    published: set[int] = field(default_factory=set)
    consumed: Counter[int] = field(default_factory=Counter)
    violations: int = 0
    strangers: int = 0
    retried: int = 0
    latest: dict[str, int] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def trace_id(self, number: int) -> int:
        """The trace id of message *number*."""
        return self.first_id + number

    def publish(self, number: int, attempts: int, seconds: float) -> None:
        """Message *number* was accepted."""
        with self.lock:
            self.published.add(number)
            self.retried += attempts > 1
            self.latencies.append(seconds)

    def consume(self, trace_id: int) -> int:
        """A handler has the message of *trace_id*; returns how often it came before."""
        number = trace_id - self.first_id
        with self.lock:
            if not 0 <= number < len(self.keys):
                self.strangers += 1
                return 0
            before = self.consumed[number]
            self.consumed[number] += 1
            # Order is promised for first occurrences: a copy may come late (reliability O2).
            if not before and self.ordered:
                key = self.keys[number]
                self.violations += number < self.latest.get(key, -1)
                self.latest[key] = max(number, self.latest.get(key, -1))
            return before

    @property
    def done(self) -> bool:
        """Whether everything that was published has been consumed."""
        return self.count_lost() == 0

    def count_lost(self) -> int:
        """Accepted messages that no handler has seen."""
        with self.lock:
            return sum(1 for number in self.published if not self.consumed[number])

    def count_duplicates(self) -> int:
        """Deliveries beyond the first of each message."""
        with self.lock:
            return sum(self.consumed.values()) - sum(1 for n in self.consumed.values() if n)
