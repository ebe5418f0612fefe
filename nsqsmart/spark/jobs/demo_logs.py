"""A trace log in a file of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nsqsmart import tracing


class _File(logging.FileHandler):
    """Written in blocks: to flush after every line costs more than all the rest."""

    def flush(self) -> None:
        """Not now; closing the file does it."""


@contextmanager
def traced_to(path: Path, topic: str) -> Iterator[None]:
    """Within it *topic* is traced, and nothing of it goes to other logs."""
    log = logging.getLogger("nsqsmart.trace")
    level, propagate = log.level, log.propagate
    handler = _File(path)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    tracing.enable(topic)
    try:
        yield
    finally:
        tracing.disable(topic)
        log.setLevel(level)
        log.propagate = propagate
        log.removeHandler(handler)
        handler.close()
