"""How a consumer ends, on a clock that its waits turn."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from nsqsmart.client.consuming import runtime as closing_module
from nsqsmart.client.consuming.runtime import RunningConsumer


class Stuck:
    """A subscription that takes no end."""

    write_buffer = None
    ordering = None

    def __init__(self, runtime: FakeConsumer) -> None:
        self._runtime = runtime
        self.close_wait = threading.Event()
        self.close_wait.set()

    def hang_up(self) -> None:
        self._runtime.told.append("hang up")

    def send_all(self, deadline: float) -> None: ...

    def join(self, deadline: float) -> bool:
        self._runtime.told.append("join")
        self._runtime.now = max(self._runtime.now, deadline)
        return False


class FakeConsumer(RunningConsumer):
    """Stands for the consumer, its threads and what it counts."""

    def __init__(self, subscriptions: int) -> None:
        self.now = 1000.0
        self.told: list[str] = []
        self.config = SimpleNamespace(workers=4)
        self.supervisor = self.dead_letters = self.ticker = self.dispatcher = self
        self.checked_out = SimpleNamespace(finished=0, requeued=0, give_back=list)
        self.channel_positions = SimpleNamespace(channels_lost=0)
        self.timeouts = SimpleNamespace(count=0)
        self.thread_counts: list[object] = []
        self.given_up = 0
        self._subscriptions = [Stuck(self) for _ in range(subscriptions)]

    def snapshot(self) -> list[Stuck]:
        return list(self._subscriptions)

    def busy_readers(self) -> set[object]:
        return set()

    def begin_drain(self) -> None: ...

    def dismiss(self) -> None: ...

    def close(self, deadline: float = 0.0) -> None: ...

    def join(self, deadline: float) -> list[object]:
        return []


@pytest.mark.parametrize(("timeout", "took"), [(0, 1), (5, 5)])
def test_connections_that_do_not_end_are_waited_for_together(monkeypatch, timeout, took):
    runtime = FakeConsumer(subscriptions=8)
    monkeypatch.setattr(closing_module, "monotonic", lambda: runtime.now)
    assert runtime.drain(runtime.now + timeout).clean
    assert runtime.now == 1000 + took
    assert runtime.told[-16:] == ["hang up"] * 8 + ["join"] * 8
