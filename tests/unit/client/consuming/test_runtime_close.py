"""How a consumer ends, on a clock that its waits turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from nsqsmart.client.consuming import runtime as closing_module
from nsqsmart.client.consuming.runtime import RunningConsumer
from nsqsmart.errors import ClientClosed
from nsqsmart.net.waiters import Waiter
from tests.helpers import eventually
from tests.interrupts import count_places, interrupted_at


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


class Starting(FakeConsumer):
    """A consumer whose workers take their time to start."""

    begin_drain = RunningConsumer.begin_drain

    def __init__(self) -> None:
        super().__init__(subscriptions=0)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._starting, self._first_error = threading.Lock(), None
        self.draining = False
        self.config.dial_timeout = 0.0
        self.rdy_controller = SimpleNamespace(stop=list)
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.dispatcher = SimpleNamespace(start=self._start_workers)
        told = SimpleNamespace(start=list)
        self._rounds = self.ticker = told
        self.supervisor = SimpleNamespace(
            start=lambda: self.told.append("begun"), topology=None, failure="none"
        )

    def _start_workers(self) -> None:
        self.begun.set()
        assert self.go_on.wait(10)


def test_a_drain_waits_until_a_start_has_begun_every_thread():
    runtime, waits = Starting(), threading.Event()

    @contextmanager
    def waiting(starting: Waiter) -> Iterator[None]:
        waits.set()
        with starting:
            yield

    def drain() -> None:
        runtime.begin_drain()
        runtime.told.append("drained")

    threads = [threading.Thread(target=each) for each in (runtime.start, drain)]
    threads[0].start()
    assert runtime.begun.wait(10)
    runtime._starting = waiting(runtime._starting)
    threads[1].start()
    eventually(lambda: waits.is_set() or runtime.told)
    runtime.go_on.set()
    for thread in threads:
        thread.join(10)
    assert runtime.told == ["begun", "drained"]
    with pytest.raises(ClientClosed):
        runtime.start()


def test_an_interrupted_start_keeps_no_drain_waiting():
    def ready() -> Starting:
        runtime = Starting()
        runtime.go_on.set()
        return runtime

    for position in range(1, count_places(ready().start) + 1):
        runtime = ready()
        with pytest.raises(KeyboardInterrupt), interrupted_at(position):
            runtime.start()
        draining = threading.Thread(target=runtime.begin_drain)
        draining.start()
        draining.join(10)
        assert not draining.is_alive(), position


@pytest.mark.parametrize(("timeout", "took"), [(0, 1), (5, 5)])
def test_connections_that_do_not_end_are_waited_for_together(monkeypatch, timeout, took):
    runtime = FakeConsumer(subscriptions=8)
    monkeypatch.setattr(closing_module, "monotonic", lambda: runtime.now)
    assert runtime.drain(runtime.now + timeout).clean
    assert runtime.now == 1000 + took
    assert runtime.told[-16:] == ["hang up"] * 8 + ["join"] * 8
