"""What a handler may be, and what it says by what it returns."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

from nsqsmart.client.message import Message
from nsqsmart.client.requeue import Requeue

log = logging.getLogger("nsqsmart")

Handler = Callable[[Message], object]
BatchHandler = Callable[[list[Message]], object]


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
