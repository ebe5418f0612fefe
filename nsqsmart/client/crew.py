"""The workers: they take messages from the inbox, run the handler, and answer as it decided."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic

from nsqsmart.client.children import end_child
from nsqsmart.client.facts import facts_of
from nsqsmart.client.message import Message
from nsqsmart.client.requeue import Requeue, wish_of
from nsqsmart.client.results import Handler, Results
from nsqsmart.client.staff import Boss, Inbox, Tally, flush_all, own_tally, turn_away
from nsqsmart.errors import AlreadyResponded
from nsqsmart.net.outbox import Outbox
from nsqsmart.net.threads import Thread, spawn

log = logging.getLogger("nsqsmart")


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
