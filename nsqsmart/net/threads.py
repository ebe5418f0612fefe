"""The only place that makes threads: named, daemonic, and never ending silently."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("nsqsmart")

Thread = threading.Thread
"""For annotations elsewhere; only this module makes threads."""


def spawn(name: str, target: Callable[[], object]) -> Thread:
    """Start a daemon thread ``nsqsmart-<name>``; an exception that ends it is logged.

    Raises RuntimeError where none can start, as at the end of the process.
    """
    thread = Thread(target=_run, args=(target,), name=f"nsqsmart-{name}", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        # An interrupt while ``threading`` takes its lock again: it then releases one that it does
        # not hold. A caller that goes on without a thread must not go on after Ctrl-C.
        interrupt = error.__context__
        if interrupt is not None and not isinstance(interrupt, Exception):
            raise interrupt from None
        raise
    return thread


def _run(target: Callable[[], object]) -> None:
    try:
        target()
    except Exception:
        log.exception("thread %s ended by an error", threading.current_thread().name)
