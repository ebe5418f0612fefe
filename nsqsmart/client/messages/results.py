"""What a handler may be, and what its return value or exception says."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger("nsqsmart")


def check_delay(delay: float | None) -> float | None:
    """Seconds, or a mistake that must not wait until a worker sends it."""
    if isinstance(delay, bool) or not isinstance(delay, int | float | None):
        raise TypeError(f"delay must be seconds, not {type(delay).__name__}")
    return delay


class Requeue(Exception):
    """Raise or return it in a handler: deliver the message again.

    Args:
        delay: seconds; None is the consumer's ``default_requeue_delay`` times the attempts.
        backoff: whether the consumer shall slow down, as after an error.
    """

    def __init__(self, delay: float | None = None, *, backoff: bool = True) -> None:
        super().__init__(delay, backoff)
        self.delay = check_delay(delay)
        self.backoff = backoff


def requeue_for(error: BaseException) -> Requeue:
    """What a handler that raised *error* wants: what ends the process delays no message."""
    if isinstance(error, Requeue):
        return error
    return Requeue() if isinstance(error, Exception) else Requeue(0.0)


def check_plain(name: str, given: object) -> Callable[..., Any]:
    """*given*, a plain callable; raises TypeError for anything that would not run when called."""
    if not callable(given):
        raise TypeError(f"{name} must be callable, not {type(given).__name__}")
    target = given if inspect.isroutine(given) else getattr(given, "__call__", given)  # noqa: B004
    for each in (given, target):
        if inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each):
            raise TypeError(
                f"{name} is an async function; give a plain one (or call asyncio.run in it)"
            )
    return given


class Results:
    """Reads what one handler returns, and complains of what it should not."""

    def __init__(self) -> None:
        self._warned = False

    def read(self, result: object) -> Requeue | None:
        """How to requeue; None is success."""
        if result is None or result is True:
            return None
        if isinstance(result, Requeue):
            return result
        if result is False:
            return Requeue()
        if did_not_run(result):
            log.error(
                "the handler returned %s: it did not run; give a plain function",
                type(result).__name__,
            )
            return Requeue()
        if not self._warned:
            self._warned = True
            log.warning(
                "the handler returned %s, taken for success: return None, True, False or Requeue",
                type(result).__name__,
            )
        return None


def did_not_run(result: object) -> bool:
    """Whether *result* only promises to work: an awaitable or a generator, which is closed."""
    if not (
        inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)
    ):
        return False
    close = getattr(result, "close", None)
    if close:
        close()
    return True
