"""Turns of consuming contestants: each gets as many messages as take it about so long.

A Python peer needs fifty times as long for a message as a bare loop does, so that the same number
for all would be either a blink or an afternoon: rates and CPU a message are compared, each over a
count of its own.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from contest import TOPIC, Entry, ask
from harness import HOST, Nsqd, Sample, connect
from loops import BODY, fill, stamped
from source import Load

_PROBE = 200
LATENCY_RATE = 100
_LATE = ("latency", "unbuffered", "buffered")
_WARM_SHARE = 10


class Table:
    """What they read from: the source, or an nsqd that is filled for each turn."""

    def __init__(self, source: Load | Nsqd) -> None:
        self._load = None if isinstance(source, Nsqd) else source
        self._server = source if isinstance(source, Nsqd) else None
        self._address = (HOST, source.tcp) if isinstance(source, Nsqd) else source.address

    def rounds(
        self, key: str, seats: dict[str, tuple[Entry, int]], rounds: int, seconds: float
    ) -> list[dict[str, Sample]]:
        """Every contestant once a round, beginning with another each time."""
        counts = {name: self._count(key, *seat, seconds) for name, seat in seats.items()}
        names = list(seats)
        found = []
        for number in range(rounds):
            first = number % len(names)
            turns = {}
            for name in names[first:] + names[:first]:
                entry, width = seats[name]
                turns[name] = self.play(entry, counts[name], width)
            found.append({name: turns[name] for name in names})
        return found

    def play(self, entry: Entry, count: int, width: int) -> Sample:
        """One turn; on an nsqd a topic of its own, with more than is asked for."""
        warm = 1 if entry.verb == "memory" else max(1, count // _WARM_SHARE)
        if self._server is None:
            return self._watched(entry, count, warm, width)
        ask(self._server, "POST", f"/topic/create?topic={TOPIC}")
        ask(self._server, "POST", f"/channel/create?topic={TOPIC}&channel=bench")
        try:
            if entry.verb in _LATE:
                with feed(self._server, self._address):
                    return self._order(entry, count, warm, width)
            fill(self._address, TOPIC, count + warm + 4 * _PROBE)
            return self._order(entry, count, warm, width)
        finally:
            ask(self._server, "POST", f"/topic/delete?topic={TOPIC}")

    def _watched(self, entry: Entry, count: int, warm: int, width: int) -> Sample:
        """A turn at the source, and what that cost it."""
        assert self._load is not None
        before = self._load.cpu()
        sample = self._order(entry, count, warm, width)
        spent = self._load.cpu() - before
        return sample._replace(source=spent / (count + warm) * 1e6)

    def _order(self, entry: Entry, count: int, warm: int, width: int) -> Sample:
        host, port = self._address
        order = (entry.verb, host, port, TOPIC, count, warm, width, len(BODY))
        return entry.contestant.play(" ".join(map(str, order)))

    def _count(self, key: str, entry: Entry, width: int, seconds: float) -> int:
        """How many messages take this one about *seconds*, by a turn that does not count."""
        if key == "memory":
            return 2
        if entry.verb in _LATE:
            return max(20, int(seconds * LATENCY_RATE))
        rate = self.play(entry, _PROBE, width).rate
        rate = self.play(entry, max(_PROBE, int(rate * seconds / 4)), width).rate
        return max(_PROBE, int(rate * seconds))


def is_consumed(server: Nsqd) -> bool:
    """Whether a client is ready for messages."""
    stats = json.loads(ask(server, "GET", f"/stats?format=json&topic={TOPIC}"))
    channels = (channel for topic in stats["topics"] for channel in topic["channels"])
    return any(each["ready_count"] > 0 for channel in channels for each in channel["clients"])


@contextmanager
def feed(server: Nsqd, address: tuple[str, int]) -> Iterator[None]:
    """Once a consumer reads, a hundred messages a second, each with the time it left.

    What was there before them would be late by no fault of theirs.
    """
    over = threading.Event()

    def publish() -> None:
        while not is_consumed(server) and not over.wait(0.01):
            pass
        head = b"PUB %s\n" % TOPIC.encode() + len(BODY).to_bytes(4)
        with connect(address) as sock:
            due = time.monotonic()
            while not over.wait(max(0.0, due - time.monotonic())):
                due += 1 / LATENCY_RATE
                sock.sendall(head + stamped(time.time_ns()))
                sock.recv(4096)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
