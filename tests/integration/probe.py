"""The barest publisher there is, to compare ours with: a bound for every other one."""

from __future__ import annotations

import contextlib
import socket
import threading
from itertools import count
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from nsqsmart.wire import commands
from nsqsmart.wire.frames import ERROR, HEARTBEAT, FrameDecoder
from tests.programs import get

_DIAL = 1.0


class Plan(NamedTuple):
    """Where to, and how: a message each *pace* seconds, but not before the last one is stored."""

    url: str
    topic: str
    partitions: int
    mark: str
    pace: float
    options: dict[str, Any]


class Probe:
    """Publishes to one partition on one connection, one message at a time.

    Whenever something fails it looks up and connects anew; while an answer is overdue it looks up
    too, and goes where the lookups say. It looks up as often as a producer may.
    """

    def __init__(self, plan: Plan, partition: int) -> None:
        self.times: list[float] = []
        """When a message was stored."""
        self.stored: list[bytes] = []
        hosts = urlsplit(plan.url).netloc.split(",")
        self._lookups = [int(host.rpartition(":")[2]) for host in hosts]
        self._plan, self._partition = plan, partition
        self._every = plan.options.get("lookupd_min_refresh_interval", 1.0)
        self._stop = threading.Event()
        self._sock: socket.socket | None = None
        self._leader: tuple[str, int] | None = None
        self._look_at = 0.0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        try:
            for number in count():
                body = f"{self._plan.mark} probe probe{self._partition} {number}".encode()
                while not self._try(body):
                    self._hang_up()
                    if self._stop.is_set():
                        return
                self.times.append(monotonic())
                self.stored.append(body)
                if self._stop.wait(self._plan.pace):
                    return
        finally:
            self._hang_up()

    def _try(self, body: bytes) -> bool:
        """Whether the answer to it was OK."""
        try:
            if self._sock is None and not self._connect():
                return False
            self._sock.sendall(commands.pub(self._plan.topic, body, self._partition))
            return self._answer()
        except OSError:
            return False

    def _connect(self) -> bool:
        self._stop.wait(max(0.0, self._look_at - monotonic()))
        self._leader = self._look_up()
        if self._leader is None:
            return False
        self._sock = socket.create_connection(self._leader, _DIAL)
        self._sock.sendall(b"  V2")
        self._decoder = FrameDecoder()
        return True

    def _look_up(self) -> tuple[str, int] | None:
        self._look_at = monotonic() + self._every
        for lookup in self._lookups:
            status, document = get(lookup, f"/lookup?topic={self._plan.topic}&access=w")
            found = document.get("partitions") or {} if status == 200 else {}
            node = found.get(str(self._partition))
            if node:
                return node["broadcast_address"], node["tcp_port"]
        return None

    def _answer(self) -> bool:
        while not self._stop.is_set():
            self._sock.settimeout(max(0.001, self._look_at - monotonic(), self._every / 10))
            try:
                data = self._sock.recv(4096)
            except TimeoutError:
                if monotonic() >= self._look_at and self._look_up() not in (None, self._leader):
                    return False
                continue
            if not data:
                return False
            for frame in self._decoder.feed(data):
                if frame.data == HEARTBEAT:
                    self._sock.sendall(commands.NOP)
                else:
                    return frame.type != ERROR
        return False

    def _hang_up(self) -> None:
        if self._sock:
            with contextlib.suppress(OSError):
                self._sock.close()
        self._sock = None
