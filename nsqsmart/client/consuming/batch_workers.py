"""Batches: one worker gathers, the others handle what was gathered."""

from __future__ import annotations

import logging
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic

from nsqsmart.client.consuming.workers import Runtime, ThreadCounts, WorkerPool, turn_away
from nsqsmart.client.messages.message import BatchHandler, Message
from nsqsmart.client.messages.results import Requeue, requeue_for
from nsqsmart.client.shared.log_fields import message_fields
from nsqsmart.client.shared.process import end_child
from nsqsmart.config import ConsumerConfig
from nsqsmart.errors import AlreadyResponded

log = logging.getLogger("nsqsmart")


class BatchWorkerPool(WorkerPool):
    """Runs *handler* on lists of messages; what it has not answered is answered by its end.

    A batch is as large as ``batch_max_messages``, or what came within ``batch_max_delay`` of the
    first one; it does not wait where the servers send no more before they are answered. On an
    ordered topic that is always so: a batch has at most one message of a partition.
    """

    adapts_rdy = False

    def __init__(self, handler: BatchHandler, runtime: Runtime, config: ConsumerConfig) -> None:
        super().__init__(_alone, runtime, config.workers)
        self._batch_handler = handler
        self._most = config.batch_max_messages
        self._longest = config.batch_max_delay
        # The worker that has it gathers: two would split one batch between them.
        self._turn: SimpleQueue[None] = SimpleQueue()
        self._turn.put(None)

    def _work(self) -> None:
        counts = self._own_counts()
        on = True
        while on:
            self._turn.get()
            try:
                messages, on = self._gather()
            finally:
                self.gathering = ()
                self._turn.put(None)
            try:
                self._handle_batch(messages, counts)
            except Exception:
                log.exception("a worker failed on a batch of %d messages", len(messages))
            counts.current, counts.batch = None, None
            if self.inbox.empty():
                self._flush()
        self._flush()

    def _gather(self) -> tuple[list[Message], bool]:
        """The next batch, and whether there will be another."""
        first = self.inbox.get()
        if first is None:
            return [], False
        messages, now = [first], monotonic()
        self.gathering = messages
        # Half of its time is the handler's.
        until = now + min(self._longest, (first.deadline - now) / 2)
        take = self.inbox.get_nowait
        while len(messages) < self._most:
            try:
                message = take()
            except Empty:
                try:
                    message = self._await(until)
                except Empty:
                    break
            if message is None:
                return messages, False
            messages.append(message)
        return messages, True

    def _await(self, until: float) -> Message | None:
        """The next one, if it comes by then; raises Empty, at once where none can come."""
        left = until - monotonic()
        if left <= 0 or self._runtime.draining:
            raise Empty
        self._flush()
        if self._runtime.is_starved():
            # One may have come while the answers left.
            return self.inbox.get_nowait()
        return self.inbox.get(timeout=left)

    def _is_for_batch(self, message: Message, counts: ThreadCounts, now: float) -> bool:
        if self._runtime.draining or now >= message.deadline:
            turn_away(message, counts)
        elif message.attempts > self._most_attempts:
            # By itself: its failure is not that of the batch.
            self._handle(message, counts)
        else:
            return True
        return False

    def _handle_batch(self, gathered: list[Message], counts: ThreadCounts) -> None:
        now = monotonic()
        plain = not self._runtime.draining
        messages = [
            each
            for each in gathered
            if (plain and each.attempts <= self._most_attempts and now < each._read_batch.deadline)
            or self._is_for_batch(each, counts, now)
        ]
        if not messages:
            return
        counts.current, counts.batch = messages[0], messages
        for message in messages:
            if message._extras is not None and message._life is not None:
                message._life.note("started")
        self._run_batch(messages, counts)
        counts.current, counts.batch = None, None
        for message in messages:
            ordering = message._read_batch.source.ordering
            if ordering is not None and message._holder is None:
                ordering.done(message, finished=message.finished)

    def _run_batch(self, messages: list[Message], counts: ThreadCounts) -> None:
        try:
            # A list of its own, which the handler may change.
            result = self._batch_handler(list(messages))
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its answer
            end_child(self._process, error)
            if not isinstance(error, Requeue):
                self._blame(messages, counts, error)
            self._requeue_batch(messages, counts, requeue_for(error))
            if not isinstance(error, Exception):
                self._runtime.on_fatal(error)
            return
        end_child(self._process)
        how = None if result is None else self._results.read(result)
        if how is not None:
            self._requeue_batch(messages, counts, how)
            return
        now = monotonic()
        for message in messages:
            # Message.finish() without its rare cases: nearly every message takes this path.
            read_batch = message._read_batch
            plain = (
                message._answer is None and message._extras is None and now < read_batch.deadline
            )
            if plain and read_batch.ack is not None and read_batch.ack(message.id):
                message._answer = True
                counts.finished += 1
            else:
                self._finish_one(message, counts)
        if self._runtime.watching and not any(message._slows for message in messages):
            # The newest one is what a probe has brought.
            self._runtime.on_result(max(messages, key=_age), ok=True)

    def _blame(self, messages: list[Message], counts: ThreadCounts, error: BaseException) -> None:
        said = message_fields(messages[0])
        log.error("handler failed on a batch of %d", len(messages), exc_info=error, extra=said)
        for message in messages:
            counts.failed += not message.answered
            if message._life is not None:
                # Not its text, which may hold a body.
                message._life.error = type(error).__name__

    def _finish_one(self, message: Message, counts: ThreadCounts) -> None:
        if message._holder is not None:
            return
        if not message.answered:
            message.finish()
        if message.finished:
            counts.finished += 1
        elif message._slows is not None:
            counts.requeued += 1
        else:
            counts.expired += 1

    def _requeue_batch(self, messages: list[Message], counts: ThreadCounts, how: Requeue) -> None:
        if how.backoff and all(message.finished for message in messages):
            self._runtime.on_result(messages[-1], ok=False)
        for message in messages:
            # The first one stops the flow; the others say no more than that.
            if not message.answered:
                with suppress(AlreadyResponded):  # detached, and answered just now
                    message.requeue(how.delay, backoff=how.backoff)
            if message._holder is None:
                counts.finished += message.finished
                counts.requeued += not message.finished


def _age(message: Message) -> float:
    return message.received_at


def _alone(_message: Message) -> None:
    """The handler for single messages: never runs, because only given-up ones get here."""
