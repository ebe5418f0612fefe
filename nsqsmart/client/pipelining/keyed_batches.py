"""Keyed messages of publish_async: one batch of a partition at a time, in order."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from queue import SimpleQueue
from time import monotonic

from nsqsmart.client.pipelining.pending import Pending
from nsqsmart.client.shared.arguments import Publication
from nsqsmart.client.shared.receipt import Receipt
from nsqsmart.errors import MessageRejected, Outcome, PublishError, PublishFailed
from nsqsmart.net.threads import Thread, spawn

log = logging.getLogger("nsqsmart")

Task = Callable[[], object]

Place = tuple[str, int]
Send = Callable[[Publication, float], Receipt]
Settle = Callable[[Pending, Receipt | PublishError], None]
Take = Callable[[Pending], bool]

_MAX_MESSAGES = 1000
_MAX_BYTES = 1024 * 1024


class Executor:
    """At most *limit* threads named ``nsqsmart-<name>``; those that are there stay."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._lock = threading.Lock()  # guards the four below
        self._idle = self._begun = 0
        self._threads: list[Thread] = []
        self._closed = False

    def do(self, task: Task) -> None:
        """Have *task* done soon; in the caller's thread where no other is left to do it."""
        with self._lock:
            number = self._begun
            needed = self._idle == 0 and number < self._limit and not self._closed
            self._begun += needed
            self._idle -= self._idle > 0
        if needed:
            self._begin(number)
        with self._lock:
            alone = self._closed or not self._threads
            if not alone:
                # Under the lock: no task is queued after the end.
                self._tasks.put(task)
        if alone:
            task()

    def _begin(self, number: int) -> None:
        try:
            thread = spawn(f"{self._name}-{number}", self._run)
        except RuntimeError:
            # Threads cannot start any more, as in atexit.
            with self._lock:
                self._begun -= 1
            return
        # If it was closed meanwhile, the thread ends by itself: no task waits for it.
        with self._lock:
            self._threads.append(thread)

    def close(self) -> None:
        """Let the threads end when they have done what there is."""
        with self._lock:
            self._closed = True
            threads = self._threads[:]
            self._tasks.put(None)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except Exception:
                log.exception("publish_async: a task failed")
            with self._lock:
                self._idle += 1
        self._tasks.put(None)  # for the next one


class KeyedBatches:
    """Messages that gather while a batch is unanswered leave as the next batch.

    *send* publishes and retries; *settle* is told the outcome of each message; *take* says whether
    it still waits, and has not ended at its deadline.
    """

    def __init__(self, executor: Executor, send: Send, settle: Settle, take: Take) -> None:
        self._executor = executor
        self._send = send
        self._settle = settle
        self._take = take
        self._changed = threading.Condition(threading.Lock())  # guards the two below
        self._waiting: dict[Place, deque[Pending]] = {}
        self._served: set[Place] = set()

    def put(self, partition: int, pending: Pending) -> None:
        """Queue *pending* after everything else of its partition."""
        place = (pending.topic, partition)
        with self._changed:
            self._waiting.setdefault(place, deque()).append(pending)
            if place in self._served:
                return
            self._served.add(place)
        self._executor.do(lambda: self._serve(place))

    def wait_idle(self, topic: str, deadline: float) -> None:
        """Return when nothing of *topic* is in flight, at the latest at *deadline*."""
        with self._changed:
            while any(place[0] == topic for place in self._served):
                left = deadline - monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)

    def _serve(self, place: Place) -> None:
        while True:
            with self._changed:
                queue = self._waiting.get(place)
                if not queue:
                    self._waiting.pop(place, None)
                    self._served.discard(place)
                    self._changed.notify_all()
                    return
                batch = [pending for pending in _next_run(queue) if self._take(pending)]
            if not batch:
                continue
            try:
                self._publish(place[1], batch)
            except Exception as error:  # a defect; but no caller shall wait in vain
                log.exception("publish_async: partition %d of %s", place[1], place[0])
                for pending in batch:
                    self._settle(pending, PublishFailed(str(error), outcome=Outcome.UNCERTAIN))

    def _publish(self, partition: int, batch: list[Pending]) -> None:
        first = batch[0].publication
        together = first._replace(
            key=None,
            partition=partition,
            bodies=tuple(pending.body for pending in batch),
            trace_ids=tuple(each for pending in batch for each in pending.trace_ids),
            batch=len(batch) > 1,
        )
        try:
            receipt = self._send(together, batch[0].deadline)
        except MessageRejected as error:
            if len(batch) == 1:
                self._settle(batch[0], error)
                return
            # One of them is to blame, and nothing of a refused batch is stored.
            for pending in batch:
                self._publish(partition, [pending])
        except PublishError as error:
            for pending in batch:
                self._settle(pending, error)
        else:
            for number, pending in enumerate(batch):
                self._settle(pending, _share(receipt, pending, number))


def _next_run(queue: deque[Pending]) -> list[Pending]:
    """Take from the head what can go in one command."""
    count = sum(1 for _ in _alike(queue))
    return [queue.popleft() for _ in range(count)]


def _alike(queue: deque[Pending]) -> Iterator[Pending]:
    first = queue[0].publication
    size, now = 0, monotonic()
    for pending in islice(queue, _MAX_MESSAGES):
        publication = pending.publication
        size += len(pending.body)
        different = (
            publication.headers is not first.headers
            or publication.tag != first.tag
            or bool(publication.trace_ids) != bool(first.trace_ids)
            # A message with less time, or none left, must not end the others.
            or pending.patience != queue[0].patience
            or (pending.deadline <= now) != (queue[0].deadline <= now)
        )
        if pending is not queue[0] and (different or size > _MAX_BYTES):
            return
        yield pending


def _share(receipt: Receipt, pending: Pending, number: int) -> Receipt:
    """The receipt of the message at *number* of a batch."""
    if receipt.trace_id is not None:
        return receipt.share(number, pending.trace_ids[0])
    return Receipt(receipt.topic, receipt.partition, receipt.nsqd, receipt.attempts)
