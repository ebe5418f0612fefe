"""Waiting in the main thread, and how a command that runs until it is told otherwise ends.

A wait is made of short turns. A signal that comes between the interpreter's last look and the call
that blocks does not end that call: its handler runs when the call returns, which must be soon.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Condition
from time import monotonic, sleep
from typing import Self

import nsqsmart
from nsqsmart import Pending, Receipt
from nsqsmart.terminal import INTERRUPTED, signals_to

TURN = 0.25
"""Seconds."""

_HASTE = 0.5


def pause(seconds: float) -> None:
    """Sleep."""
    until = monotonic() + seconds
    while (rest := until - monotonic()) > 0:
        sleep(min(rest, TURN))


def result_of(pending: Pending) -> Receipt:
    """The receipt; raises PublishError."""
    while not pending.done():
        try:
            return pending.result(TURN)
        except TimeoutError:
            # PublishTimeout is one too: then it is done.
            continue
    return pending.result()


def wait_for(condition: Condition, is_so: Callable[[], bool], seconds: float) -> None:
    """Until it is so, or *seconds* are over. *condition* is held."""
    until = monotonic() + seconds
    while (rest := until - monotonic()) > 0:
        if condition.wait_for(is_so, min(rest, TURN)):
            return


def is_readable(descriptor: int, until: float | None) -> bool:
    """Whether there is something to be read, or the end; False at *until* (monotonic seconds)."""
    while True:
        rest = TURN if until is None else max(0.0, until - monotonic())
        if select.select([descriptor], [], [], min(rest, TURN))[0]:
            return True
        if until is not None and monotonic() >= until:
            return False


class Ending:
    """Waits for the end: SIGINT, SIGTERM, or something inside. A second signal interrupts, and so
    does one before :meth:`begin`: there is nothing yet to end in order.

    ``interrupted`` says whether it was a signal; ``reason`` holds the error that ended it.
    """

    def __init__(self) -> None:
        # A handler may put into this queue while the main thread takes from it.
        self._tokens: SimpleQueue[BaseException | None] = SimpleQueue()
        self._begun = self._ended = False
        self.interrupted = False
        self.reason: BaseException | None = None

    def __enter__(self) -> Self:
        self._signals = signals_to(self._interrupt)
        self._signals.__enter__()
        return self

    def __exit__(self, *_error: object) -> None:
        self._signals.__exit__(None, None, None)

    def _interrupt(self) -> None:
        if self.interrupted or not self._begun:
            raise KeyboardInterrupt
        self.interrupted = True
        self._tokens.put(None)

    def begin(self) -> None:
        """From here on a signal ends it in order; for the first message, or before it is told.

        A consumer hands out messages while the main thread still waits for others to subscribe.
        """
        self._begun = True

    def end(self, reason: object = None) -> None:
        """End it, from any thread; *reason* is raised where it is waited for if it is an error."""
        self._tokens.put(reason if isinstance(reason, BaseException) else None)

    def wait(self, timeout: float) -> bool:
        """Whether it has come to the end; after *timeout* seconds it has not."""
        if not self._ended:
            self.begin()
            try:
                self.reason = self._tokens.get(timeout=timeout)
            except Empty:
                return False
            self._ended = True
        return True

    def exit_code(self, command: str, story: str, reports: Iterable[nsqsmart.CloseReport]) -> int:
        """0, or 130 after a signal: then *story* is told on stderr, and what was left."""
        if not self.interrupted:
            return 0
        abandoned = sum(len(report.abandoned) for report in reports)
        left = f"; {abandoned} still being handled, they come again" if abandoned else ""
        print(f"nsqsmart {command}: interrupted: {story}{left}", file=sys.stderr)
        return INTERRUPTED


def consume(
    consumers: Sequence[nsqsmart.Consumer],
    ending: Ending,
    *,
    close_timeout: float,
    tick: Callable[[], object] = lambda: None,
) -> list[nsqsmart.CloseReport]:
    """Run *consumers* until the end, call *tick* now and then, and drain them.

    All are paused first and share *close_timeout* seconds. Raises what ended them from inside.
    """
    try:
        for consumer in consumers:
            consumer.on_end(ending.end)
            consumer.start()
        while not ending.wait(TURN):
            tick()
    except KeyboardInterrupt:
        # Nothing was handed out so far, or it is the second one: there is nothing to wait for.
        close_timeout = 0.0
        raise
    finally:
        deadline = monotonic() + close_timeout
        for consumer in consumers:
            consumer.pause()
        reports = [
            consumer.close(timeout=max(0.0, deadline - monotonic())) for consumer in consumers
        ]
    if ending.reason is not None:
        raise ending.reason
    return reports


def keep(messages: Iterable[nsqsmart.Message]) -> None:
    """Neither finish nor requeue *messages*: the end gives them back, once it asks for no more.

    Given back before that they would come again at once, as often as the end takes time for, with
    one attempt more each time: another consumer may count them as failed too often.
    """
    for message in messages:
        message.detach()


@contextmanager
def in_haste(client: nsqsmart.Producer | nsqsmart.Consumer) -> Iterator[None]:
    """Closes *client*; after Ctrl-C without waiting for what is under way."""
    try:
        yield
    except KeyboardInterrupt:
        client.close(timeout=_HASTE)
        raise
    finally:
        client.close()
