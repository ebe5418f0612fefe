"""How a command that runs until told otherwise comes to its end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from time import monotonic
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

import nsqsmart
from nsqsmart.cli.waiting import TURN

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_HASTE = 0.5


class Ending:
    """Waits for the end: SIGINT, SIGTERM, or something inside. A second signal interrupts, and so
    does one before :meth:`begin`: there is nothing yet to end in order.

    ``interrupted`` says whether it was a signal; ``reason`` holds the error that ended it.
    """

    def __init__(self) -> None:
        # A handler may put into this queue while the main thread takes from it.
        self._tokens: SimpleQueue[BaseException | None] = SimpleQueue()
        self._before: dict[int, Any] = {}
        self._begun = self._ended = False
        self.interrupted = False
        self.reason: BaseException | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._handle) for each in _SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, previous in self._before.items():
            signal.signal(number, previous)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
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


class Closable(Protocol):
    """A Producer or a Consumer."""

    def close(self, timeout: float | None = None) -> object:
        """Wait so long for what is under way."""


@contextmanager
def in_haste(client: Closable) -> Iterator[None]:
    """Closes *client*; after Ctrl-C without waiting for what is under way."""
    try:
        yield
    except KeyboardInterrupt:
        client.close(timeout=_HASTE)
        raise
    finally:
        client.close()


def left(reports: Sequence[nsqsmart.CloseReport]) -> str:
    """What was left when it was drained, in words; ``""`` for nothing."""
    abandoned = sum(len(report.abandoned) for report in reports)
    return f"; {abandoned} still being handled, they come again" if abandoned else ""
