"""What follows a failed publish attempt: one table, one immutable value per call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from nsqsmart.errors import (
    Attempt,
    ConnectError,
    DiscoveryError,
    Outcome,
    PoolTimeout,
    ServerError,
    TransportError,
    TurnTimeout,
)
from nsqsmart.wire import answers


class Verdict(NamedTuple):
    """How one failure is to be taken.

    ``times`` bounds how often this kind of failure may be retried in one call (None: until the
    deadline); ``moved`` asks for a fresh lookup before the next try; ``elsewhere`` lets an
    unkeyed message take another node at once, without a pause.
    """

    outcome: Outcome
    answered: bool
    retry: bool
    moved: bool = False
    elsewhere: bool = True
    times: int | None = None


_REFUSED = Verdict(Outcome.REJECTED, answered=True, retry=False)
_NOT_SENT = Verdict(Outcome.NOT_SENT, answered=True, retry=True, moved=True)
# Refusals that need not mean "not stored": a replica may have it (decisions#4).
_MOVED = Verdict(Outcome.UNCERTAIN, answered=True, retry=True, moved=True)


def judge(error: TransportError, *, keyed: bool, retry_unanswered: bool) -> Verdict:
    """The table of decisions#5, by row."""
    if isinstance(error, ServerError):
        return _judge_code(error.code, exiting=error.detail.endswith(answers.EXITING))
    if isinstance(error, PoolTimeout | TurnTimeout):
        return Verdict(Outcome.NOT_SENT, answered=True, retry=False)
    if isinstance(error, ConnectError):
        return _NOT_SENT._replace(retry=not error.permanent)
    if isinstance(error, DiscoveryError) or not error.sent:
        return _NOT_SENT
    # Sent and unanswered: a resend of a keyed message could be stored after later ones.
    return Verdict(
        Outcome.UNCERTAIN, answered=False, retry=not keyed or retry_unanswered, moved=True
    )


def _judge_code(code: str, *, exiting: bool) -> Verdict:
    if code == answers.TOPIC_NOT_EXIST:
        return _MOVED._replace(outcome=Outcome.REJECTED)
    if code in answers.MOVED:
        return _MOVED
    if code in answers.PUBLISH_FAILED:
        # A node that ends refuses for a second while another one leads already.
        return Verdict(Outcome.UNCERTAIN, answered=True, retry=True, moved=exiting)
    if code == answers.TOO_MUCH_WAITING:
        return Verdict(Outcome.REJECTED, answered=True, retry=True, elsewhere=False)
    if code == answers.BAD_PARTITION:
        return Verdict(Outcome.REJECTED, answered=True, retry=True, moved=True, times=1)
    if code in answers.BAD_INPUT or code in answers.UNAUTHORIZED:
        return _REFUSED
    outcome = Outcome.REJECTED if code == "E_INVALID" else Outcome.UNCERTAIN
    return Verdict(outcome, answered=True, retry=True, times=1)


@dataclass(frozen=True, slots=True)
class Retry:
    """Where one publish call stands: its deadline (monotonic seconds) and what it has tried."""

    deadline: float
    pause: float = 0.05
    max_pause: float = 1.0
    limit: int = 0
    attempts: tuple[Attempt, ...] = ()
    outcome: Outcome = Outcome.NOT_SENT
    answered: bool = True

    def after(self, attempt: Attempt, verdict: Verdict) -> Retry:
        """The state after a failed attempt; the outcome never improves."""
        return replace(
            self,
            attempts=(*self.attempts, attempt),
            outcome=max(self.outcome, verdict.outcome, key=lambda outcome: outcome.severity),
            answered=self.answered and verdict.answered,
        )

    def left(self, now: float) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self.deadline - now)

    def may_retry(self, verdict: Verdict, now: float) -> bool:
        """Whether another attempt is allowed and there is time for it."""
        if not verdict.retry or now >= self.deadline:
            return False
        if self.limit and len(self.attempts) >= self.limit:
            return False
        if verdict.times is None:
            return True
        last = self.attempts[-1].code
        return sum(attempt.code == last for attempt in self.attempts) <= verdict.times

    def delay(self, now: float, uniform: Callable[[float, float], float]) -> float:
        """Seconds to pause before the next attempt: full jitter, doubling, within the deadline."""
        doublings = min(len(self.attempts) - 1, 10)
        ceiling = min(self.max_pause, self.pause * 2**doublings)
        return min(uniform(0.0, ceiling), self.left(now))
