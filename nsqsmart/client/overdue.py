"""Deadlines of messages that wait for their way: each ends at its own, whatever it waits behind."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic

from nsqsmart.client.pending import Pending
from nsqsmart.net.ticker import Ticker


class Overdue:
    """Who waits; *expire* is called, on the ticker, with whoever is not taken by his deadline.

    No lock: entering and leaving the dictionary are single operations, so that of those who want
    a message, to send it or to end it, one gets it.
    """

    def __init__(self, ticker: Ticker, expire: Callable[[Pending], None]) -> None:
        self._ticker = ticker
        self._expire = expire
        self._waiting: dict[int, Pending] = {}
        self._check_at = inf

    def watch(self, pending: Pending) -> None:
        """It waits from now on."""
        self._waiting[id(pending)] = pending
        self._ask_for_check(pending.deadline)

    def take(self, pending: Pending) -> bool:
        """Whether it waited until now, and is the caller's to see to."""
        return self._waiting.pop(id(pending), None) is not None

    def _ask_for_check(self, when: float) -> None:
        if when < self._check_at:
            self._check_at = when
            self._ticker.at(when, self._check)

    def _check(self) -> None:
        now, first = monotonic(), inf
        # Before looking: whoever is not seen below asks for a check of his own.
        self._check_at = inf
        for pending in list(self._waiting.values()):
            if pending.deadline > now:
                first = min(first, pending.deadline)
            elif self.take(pending):
                self._expire(pending)
        self._ask_for_check(first)
