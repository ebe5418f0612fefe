"""The demo's consumer, a process of its own: it shares no interpreter with the cluster.

It says on stdout how far it is, a line of JSON each second; the last one is the result.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from time import monotonic

import nsqsmart
from nsqsmart.spark.jobs.demo_logs import traced_to

_FAILS_EVERY = 1000
_PATIENCE = 600.0
_TELL = 1.0


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
