"""Who handles a consumer's messages, what they are told and what they tell."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Protocol

from nsqsmart.client.giving_up import GivingUp
from nsqsmart.client.holding import Holdings
from nsqsmart.client.message import Message
from nsqsmart.net.outbox import Outbox


class Boss(Protocol):
    """What the crew tells its consumer, and what it looks up there."""

    draining: bool
    watching: bool
    """Whether results matter to the backoff just now."""
    holdings: Holdings
    giving_up: GivingUp

    def is_starved(self) -> bool:
        """Whether handlers and callers hold nearly all of a connection's share."""

    def on_result(self, message: Message, *, ok: bool) -> None:
        """A handler succeeded, or failed in a way that speaks for backing off."""

    def on_fatal(self, error: BaseException) -> None:
        """A handler raised SystemExit or KeyboardInterrupt: stop, and raise it from run()."""


class Tally:
    """Counts of one thread that runs the handler; only that thread writes them."""

    __slots__ = ("batch", "current", "expired", "failed", "finished", "requeued")

    def __init__(self) -> None:
        self.finished = self.requeued = self.failed = self.expired = 0
        self.current: Message | None = None
        self.batch: list[Message] | None = None

    def in_hand(self) -> list[Message]:
        """What the handler runs on just now."""
        current, batch = self.current, self.batch
        if batch is not None:
            return batch
        return [] if current is None else [current]


def own_tally(tallies: dict[int, Tally]) -> Tally:
    """The one of the calling thread among *tallies*, by thread; made if it is the first time."""
    thread = threading.get_ident()
    return tallies.get(thread) or tallies.setdefault(thread, Tally())


class Inbox:
    """Messages that no worker has taken yet, and None for the end.

    ``queue`` is used directly to put and get, but for the end and for :meth:`drop`, which exclude
    each other: a message put back behind the end would never be handled.
    """

    def __init__(self) -> None:
        self.queue: SimpleQueue[Message | None] = SimpleQueue()
        self._lock = threading.Lock()

    def end(self, times: int) -> None:
        """Put None for each of those who wait."""
        with self._lock:
            for _ in range(times):
                self.queue.put(None)

    def drop(self, source: object, tally: Tally) -> None:
        """Turn away what has come from *source*, which is over: it will be delivered again.

        One of an ordered partition stays: it is the only one, and its turn goes with it.
        """
        kept: list[Message | None] = []
        dropped: list[Message] = []
        with self._lock:
            with suppress(Empty):
                for _ in range(self.queue.qsize()):
                    message = self.queue.get_nowait()
                    if message is None or message._lane or message._subscription is not source:
                        kept.append(message)
                    else:
                        dropped.append(message)
            for each in kept:
                self.queue.put(each)
        for message in dropped:
            tally.expired += 1
            message._answer = False
            message.body = b""  # its place may be remembered for long
            message._subscription.forget(message)


class Staff(Protocol):
    """Who takes the messages of a consumer: a crew with a handler, or the application itself."""

    dirty: deque[Outbox]
    """Where acknowledgements wait."""
    gathering: Sequence[Message]
    """What is gathered for a batch that has not begun."""

    @property
    def tallies(self) -> list[Tally]:
        """The counts of every thread."""

    def is_handling(self) -> bool:
        """Whether the calling thread is handling a message."""

    def start(self) -> None:
        """Start what threads there are."""

    def deliver(self, messages: list[Message]) -> None:
        """From a reader: messages came."""

    def drop(self, source: object) -> None:
        """What has come from *source*, a subscription that is over, and waits, is not handled."""

    def dismiss(self) -> None:
        """Nothing comes any more: give back what nobody has begun with."""

    def join(self, deadline: float) -> list[Message]:
        """Wait for the handlers; the messages of those that still run at *deadline*."""

    def end(self, error: BaseException | None) -> None:
        """The consumer has ended; *error* if from inside."""


def turn_away(message: Message, tally: Tally) -> None:
    """Not handled: it has expired, or the consumer drains and gives it back."""
    if message.expired:
        tally.expired += 1
        message._answer = False
        message._subscription.forget(message)
    else:
        message._give_back()
        tally.requeued += 1
    if message._lane is not None:
        message._lane.done(message, finished=False)


def flush_all(dirty: deque[Outbox]) -> None:
    """Send what waits."""
    while dirty:
        try:
            outbox = dirty.popleft()
        except IndexError:
            return
        outbox.flush()


def in_hands(staff: Staff, holdings: Holdings) -> list[Message]:
    """What handlers run on, and what the application holds."""
    running = [message for tally in staff.tallies for message in tally.in_hand()]
    # A handler that has just detached one still runs.
    return list(dict.fromkeys(running + holdings.held()))


def count_held(staff: Staff, holdings: Holdings) -> Counter[object]:
    """How many messages handlers and the application hold, by subscription; none that waits."""
    held = holdings.counts()
    for tally in staff.tallies:
        # What a handler has detached is counted already.
        held.update(
            each._subscription
            for each in tally.in_hand()
            if not each.answered and each._holder is None
        )
    held.update(each._subscription for each in staff.gathering)
    return held


def busy_readers(staff: Staff, workers: int) -> set[object]:
    """The subscriptions whose reader hears nothing: with ``workers=0`` it runs the handler."""
    if workers:
        return set()
    return {message._subscription for tally in staff.tallies for message in tally.in_hand()}


Recruit = Callable[[Boss], Staff]
"""Makes the staff of a consumer that starts."""
