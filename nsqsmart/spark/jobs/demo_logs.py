"""A trace log in a file of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nsqsmart import tracing

_BLOCK = 1 << 18


class _File(logging.Handler):
    """Lines of ASCII to a file, in large blocks.

    Without a handler's lock: two threads that log all the time would wait for each other at every
    line, at three times the cost. A buffered file has its own, which a line seldom meets.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("ab", _BLOCK)

    def createLock(self) -> None:  # noqa: N802 - logging calls it so
        """None."""
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write its message, which is the line."""
        self._file.write(f"{record.msg}\n".encode("ascii"))

    def close(self) -> None:
        """Write what is left."""
        self._file.close()
        super().close()


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
