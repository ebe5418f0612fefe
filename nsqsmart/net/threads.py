"""The only place that makes threads: named, daemonic, and never ending silently."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("nsqsmart")

Thread = threading.Thread
"""For annotations elsewhere; nobody else makes one."""


def spawn(name: str, target: Callable[[], object]) -> Thread:
    """Start a daemon thread ``nsqsmart-<name>``; an exception that ends it is logged."""
    thread = Thread(target=_run, args=(target,), name=f"nsqsmart-{name}", daemon=True)
    thread.start()
    return thread


def _run(target: Callable[[], object]) -> None:
    try:
        target()
    except Exception:
        log.exception("thread %s ended by an error", threading.current_thread().name)
