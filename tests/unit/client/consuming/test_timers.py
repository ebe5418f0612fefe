"""What is touched, and until when."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from nsqsmart.client.consuming.timers import Rounds
from nsqsmart.client.consuming.workers import ThreadCounts, WorkerPool
from nsqsmart.client.messages.checked_out import Timeouts
from nsqsmart.config import ConsumerConfig
from tests.unit.client.doubles import FakeRuntime, Source, message_of


class Watched(Source):
    """A subscription that would be ended if it had been silent for longer than a minute."""

    def __init__(self) -> None:
        super().__init__()
        self.write_buffer = None
        self.ended = False

    def watch(self, now: float) -> None:
        self.ended = now - self.heard_at > 60


class World:
    """Stands for the consumer and its ticker."""

    def __init__(self, **options: object) -> None:
        self.config = ConsumerConfig(**options)
        self.ticker = self
        known = FakeRuntime()
        self.checked_out, self.dead_letters = known.checked_out, known.dead_letters
        self.dispatcher = WorkerPool(print, self, self.config.workers)
        self.timeouts = Timeouts()
        self.thread_counts = [ThreadCounts(), ThreadCounts()]
        self.dispatcher._thread_counts = dict(enumerate(self.thread_counts))
        self.calls: list[Callable[[], None]] = []
        self.subscriptions: list[Watched] = []

    def at(self, when: float, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def snapshot(self) -> list[Watched]:
        return self.subscriptions

    def go_round(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


@pytest.fixture
def source() -> Source:
    return Source()


def test_what_handlers_run_on_is_touched_again_and_again(source):
    world = World(touch_every=5)
    single, first, second = (message_of(source) for _ in range(3))
    world.thread_counts[0].current = single
    world.thread_counts[1].current, world.thread_counts[1].batch = first, [first, second]
    Rounds(world, world.dispatcher).start()
    assert source.sent == [("TOUCH",)] * 3
    first._answer = True
    world.go_round()
    assert source.sent == [("TOUCH",)] * 5
    world.thread_counts[0].current = None
    world.go_round()
    assert source.sent == [("TOUCH",)] * 6


def test_where_the_servers_maximum_is_reached_a_touch_is_for_nothing(source):
    world = World(touch_every=5)
    world.thread_counts[0].current = message = message_of(source)
    message._read_batch.at -= 850
    message._read_batch.deadline = message._latest - 20
    Rounds(world, world.dispatcher).start()
    assert message.deadline == message._latest
    world.go_round()
    assert source.sent == [("TOUCH",)]


def test_without_touch_every_nothing_is_touched(source):
    world = World()
    world.thread_counts[0].current = message_of(source)
    Rounds(world, world.dispatcher).start()
    world.go_round()
    assert source.sent == []


def test_a_server_with_less_patience_is_named_once(caplog):
    world = World(touch_every=30)
    rounds = Rounds(world, world.dispatcher)
    for patience in (60.0, 10.0, 20.0):
        where = SimpleNamespace(
            topic="t",
            channel="c",
            target=SimpleNamespace(partition=None, name="a:4150"),
            msg_timeout=patience,
            describe=lambda: "t/c at a:4150",
        )
        rounds.check_touches(where)
    assert caplog.text.count("touch_every is 30 s") == 1
    assert "after 10 s" in caplog.text


@pytest.mark.parametrize(("workers", "ended"), [(0, [False, True]), (1, [True, True])])
def test_where_the_reader_runs_the_handler_nothing_is_heard_meanwhile(workers, ended):
    """And to hang up would give a message that is being handled to another consumer."""
    world = World(workers=workers)
    world.subscriptions = busy, silent = Watched(), Watched()
    for each in world.subscriptions:
        each.heard_at -= 100
    world.thread_counts[1].current = message_of(busy)
    rounds = Rounds(world, world.dispatcher)
    rounds.start()
    # Nor does it look silent when the handler has ended and the reader has yet to read.
    world.thread_counts[1].current = None
    world.go_round()
    assert [busy.ended, silent.ended] == ended
