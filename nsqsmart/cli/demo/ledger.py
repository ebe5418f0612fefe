"""The demo's books: what was published, what came back, and whether it came in order.

Messages are told apart by their trace id, which the demo chooses; so bodies stay untouched, and a
copy that a retry stored twice is recognised as a copy.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from nsqsmart.testing.history import History


@dataclass
class Ledger:
    """One topic's books; thread-safe. *keys* gives the key of each message, by its number."""

    topic: str
    keys: list[str]
    first_id: int
    ordered: bool
    history: History[int] = field(default_factory=History)
    retried: int = 0
    latencies: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Messages of a key are sent as they are numbered."""
        for number, key in enumerate(self.keys):
            self.history.sent(number, key if self.ordered else None)

    def trace_id(self, number: int) -> int:
        """The trace id of message *number*."""
        return self.first_id + number

    def publish(self, number: int, attempts: int, seconds: float) -> None:
        """Message *number* was accepted."""
        self.history.acknowledged(number)
        with self.lock:
            self.retried += attempts > 1
            self.latencies.append(seconds)

    def consume(self, trace_id: int) -> int:
        """A handler has the message of *trace_id*; returns how often it came before."""
        number = trace_id - self.first_id
        return self.history.consumed(number) if 0 <= number < len(self.keys) else 0
