"""Blocking until consumers have ended: on a signal, or when something inside wants it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Protocol

from nsqsmart.client.consuming.runtime import CloseReport
from nsqsmart.net.threads import Thread, spawn
from nsqsmart.terminal import signals_to

_SIGNAL = object()
_ENOUGH = object()
_LOOK_EVERY = 1.0


class Runnable(Protocol):
    """A consumer, as far as running it goes."""

    def check_runnable(self) -> None:
        """Raise RuntimeError if it has no handler."""

    def on_end(self, tell: Callable[[object], None]) -> None:
        """Have *tell* called, from any thread, with what ends it; with None when it has ended."""

    def start(self) -> object:
        """Subscribe."""

    def close(self, timeout: float | None = None) -> CloseReport:
        """Drain."""

    def has_ended(self) -> bool:
        """Whether a close is over."""


def run(
    *consumers: Runnable,
    until: Callable[[], bool] | None = None,
    on_ready: Callable[[], object] | None = None,
) -> tuple[CloseReport, ...]:
    """Start *consumers*, and block until SIGINT or SIGTERM, or until all are closed; then drain.

    All drain side by side, each within its ``close_timeout``; the reports are in their order.
    Signal handlers are installed in the main thread only, and restored. A second signal ends the
    drain at once, by KeyboardInterrupt. SystemExit or KeyboardInterrupt from a handler of one, and
    NotAuthorized, end all and are raised here; so is what start() of one raises. Raises TypeError
    without a consumer, RuntimeError for one that has no handler.

    *until*, if given, is asked once a second, in this thread: once it says True all are drained.
    What it raises is raised here after the drain.

    *on_ready*, if given, is called in this thread once all are started: from here on a signal
    drains, so this is the place to tell a supervisor. What it raises is raised here after a drain.
    """
    if not consumers:
        raise TypeError("run() needs at least one Consumer")
    tokens: SimpleQueue[object] = SimpleQueue()
    for consumer in consumers:
        consumer.check_runnable()
        consumer.on_end(tokens.put)
    with signals_to(lambda: tokens.put(_SIGNAL)):
        _start(consumers, on_ready)
        reason = _wait(consumers, tokens, until)
    if isinstance(reason, BaseException):
        raise reason
    return tuple(consumer.close() for consumer in consumers)


def _start(consumers: tuple[Runnable, ...], on_ready: Callable[[], object] | None) -> None:
    started = 0
    try:
        for consumer in consumers:
            consumer.start()
            started += 1
        if on_ready is not None:
            on_ready()
    except BaseException:
        for closer in _close(consumers[:started]):
            closer.join()
        raise


def _wait(
    consumers: tuple[Runnable, ...],
    tokens: SimpleQueue[object],
    until: Callable[[], bool] | None,
) -> object:
    """Until all have ended; what it was that began it."""
    reason: object = None
    # To the end: a consumer may have ended before this thread began to listen.
    while not (all(consumer.has_ended() for consumer in consumers) and tokens.empty()):
        token = _next(tokens, until if reason is None else None)
        if token is _SIGNAL and reason is not None:
            raise KeyboardInterrupt
        if token is not None and reason is None:
            reason = token
            _close(consumers)
    return reason


def _next(tokens: SimpleQueue[object], until: Callable[[], bool] | None) -> object:
    """The next event; of *until* if that comes first.

    Waited for in turns: a signal that comes just before a wait begins does not end that one.
    """
    while True:
        try:
            return tokens.get(timeout=_LOOK_EVERY)
        except Empty:
            try:
                if until is not None and until():
                    return _ENOUGH
            except Exception as error:  # noqa: BLE001 - it is raised after the drain
                return error


def _close(consumers: tuple[Runnable, ...]) -> list[Thread]:
    """Close them in parallel, on other threads: this one can receive a second signal."""
    return [
        spawn(f"closer-{number}", partial(consumer.close, None))
        for number, consumer in enumerate(consumers)
    ]
