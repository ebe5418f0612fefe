"""The workers: they take messages from the inbox, run the handler, and answer as it decided."""

from __future__ import annotations

import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic
from typing import Protocol

from nsqsmart.client.message import Message, Requeue
from nsqsmart.net.outbox import Outbox
from nsqsmart.net.threads import Thread, spawn

log = logging.getLogger("nsqsmart")

Handler = Callable[[Message], object]


class Boss(Protocol):
    """What the crew tells its consumer."""

    draining: bool
    watching: bool
    """Whether results matter to the backoff just now."""

    def on_result(self, message: Message, *, ok: bool) -> None:
        """A handler succeeded, or failed in a way that speaks for backing off."""

    def on_fatal(self, error: BaseException) -> None:
        """A handler raised SystemExit or KeyboardInterrupt: stop, and raise it from run()."""


class Tally:
    """Counts of one thread that runs the handler; only that thread writes them."""

    __slots__ = ("current", "expired", "failed", "finished", "requeued")

    def __init__(self) -> None:
        self.finished = self.requeued = self.failed = self.expired = 0
        self.current: Message | None = None


class Crew:
    """*workers* threads that run *handler*; with 0 the reader's thread runs it."""

    def __init__(self, handler: Handler, boss: Boss, workers: int) -> None:
        self._handler = handler
        self._boss = boss
        self._workers = workers
        self._threads: list[Thread] = []
        self._warned = False
        self.inbox: SimpleQueue[Message | None] = SimpleQueue()
        self.dirty: deque[Outbox] = deque()
        self._tallies: dict[int, Tally] = {}

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
            self._threads.append(spawn(f"worker-{number}", self._work))

    def deliver(self, messages: list[Message]) -> None:
        """From a reader: to the inbox, or straight to the handler."""
        if self._workers:
            put = self.inbox.put
            for message in messages:
                put(message)
            return
        tally = self._tally()
        for message in messages:
            self._handle(message, tally)
        self._flush()

    def dismiss(self) -> None:
        """Tell every worker to end once the inbox is empty."""
        for _ in self._threads:
            self.inbox.put(None)

    def join(self, deadline: float) -> list[Message]:
        """Wait for the workers; the messages whose handlers still run at *deadline*."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - monotonic()))
        return [tally.current for tally in self.tallies if tally.current is not None]

    def _tally(self) -> Tally:
        """The counts of the calling thread."""
        return self._tallies.setdefault(threading.get_ident(), Tally())

    def _work(self) -> None:
        tally = self._tally()
        inbox, handle, flush = self.inbox, self._handle, self._flush
        get, is_empty = inbox.get, inbox.empty
        while (message := get()) is not None:
            handle(message, tally)
            if is_empty():
                # Nobody will come by to reach the threshold: send what waits.
                flush()
        flush()

    def _flush(self) -> None:
        while self.dirty:
            try:
                outbox = self.dirty.popleft()
            except IndexError:
                return
            outbox.flush()

    def _handle(self, message: Message, tally: Tally) -> None:
        if self._boss.draining or monotonic() >= message.deadline:
            self._turn_away(message, tally)
            return
        tally.current = message
        if message.life is not None:
            message.life.note("started")
        try:
            result = self._handler(message)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is its answer
            self._failed(message, tally, error)
        except BaseException as error:  # noqa: BLE001 - SystemExit, KeyboardInterrupt
            self._failed(message, tally, error)
            self._boss.on_fatal(error)
        else:
            if result is None or result is True:
                self._succeeded(message, tally)
            else:
                self._returned(message, tally, result)
        tally.current = None
        lane = message.lane
        if lane is not None:
            lane.done(message, finished=message.finished)

    def _succeeded(self, message: Message, tally: Tally) -> None:
        if not message.answered:
            message.finish()
        tally.finished += 1
        if self._boss.watching:
            self._boss.on_result(message, ok=True)

    def _failed(self, message: Message, tally: Tally, error: BaseException) -> None:
        wish = error if isinstance(error, Requeue) else Requeue()
        if not isinstance(error, Requeue):
            tally.failed += 1
            log.error("handler failed on %r", message, exc_info=error)
            if message.life is not None:
                # Not its text, which may hold the body.
                message.life.error = type(error).__name__
        self._requeue(message, tally, wish)

    def _requeue(self, message: Message, tally: Tally, wish: Requeue) -> None:
        tally.requeued += 1
        if wish.backoff:
            # RDY 0 before REQ: sent back without a delay it would be here again at once.
            self._boss.on_result(message, ok=False)
        if not message.answered:
            message.requeue(wish.delay, backoff=wish.backoff)

    def _returned(self, message: Message, tally: Tally, result: object) -> None:
        """Something else than None and True."""
        if isinstance(result, Requeue):
            self._requeue(message, tally, result)
        elif result is False:
            self._requeue(message, tally, Requeue())
        elif inspect.isawaitable(result) or inspect.isgenerator(result):
            close = getattr(result, "close", None)
            if close:
                close()
            log.error(
                "the handler returned %s: it did not run; give a plain function",
                type(result).__name__,
            )
            self._requeue(message, tally, Requeue())
        else:
            if not self._warned:
                self._warned = True
                log.warning(
                    "the handler returned %s, taken for success: return None, True, "
                    "False or Requeue",
                    type(result).__name__,
                )
            self._succeeded(message, tally)

    def _turn_away(self, message: Message, tally: Tally) -> None:
        """Not handled: it has expired, or the consumer drains and gives it back."""
        if message.answered:
            return
        if message.expired:
            tally.expired += 1
            message.answered = True
            if message.life is not None:
                message.life.note("timed_out")
        else:
            message.give_back()
            tally.requeued += 1
        if message.lane is not None:
            message.lane.done(message, finished=False)
