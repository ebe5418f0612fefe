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

from nsqsmart.client.messages.checked_out import CheckedOut
from nsqsmart.client.messages.dead_letters import DeadLetters
from nsqsmart.client.messages.message import Handler, Message
from nsqsmart.client.messages.results import Requeue, Results, requeue_for
from nsqsmart.client.shared.log_fields import message_fields
from nsqsmart.client.shared.process import end_child
from nsqsmart.errors import AlreadyResponded
from nsqsmart.net.threads import Thread, spawn
from nsqsmart.net.write_buffer import Outbox

log = logging.getLogger("nsqsmart")


class ConsumerRuntime(Protocol):
    """What the crew tells its consumer, and what it looks up there."""

    draining: bool
    watching: bool
    """Whether results matter to the backoff just now."""
    checked_out: CheckedOut
    dead_letters: DeadLetters

    def is_starved(self) -> bool:
        """Whether handlers and callers hold nearly all of a connection's share."""

    def on_result(self, message: Message, *, ok: bool) -> None:
        """A handler succeeded, or failed in a way that speaks for backing off."""

    def on_fatal(self, error: BaseException) -> None:
        """A handler raised SystemExit or KeyboardInterrupt: stop, and raise it from run()."""


class ThreadCounts:
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


def own_counts(thread_counts: dict[int, ThreadCounts]) -> ThreadCounts:
    """Counts of the calling thread, from *thread_counts* by thread; made the first time."""
    thread = threading.get_ident()
    return thread_counts.get(thread) or thread_counts.setdefault(thread, ThreadCounts())


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

    def drop(self, source: object, counts: ThreadCounts) -> None:
        """Turn away what has come from *source*, which is over: it will be delivered again.

        One of an ordered partition stays: it is the only one, and its turn goes with it.
        """
        kept: list[Message | None] = []
        dropped: list[Message] = []
        with self._lock:
            with suppress(Empty):
                for _ in range(self.queue.qsize()):
                    message = self.queue.get_nowait()
                    if message is None or message._ordering or message._subscription is not source:
                        kept.append(message)
                    else:
                        dropped.append(message)
            for each in kept:
                self.queue.put(each)
        for message in dropped:
            counts.expired += 1
            message._answer = False
            message.body = b""  # its place may be remembered for long
            message._subscription.forget(message)


class Dispatcher(Protocol):
    """Who takes the messages of a consumer: a crew with a handler, or the application itself."""

    dirty: deque[Outbox]
    """Where acknowledgements wait."""
    gathering: Sequence[Message]
    """What is gathered for a batch that has not begun."""

    @property
    def thread_counts(self) -> list[ThreadCounts]:
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


def turn_away(message: Message, counts: ThreadCounts) -> None:
    """Not handled: it has expired, or the consumer drains and gives it back."""
    if message.expired:
        counts.expired += 1
        message._answer = False
        message._subscription.forget(message)
    else:
        message._give_back()
        counts.requeued += 1
    if message._ordering is not None:
        message._ordering.done(message, finished=False)


def flush_all(dirty: deque[Outbox]) -> None:
    """Send what waits."""
    while dirty:
        try:
            outbox = dirty.popleft()
        except IndexError:
            return
        outbox.flush()


def in_hands(dispatcher: Dispatcher, checked_out: CheckedOut) -> list[Message]:
    """What handlers run on, and what the application holds."""
    running = [message for counts in dispatcher.thread_counts for message in counts.in_hand()]
    # A handler that has just detached one still runs.
    return list(dict.fromkeys(running + checked_out.held()))


def count_held(dispatcher: Dispatcher, checked_out: CheckedOut) -> Counter[object]:
    """How many messages handlers and the application hold, by subscription; none that waits."""
    held = checked_out.counts()
    for counts in dispatcher.thread_counts:
        # What a handler has detached is counted already.
        held.update(
            each._subscription
            for each in counts.in_hand()
            if not each.answered and each._holder is None
        )
    held.update(each._subscription for each in dispatcher.gathering)
    return held


def busy_readers(dispatcher: Dispatcher, workers: int) -> set[object]:
    """The subscriptions whose reader hears nothing: with ``workers=0`` it runs the handler."""
    if workers:
        return set()
    return {
        message._subscription for counts in dispatcher.thread_counts for message in counts.in_hand()
    }


MakeDispatcher = Callable[[ConsumerRuntime], Dispatcher]
"""Makes the staff of a consumer that starts."""


