"""The pulled messages without an answer, and the counts of those that were answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from nsqsmart.client.messages.message import Message
from nsqsmart.client.subscribing.ordered_delivery import report_violation
from nsqsmart.config import ConsumerConfig
from nsqsmart.errors import AlreadyResponded, ConfigError, ProtocolError
from nsqsmart.policy.ordering import Order, OrderCheck


@dataclass(frozen=True, slots=True)
class PullReport:
    """What became of the messages of a PullSubscription.

    ``finished`` and ``requeued`` count what was sent, ``expired`` what was not answered in time.
    ``refused`` holds the ids (16 bytes) whose answer the server did not take, b"" where it does
    not say which: it delivers them again, or has done so. ``lost`` counts what was held when the
    connection ended before its time, which the server delivers again too. With ``confirmed`` the
    server has carried out everything that was sent, and closed: nothing can be added to
    ``refused``.
    """

    finished: int
    requeued: int
    expired: int
    refused: tuple[bytes, ...] = ()
    lost: int = 0
    confirmed: bool = False


class Unacked:
    """Which messages are held; whole lists at a time, at the pace of sets.

    Attributes:
        held: pulled, and not answered.
        expired, finished, requeued, lost: counts, as in :class:`PullReport`.
    """

    def __init__(self) -> None:
        self.held: set[Message] = set()
        self.expired = self.finished = self.requeued = self.lost = 0
        self._refused: list[bytes] = []
        self._order = OrderCheck()
        self._copies: Counter[bytes] = Counter()
        self._doubled: Counter[bytes] = Counter()

    def in_order(
        self, messages: Sequence[Message], waiting: Sequence[Message], config: ConsumerConfig
    ) -> list[Message]:
        """The *messages* of an ordered subscription that are neither held nor *waiting*.

        The server repeats the first message after a SUB_ORDERED, and what was not answered in
        time: the copy is no other message, and the first one may be answered for as long as it.
        Raises ProtocolError for a message out of order, unless the options want to go on.
        """
        kept = []
        known = {message.id: message for message in (*self.held, *waiting)}
        for message in messages:
            first = known.setdefault(message.id, message)
            if first is not message:
                first._renew(message)
                self._copies[message.id] += 1
                if message._life is not None:
                    message._life.note("duplicate")
                continue
            before = self._order.position
            verdict = self._order.judge(
                message.offset or 0, message.internal_id or 0, message.size or 0
            )
            choice = config.on_order_violation
            if verdict is Order.VIOLATION and not report_violation(message, before, choice):
                raise ProtocolError(f"{message!r} came out of order")
            kept.append(message)
        return kept

    def without_expired(self, messages: Sequence[Message], now: float) -> list[Message]:
        """The *messages* that can still be answered."""
        kept = [message for message in messages if message.deadline > now]
        self.expired += len(messages) - len(kept)
        return kept

    def refuse(self, message_id: bytes | None) -> bool:
        """The server did not take an answer; False where it was one too many on purpose."""
        if message_id is not None and self._doubled[message_id]:
            self._doubled[message_id] -= 1
            return False
        self._refused.append(message_id or b"")
        return True

    def report(self, *, confirmed: bool) -> PullReport:
        """The counts so far."""
        counts = self.finished, self.requeued, self.expired
        return PullReport(*counts, tuple(self._refused), self.lost, confirmed)

    def ids(self, messages: list[Message]) -> list[bytes]:
        """Of *messages*; twice where the server has sent it twice, and may know only one copy."""
        ids = [message.id for message in messages]
        for each in ids if self._copies else ():
            if count := self._copies.pop(each, 0):
                self._doubled[each] += count
                ids = ids + [each] * count
        return ids

    def choose(self, messages: Sequence[Message], source: object) -> set[Message]:
        """The *messages* that are held; raises ConfigError or AlreadyResponded for the others."""
        chosen = set(messages)
        if len(chosen) < len(messages):
            raise AlreadyResponded("a message is twice in the list")
        if chosen <= self.held:
            return chosen
        for message in messages:
            if message._subscription is not source:
                raise ConfigError(f"{message!r} was pulled by another PullSubscription")
            if message.answered and message not in self.held:
                raise AlreadyResponded(f"{message!r} was finished or requeued before")
        return chosen & self.held

    def release(self, messages: Sequence[Message], source: object) -> list[Message]:
        """The *messages* that can be answered now; none of them is held any more."""
        chosen = self.choose(messages, source)
        self.held -= chosen
        now = monotonic()
        fresh = []
        for message in messages:
            message._answer = False
            if message._read_batch.deadline > now or message.deadline > now:
                fresh.append(message)
        if len(chosen) < len(messages):
            fresh = [message for message in fresh if message in chosen]
        self.expired += len(chosen) - len(fresh)
        return fresh
