"""A message in flight: what publish_async returns."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from math import inf
from time import monotonic

from nsqsmart.client.shared.arguments import Publication
from nsqsmart.client.shared.receipt import Receipt
from nsqsmart.errors import PublishError, TransportError
from nsqsmart.net.ticker import Ticker
from nsqsmart.policy.retry import Retry
from nsqsmart.policy.topology import Target
from nsqsmart.wire.receipts import TracedReceipt

log = logging.getLogger("nsqsmart")

# Every message is settled by its deadline; this much later something is broken, or forked away.
_GRACE = 5.0


class Pending:
    """The outcome to be of one :meth:`~nsqsmart.Producer.publish_async`; any thread may ask."""

    __slots__ = (
        "_error",
        "_listeners",
        "_publication",
        "_settled",
        "_stored",
        "_unclaimed",
        "body",
        "deadline",
        "limit",
        "patience",
        "reason",
        "retry",
        "started",
        "target",
        "topic",
        "traced",
    )

    def __init__(
        self,
        topic: str,
        body: bytes,
        publication: Publication | None,
        deadline: float,
        patience: float,
    ) -> None:
        """*publication* is None for a plain message, which seldom needs one."""
        self._settled = False
        self._unclaimed = [None]
        self._error: PublishError | None = None
        self._stored: TracedReceipt | Receipt | None = None
        # Append, then check whether it is settled; settle, then take: no callback is lost.
        self._listeners: list[Callable[[], object]] = []
        self.topic = topic
        self.body = body
        self._publication = publication
        self.deadline = deadline
        self.limit = deadline
        self.patience = patience
        self.started = 0.0
        self.target: Target | None = None
        self.traced: int | None = None
        self.retry: Retry | None = None
        self.reason: TransportError | None = None

    def result(self, timeout: float | None = None) -> Receipt:
        """Wait for at most *timeout* seconds, and return the receipt or raise the PublishError.

        None waits until it is settled, which is at the latest at the deadline of the message.
        Raises TimeoutError when *timeout* is over: the message stays on its way.
        """
        if not self._settled and not self._wait(timeout):
            raise TimeoutError(f"no outcome within {timeout} s; the message stays on its way")
        if self._error is not None:
            raise self._error
        return self._receipt()

    def done(self) -> bool:
        """Whether :meth:`result` answers at once."""
        return self._settled

    def add_done_callback(self, callback: Callable[[Pending], object]) -> None:
        """Have *callback* called with this once it is settled: at once, if it is.

        Otherwise on a thread of the producer, which it must not block. What it raises is logged.
        """
        self._listeners.append(lambda: callback(self))
        if self._settled:
            self._tell()

    def _wait(self, timeout: float | None) -> bool:
        lock = threading.Lock()
        lock.acquire()
        self._listeners.append(lock.release)
        if self._settled:
            self._tell()
        left = max(0.0, self.deadline - monotonic()) + _GRACE
        return lock.acquire(timeout=left if timeout is None else min(max(0.0, timeout), left))

    def _receipt(self) -> Receipt:
        if isinstance(self._stored, Receipt):
            return self._stored
        assert self.target is not None  # noqa: S101 - set with the outcome
        attempts = len(self.retry.attempts) + 1 if self.retry else 1
        place = self._stored or (None, None, None, None)
        topic, target = self.topic, self.target
        return Receipt(topic, target.partition, target.name, attempts, *place)

    # ------------------------------------------------------------------------- for the producer

    @property
    def publication(self) -> Publication:
        """What is to be published."""
        if self._publication is None:
            self._publication = Publication(self.topic, (self.body,))
        return self._publication

    @publication.setter
    def publication(self, publication: Publication) -> None:
        self._publication = publication

    @property
    def trace_ids(self) -> tuple[int, ...]:
        """The trace id of the message, or None."""
        return self._publication.trace_ids if self._publication else ()

    def depart(self, target: Target, traced: int | None, now: float, limit: float) -> None:
        """It is sent to *target*; the answer is overdue at *limit*."""
        self.target, self.traced = target, traced
        self.started = now
        self.limit = min(limit, self.deadline)

    def claim(self) -> bool:
        """Whether the caller is the first with an outcome, and is to settle it.

        A deadline, an answer and an interrupt may come at once, on three threads.
        """
        try:
            self._unclaimed.pop()
        except IndexError:
            return False
        return True

    def succeed(self, stored: TracedReceipt | None = None) -> None:
        """It is stored at ``target``."""
        self._stored = stored
        self._settled = True
        if self._listeners:
            self._tell()

    def settle(self, outcome: Receipt | PublishError) -> None:
        """Settle it: it is stored, or has failed."""
        if isinstance(outcome, PublishError):
            self._error = outcome
        else:
            self._stored = outcome
        self._settled = True
        if self._listeners:
            self._tell()

    def _tell(self) -> None:
        """Call each listener once, by the thread that takes it from the list."""
        while self._listeners:
            try:
                listener = self._listeners.pop(0)
            except IndexError:
                return
            try:
                listener()
            except BaseException:  # nor may it end the thread, which others wait for
                log.exception("a callback of publish_async failed")


class Overdue:
    """Messages that wait; *expire* is called, on the ticker, with each that misses its deadline.

    No lock: entering and leaving the dictionary are single operations, so only one of the threads
    that want a message, to send it or to end it, gets it.
    """

    def __init__(self, ticker: Ticker, expire: Callable[[Pending], None]) -> None:
        self._ticker = ticker
        self._expire = expire
        self._waiting: dict[int, Pending] = {}
        self._check_at = inf

    def watch(self, pending: Pending) -> None:
        """Add *pending*: it waits from now on."""
        self._waiting[id(pending)] = pending
        self._ask_for_check(pending.deadline)

    def take(self, pending: Pending) -> bool:
        """Whether it waited until now; then the caller has to settle it."""
        return self._waiting.pop(id(pending), None) is not None

    def _ask_for_check(self, when: float) -> None:
        if when < self._check_at:
            self._check_at = when
            self._ticker.at(when, self._check)

    def _check(self) -> None:
        now, first = monotonic(), inf
        # Before looking: a message that is not seen below asks for another check.
        self._check_at = inf
        for pending in list(self._waiting.values()):
            if pending.deadline > now:
                first = min(first, pending.deadline)
            elif self.take(pending):
                self._expire(pending)
        self._ask_for_check(first)