class WorkerPool:
    """*workers* threads that run *handler*; with 0 the reader's thread runs it."""

    def __init__(self, handler: Handler, runtime: ConsumerRuntime, workers: int) -> None:
        self._handler = handler
        self._runtime = runtime
        self._workers = workers
        self._process = os.getpid()
        self._threads: list[Thread] = []
        self._results = Results()
        self._most_attempts = runtime.dead_letters.most_attempts
        self._box = Inbox()
        self.inbox = self._box.queue
        self.dirty: deque[Outbox] = deque()
        self.gathering: Sequence[Message] = ()
        self._thread_counts: dict[int, ThreadCounts] = {}
        self._dismissed = False
        self.replaced = 0
        """Workers that died and have a successor."""

    @property
    def thread_counts(self) -> list[ThreadCounts]:
        """The counts of every thread that has run the handler."""
        return list(self._thread_counts.values())

    def is_handling(self) -> bool:
        """Whether the calling thread is inside the handler."""
        counts = self._thread_counts.get(threading.get_ident())
        return counts is not None and counts.current is not None

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
        self._handle_all(messages, self._own_counts())
        self._flush()

    def dismiss(self) -> None:
        """Tell every worker to end once the inbox is empty."""
        self._dismissed = True
        self._box.end(len(self._threads))

    def drop(self, source: object) -> None:
        """From a reader that has ended: its messages are not handled."""
        self._box.drop(source, self._own_counts())

    def join(self, deadline: float) -> list[Message]:
        """Wait for the workers; the messages whose handlers still run at *deadline*."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - monotonic()))
        return [message for counts in self.thread_counts for message in counts.in_hand()]

    def end(self, error: BaseException | None) -> None:
        """Nobody waits here."""

    def _own_counts(self) -> ThreadCounts:
        """The counts of the calling thread."""
        return own_counts(self._thread_counts)

    def _work(self) -> None:
        counts = self._own_counts()
        while True:
            try:
                self._handle_all(self._incoming(), counts)
            except BaseException as error:
                message = _let_go(counts)
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

    def _handle_all(self, messages: Iterable[Message], counts: ThreadCounts) -> None:
        """Nearly every message comes by here: what is rare is done elsewhere."""
        runtime, handler, most = self._runtime, self._handler, self._most_attempts
        # One look at the clock a message. Before a handler it may be that behind the last one: what
        # came since then has not waited.
        now = monotonic()
        for message in messages:
            counts.current = message
            read_batch = message._read_batch
            ack = read_batch.ack
            rare = message._extras is not None or message.attempts > most or runtime.draining
            if rare or ack is None or now >= read_batch.deadline:
                self._handle(message, counts)
                now = monotonic()
                continue
            try:
                result = handler(message)
            except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its answer
                self._failed(message, counts, error)
                now = monotonic()
            else:
                now = monotonic()
                if (
                    result is None
                    and message._answer is None
                    and message._extras is None
                    and now < read_batch.deadline
                    and ack(message.id)
                ):
                    message._answer = True
                    counts.finished += 1
                    if runtime.watching:
                        runtime.on_result(message, ok=True)
                else:
                    self._ended(message, counts, result)
            counts.current = None

    def _handle(self, message: Message, counts: ThreadCounts) -> None:
        """One message, with all that can be."""
        counts.current = message
        if self._runtime.draining or message.expired:
            turn_away(message, counts)
            counts.current = None
            return
        try:
            result = self._handle_marked(message)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its answer
            self._failed(message, counts, error)
        else:
            self._ended(message, counts, result)
        counts.current = None
        ordering = message._ordering
        if ordering is not None and message._holder is None:
            ordering.done(message, finished=message.finished)

    def _handle_marked(self, message: Message) -> object:
        """The same for one that is traced or was touched, or has been tried too often."""
        if message._life is not None:
            message._life.note("started")
        if message.attempts <= self._most_attempts:
            return self._handler(message)
        message.skip()
        return None

    def _ended(self, message: Message, counts: ThreadCounts, result: object) -> None:
        """The handler returned something, or has answered or detached *message* itself."""
        end_child(self._process)
        how = self._results.read(result)
        if how is not None:
            self._requeue(message, counts, how)
            return
        if message._holder is not None:
            return  # detached: whoever has it answers
        if not message.answered:
            message.finish()
        elif message._slows is not None:
            counts.requeued += 1
            return
        if message.finished:
            counts.finished += 1
        else:
            counts.expired += 1
        if self._runtime.watching:
            self._runtime.on_result(message, ok=True)

    def _failed(self, message: Message, counts: ThreadCounts, error: BaseException) -> None:
        end_child(self._process, error)
        if not isinstance(error, Requeue):
            counts.failed += 1
            said = message_fields(message)
            log.error("handler failed on %r", message, exc_info=error, extra=said)
            if message._life is not None:
                # Not its text, which may hold the body.
                message._life.error = type(error).__name__
        self._requeue(message, counts, requeue_for(error))
        if not isinstance(error, Exception):
            self._runtime.on_fatal(error)

    def _requeue(self, message: Message, counts: ThreadCounts, how: Requeue) -> None:
        if not message.answered:
            with suppress(AlreadyResponded):  # detached, and answered just now
                message.requeue(how.delay, backoff=how.backoff)
        elif how.backoff and not message._slows:
            self._runtime.on_result(message, ok=False)
        if message._holder is not None:
            return
        counts.finished += message.finished
        counts.requeued += not message.finished


def _let_go(counts: ThreadCounts) -> Message | None:
    """What nobody can handle is the server's again; returns what it was."""
    message, counts.current = counts.current, None
    if message is not None:
        message._give_back()
        if message._ordering is not None:
            message._ordering.done(message, finished=False)
    return message
