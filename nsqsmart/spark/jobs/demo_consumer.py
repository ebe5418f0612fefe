"""The demo's consumer, a process of its own: it shares no interpreter with the cluster.

It says on stdout how far it is, a line of JSON each second; the last one is the result. Both it and
the demo's publisher write their trace log by :func:`traced_to`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import nsqsmart
from nsqsmart import tracing

_BLOCK = 1 << 18

_FAILS_EVERY = 1000
_PATIENCE = 600.0
_TELL = 1.0


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


class Handling:
    """Counts; every thousandth message fails at first."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()  # guards the two below
        self.handled = 0
        self.requeued = 0
        self.done = threading.Event()

    def handle(self, message: nsqsmart.Message) -> None:
        """Finish it, or give it back once."""
        number = int(message.body[message.body.rindex(b":") + 1 : -1])
        fails = number % _FAILS_EVERY == 0 and message.attempts == 1
        with self._lock:
            self.handled += not fails
            self.requeued += fails
            if self.handled >= self._count:
                self.done.set()
        if fails:
            raise nsqsmart.Requeue(0.05, backoff=False)


def main(url: str, topic: str, channel: str, log: str, count: str) -> None:
    """Consume *count* messages, or for as long as the demo is there."""
    handling = Handling(int(count))
    parent, until = os.getppid(), monotonic() + _PATIENCE
    with traced_to(Path(log), topic):
        consumer = nsqsmart.Consumer(
            topic,
            channel,
            handling.handle,
            address=url,
            workers=0,
            max_in_flight=2000,
            rdy_mode="level",
        )
        with consumer:
            while not handling.done.wait(_TELL) and monotonic() < until:
                if os.getppid() != parent:
                    break
                _tell(handled=handling.handled)
        finished = consumer.stats().finished
    _tell(handled=handling.handled, requeued=handling.requeued, finished=finished)


def _tell(**figures: int) -> None:
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
