"""The workers: threads that run the handler on messages of the inbox."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Protocol

from nsqsmart.client.messages.checked_out import Holdings
from nsqsmart.client.messages.dead_letters import GivingUp
from nsqsmart.client.messages.message import Handler, Message
from nsqsmart.client.messages.results import Requeue, Results, wish_of
from nsqsmart.client.shared.log_fields import facts_of
from nsqsmart.client.shared.process import end_child
from nsqsmart.errors import AlreadyResponded
from nsqsmart.net.threads import Thread, spawn
from nsqsmart.net.write_buffer import Outbox

log = logging.getLogger("nsqsmart")


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


class Crew:
    """*workers* threads that run *handler*; with 0 the reader's thread runs it."""

    def __init__(self, handler: Handler, boss: Boss, workers: int) -> None:
        self._handler = handler
        self._boss = boss
        self._workers = workers
        self._process = os.getpid()
        self._threads: list[Thread] = []
        self._results = Results()
        self._most_attempts = boss.giving_up.most_attempts
        self._box = Inbox()
        self.inbox = self._box.queue
        self.dirty: deque[Outbox] = deque()
        self.gathering: Sequence[Message] = ()
        self._tallies: dict[int, Tally] = {}
        self._dismissed = False
        self.replaced = 0
        """Workers that died and have a successor."""

    @property
    def tallies(self) -> list[Tally]:
        """The counts of every thread that has run the handler."""
        return list(self._tallies.values())

    def is_handling(self) -> bool:
        """Whether the calling thread is inside the handler."""
        tally = self._tallies.get(threading.get_ident())
        return tally is not None and tally.current is not None

    def start(self) -> None:
        """Start the threads."""
        for number in range(self._workers):
            self._begin(number)

    def _begin(self, number: int) -> None:
        self._threads.append(spawn(f"worker-{number}", partial(self._serve, number)))

    def _serve(self, number: int) -> None:
        """Work to the end, or let another thread do so: one less is found out when none is left."""
        try:
            self._work()
        except BaseException:
            log.exception("worker %d died; another takes its place", number)
            self.replaced += 1
            self._begin(number)
            if self._dismissed:
                # The dead one may have had its word already.
                self.inbox.put(None)

    def deliver(self, messages: list[Message]) -> None:
        """From a reader: to the inbox, or straight to the handler."""
        if self._workers:
            put = self.inbox.put
            for message in messages:
                put(message)
            return
        self._handle_all(messages, self._tally())
        self._flush()

    def dismiss(self) -> None:
        """Tell every worker to end once the inbox is empty."""
        self._dismissed = True
        self._box.end(len(self._threads))

    def drop(self, source: object) -> None:
        """From a reader that has ended: its messages are not handled."""
        self._box.drop(source, self._tally())

    def join(self, deadline: float) -> list[Message]:
        """Wait for the workers; the messages whose handlers still run at *deadline*."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - monotonic()))
        return [message for tally in self.tallies for message in tally.in_hand()]

    def end(self, error: BaseException | None) -> None:
        """Nobody waits here."""

    def _tally(self) -> Tally:
        """The counts of the calling thread."""
        return own_tally(self._tallies)

    def _work(self) -> None:
        tally = self._tally()
        while True:
            try:
                self._handle_all(self._incoming(), tally)
            except BaseException as error:
                message = _let_go(tally)
                if not isinstance(error, Exception):
                    raise
                log.exception("a worker failed on %r", message)
                self._flush()
            else:
                return

    def _incoming(self) -> Iterator[Message]:
        """What is in the inbox, until a worker's end is."""
        flush = self._flush
        get, is_empty = self.inbox.get, self.inbox.empty
        while (message := get()) is not None:
            yield message
            if is_empty():
                # Nobody will come by to reach the threshold: send what waits.
                flush()
        flush()

    def _flush(self) -> None:
        flush_all(self.dirty)

    def _handle_all(self, messages: Iterable[Message], tally: Tally) -> None:
        """Nearly every message comes by here: what is rare is done elsewhere."""
        boss, handler, most = self._boss, self._handler, self._most_attempts
        # One look at the clock a message. Before a handler it may be that behind the last one: what
        # came since then has not waited.
        now = monotonic()
        for message in messages:
            tally.current = message
            arrival = message._arrival
            ack = arrival.ack
            rare = message._rare is not None or message.attempts > most or boss.draining
            if rare or ack is None or now >= arrival.deadline:
                self._handle(message, tally)
                now = monotonic()
                continue
            try:
                result = handler(message)
            except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its answer
                self._failed(message, tally, error)
                now = monotonic()
            else:
                now = monotonic()
                if (
                    result is None
                    and message._answer is None
                    and message._rare is None
                    and now < arrival.deadline
                    and ack(message.id)
                ):
                    message._answer = True
                    tally.finished += 1
                    if boss.watching:
                        boss.on_result(message, ok=True)
                else:
                    self._ended(message, tally, result)
            tally.current = None

    def _handle(self, message: Message, tally: Tally) -> None:
        """One message, with all that can be."""
        tally.current = message
        if self._boss.draining or message.expired:
            turn_away(message, tally)
            tally.current = None
            return
        try:
            result = self._handle_marked(message)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its answer
            self._failed(message, tally, error)
        else:
            self._ended(message, tally, result)
        tally.current = None
        lane = message._lane
        if lane is not None and message._holder is None:
            lane.done(message, finished=message.finished)

    def _handle_marked(self, message: Message) -> object:
        """The same for one that is traced or was touched, or has been tried too often."""
        if message._life is not None:
            message._life.note("started")
        if message.attempts <= self._most_attempts:
            return self._handler(message)
        message.skip()
        return None

    def _ended(self, message: Message, tally: Tally, result: object) -> None:
        """The handler returned something, or has answered or detached *message* itself."""
        end_child(self._process)
        wish = self._results.read(result)
        if wish is not None:
            self._requeue(message, tally, wish)
            return
        if message._holder is not None:
            return  # detached: whoever has it answers
        if not message.answered:
            message.finish()
        elif message._slows is not None:
            tally.requeued += 1
            return
        if message.finished:
            tally.finished += 1
        else:
            tally.expired += 1
        if self._boss.watching:
            self._boss.on_result(message, ok=True)

    def _failed(self, message: Message, tally: Tally, error: BaseException) -> None:
        end_child(self._process, error)
        if not isinstance(error, Requeue):
            tally.failed += 1
            said = facts_of(message)
            log.error("handler failed on %r", message, exc_info=error, extra=said)
            if message._life is not None:
                # Not its text, which may hold the body.
                message._life.error = type(error).__name__
        self._requeue(message, tally, wish_of(error))
        if not isinstance(error, Exception):
            self._boss.on_fatal(error)

    def _requeue(self, message: Message, tally: Tally, wish: Requeue) -> None:
        if not message.answered:
            with suppress(AlreadyResponded):  # detached, and answered just now
                message.requeue(wish.delay, backoff=wish.backoff)
        elif wish.backoff and not message._slows:
            self._boss.on_result(message, ok=False)
        if message._holder is not None:
            return
        tally.finished += message.finished
        tally.requeued += not message.finished


def _let_go(tally: Tally) -> Message | None:
    """What nobody can handle is the server's again; returns what it was."""
    message, tally.current = tally.current, None
    if message is not None:
        message._give_back()
        if message._lane is not None:
            message._lane.done(message, finished=False)
    return message
