"""Where a consumer's messages go: the dispatcher, and its form with threads that run the handler.

``batch_workers`` and ``poll`` have the other forms.
"""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from nsqsmart.client.messages.message import Handler, Message
from nsqsmart.client.messages.results import Requeue, Results, requeue_for
from nsqsmart.client.shared.log_fields import message_fields
from nsqsmart.client.shared.process import end_child
from nsqsmart.client.subscribing.consumer_runtime import ConsumerRuntime
from nsqsmart.errors import AlreadyResponded
from nsqsmart.net.threads import Thread, spawn
from nsqsmart.net.write_buffer import WriteBuffer

log = logging.getLogger("nsqsmart")


Runtime = ConsumerRuntime[Any]


class ThreadCounts:
    """Counts of one thread that runs the handler; only that thread writes them."""

    __slots__ = ("batch", "current", "expired", "failed", "finished", "requeued")

    def __init__(self) -> None:
        self.finished = self.requeued = self.failed = self.expired = 0
        self.current: Message | None = None
        self.batch: list[Message] | None = None

    def in_hand(self) -> list[Message]:
        """The messages that the handler runs on now."""
        current, batch = self.current, self.batch
        if batch is not None:
            return batch
        return [] if current is None else [current]


class Inbox:
    """Messages that no worker has taken yet, and None for the end.

    ``queue`` is used directly to put and get, but for the end and for :meth:`drop`, which exclude
    each other: a message put back after the end would never be handled.
    """

    def __init__(self) -> None:
        self.queue: SimpleQueue[Message | None] = SimpleQueue()
        self._lock = threading.Lock()

    def end(self, times: int) -> None:
        """Put None for each worker that waits."""
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


class Dispatcher(ABC):
    """Takes the messages that readers bring, for a handler or for the application itself.

    Attributes:
        inbox: what waits for a worker.
        dirty: write buffers in which acknowledgements wait.
        gathering: what is gathered for a batch that has not begun.
    """

    adapts_rdy = False
    """Whether connections get only as much RDY as keeps the handlers busy."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._most_attempts = runtime.dead_letters.most_attempts
        self._box = Inbox()
        self.inbox = self._box.queue
        self.dirty: deque[WriteBuffer] = deque()
        self.gathering: Sequence[Message] = ()
        self._thread_counts: dict[int, ThreadCounts] = {}

    @abstractmethod
    def is_handling(self) -> bool:
        """Whether the calling thread is handling a message."""

    @abstractmethod
    def start(self) -> None:
        """Start what threads there are."""

    @abstractmethod
    def deliver(self, messages: list[Message]) -> None:
        """From a reader: messages came."""

    @abstractmethod
    def dismiss(self) -> None:
        """Drain: requeue the messages that no handler has begun with."""

    @abstractmethod
    def join(self, deadline: float) -> list[Message]:
        """Wait for the handlers; the messages of those that still run at *deadline*."""

    @abstractmethod
    def end(self, error: BaseException | None) -> None:
        """The consumer has ended; *error* if from inside."""

    def drop(self, source: object) -> None:
        """What has come from *source*, a subscription that is over, and waits, is not handled."""
        self._box.drop(source, self._own_counts())

    @property
    def thread_counts(self) -> list[ThreadCounts]:
        """The counts of every thread that has handled messages."""
        return list(self._thread_counts.values())

    def running(self) -> list[Message]:
        """The messages that handlers run on."""
        return [message for counts in self.thread_counts for message in counts.in_hand()]

    def in_hand(self) -> list[Message]:
        """The messages that handlers run on, and those that the application has checked out."""
        # A handler that has just detached one still runs.
        return list(dict.fromkeys(self.running() + self._runtime.checked_out.held()))

    def count_in_hand(self) -> Counter[object]:
        """How many messages handlers and the application hold, by subscription; none that waits."""
        held = self._runtime.checked_out.counts()
        # What a handler has detached is counted already.
        held.update(
            each._subscription
            for each in self.running()
            if not each.answered and each._holder is None
        )
        held.update(each._subscription for each in self.gathering)
        return held

    def busy_readers(self) -> set[object]:
        """The subscriptions whose reader hears nothing, for it runs the handler."""
        return set()

    def _own_counts(self) -> ThreadCounts:
        """The counts of the calling thread; made the first time."""
        thread = threading.get_ident()
        known = self._thread_counts
        return known.get(thread) or known.setdefault(thread, ThreadCounts())

    def _flush(self) -> None:
        """Send what waits."""
        while self.dirty:
            try:
                buffer = self.dirty.popleft()
            except IndexError:
                return
            buffer.flush()


MakeDispatcher = Callable[[Runtime], Dispatcher]
"""Makes the Dispatcher of a consumer that starts."""


class WorkerPool(Dispatcher):
    """*workers* threads that run *handler*; with 0 the reader's thread runs it."""

    # Batches gather, and are best sent as many at once as there may be: BatchWorkerPool does not.
    adapts_rdy = True

    def __init__(self, handler: Handler, runtime: Runtime, workers: int) -> None:
        super().__init__(runtime)
        self._handler = handler
        self._workers = workers
        self._process = os.getpid()
        self._threads: list[Thread] = []
        self._results = Results()
        self._dismissed = False

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

    def join(self, deadline: float) -> list[Message]:
        """Wait for the workers; the messages whose handlers still run at *deadline*."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - monotonic()))
        return self.running()

    def busy_readers(self) -> set[object]:
        """With ``workers=0`` the reader's thread runs the handler."""
        return set() if self._workers else {each._subscription for each in self.running()}

    def end(self, error: BaseException | None) -> None:
        """Do nothing: no thread waits."""

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
                # No later message will reach the threshold: send what waits.
                flush()
        flush()

    def _handle_all(self, messages: Iterable[Message], counts: ThreadCounts) -> None:
        """Handle one message; nearly every message takes this path, rare cases have their own."""
        runtime, handler, most = self._runtime, self._handler, self._most_attempts
        # One look at the clock a message. Before a handler it may be that after the last one: what
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
        """Handle one message, with every rare case."""
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
        """Handle one message that is traced, was touched, or has been tried too often."""
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
            return  # detached: its new owner answers
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
    """Requeue the current message after an internal error; returns it."""
    message, counts.current = counts.current, None
    if message is not None:
        message._give_back()
        if message._ordering is not None:
            message._ordering.done(message, finished=False)
    return message
