"""What a batch is, and what its end means for each of its messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import pytest

from nsqsmart.client.consuming.batch_workers import BatchWorkerPool
from nsqsmart.client.messages.message import Message
from nsqsmart.client.messages.results import Requeue
from nsqsmart.config import ConsumerConfig
from tests.helpers import eventually
from tests.unit.client.doubles import FakeOrdering, FakeRuntime, Life, Source, message_of, raising


@contextmanager
def batches(handler, runtime: FakeRuntime, **options) -> Iterator[BatchWorkerPool]:
    """A pool of one worker, unless told otherwise, that ends with the block."""
    options = {"workers": 1, "batch_max_delay": 0, **options}
    dispatcher = BatchWorkerPool(handler, runtime, ConsumerConfig(**options))
    dispatcher.start()
    try:
        yield dispatcher
    finally:
        dispatcher.dismiss()
        assert dispatcher.join(monotonic() + 10) == []


def run(handler, messages: list[Message], runtime: FakeRuntime, **options):
    """Deliver *messages*; returns the pool's counts when they are handled."""
    with batches(
        handler, runtime, batch_max_delay=10, **{"batch_max_messages": len(messages), **options}
    ) as dispatcher:
        dispatcher.deliver(messages)
    (counts,) = dispatcher.thread_counts
    return counts


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
def source(runtime) -> Source:
    return Source(runtime=runtime)


def several(source, count=3) -> list[Message]:
    return [message_of(source) for _ in range(count)]


def test_a_batch_is_no_larger_than_was_asked_for(runtime, source):
    seen: list[int] = []
    with batches(
        lambda batch: seen.append(len(batch)), runtime, batch_max_messages=4, batch_max_delay=30
    ) as dispatcher:
        dispatcher.deliver(several(source, 8))
        eventually(lambda: seen == [4, 4])


def test_what_is_there_is_a_batch_when_nobody_waits(runtime, source):
    seen: list[int] = []
    dispatcher = BatchWorkerPool(
        lambda batch: seen.append(len(batch)), runtime, ConsumerConfig(workers=1, batch_max_delay=0)
    )
    dispatcher.deliver(several(source, 5))
    dispatcher.start()
    eventually(lambda: seen == [5])
    dispatcher.dismiss()
    dispatcher.join(monotonic() + 5)


def test_it_waits_for_more_and_not_longer_than_was_asked_for(runtime, source):
    seen: list[int] = []
    with batches(lambda batch: seen.append(len(batch)), runtime, batch_max_delay=1) as dispatcher:
        started = monotonic()
        dispatcher.deliver(several(source, 1))
        dispatcher.deliver(several(source, 1))
        eventually(lambda: seen == [2])
        assert monotonic() - started >= 1


def test_it_comes_at_once_when_nothing_more_can_come(runtime, source):
    runtime.starved = True
    seen: list[int] = []
    with batches(lambda batch: seen.append(len(batch)), runtime, batch_max_delay=60) as dispatcher:
        dispatcher.deliver(several(source, 1))
        eventually(lambda: seen == [1])


def test_a_message_does_not_wait_away_its_own_time(runtime, source):
    seen: list[bool] = []
    with batches(
        lambda batch: seen.append(batch[0].expired), runtime, batch_max_delay=60
    ) as dispatcher:
        (message,) = several(source, 1)
        message._read_batch.deadline = monotonic() + 2
        dispatcher.deliver([message])
        eventually(lambda: seen)
    assert seen == [False]


def test_while_one_batch_is_handled_another_worker_gathers_the_next(runtime, source):
    together = threading.Barrier(2, timeout=10)
    with batches(
        lambda batch: together.wait() and None, runtime, workers=2, batch_max_messages=2
    ) as dispatcher:
        dispatcher.deliver(several(source, 4))
        eventually(lambda: len(source.sent) == 4)


@pytest.mark.parametrize("result", [None, True, 42])
def test_returning_finishes_what_is_not_answered(runtime, source, result):
    def handler(batch: list[Message]) -> object:
        batch[1].requeue(5, backoff=False)
        batch.clear()
        return result

    runtime.watching = True
    counts = run(handler, several(source), runtime)
    assert source.sent == [("REQ", 5, False), ("FIN",), ("FIN",)]
    assert (counts.finished, counts.requeued, runtime.results) == (2, 1, [True])


def test_one_that_slows_down_makes_the_batch_a_failure(runtime, source):
    run(lambda batch: batch[1].requeue(5) and None, several(source), runtime)
    assert runtime.results == [False]


def test_raising_requeues_the_rest_and_slows_down(runtime, source, caplog):
    def handler(batch: list[Message]) -> None:
        batch[0].finish()
        raise ValueError("oops")

    messages = several(source)
    messages[1]._life = Life()
    counts = run(handler, messages, runtime)
    assert source.sent == [("FIN",), ("REQ", None, True), ("REQ", None, True)]
    assert (counts.finished, counts.requeued, counts.failed) == (1, 2, 2)
    # The flow takes the first for the batch (policy/test_flow).
    assert runtime.results == [False, False]
    assert "handler failed on a batch of 3" in caplog.text
    assert (messages[1]._life.events, messages[1]._life.error) == (["started"], "ValueError")


def test_a_batch_that_fails_behind_its_answers_slows_down_all_the_same(runtime, source):
    def handler(batch: list[Message]) -> None:
        for message in batch:
            message.finish()
        raise ValueError("afterwards")

    run(handler, several(source), runtime)
    assert (source.sent, runtime.results) == ([("FIN",)] * 3, [False])


def test_the_newest_message_of_a_success_is_what_a_probe_has_brought(runtime, source):
    runtime.watching = True
    messages = several(source)
    messages[1]._read_batch.at += 1
    run(lambda batch: None, messages, runtime)
    assert (runtime.results, runtime.judged) == ([True], [messages[1]])


@pytest.mark.parametrize("give", [raising, lambda request: lambda batch: request])
def test_a_wish_holds_for_all(runtime, source, give, caplog):
    counts = run(give(Requeue(7, backoff=False)), several(source), runtime)
    assert source.sent == [("REQ", 7, False)] * 3
    assert (counts.failed, runtime.results, caplog.text) == (0, [], "")


def test_false_and_what_did_not_run_requeue(runtime, source):
    async def did_not_run(batch) -> None: ...

    run(lambda batch: False, several(source, 1), runtime)
    run(did_not_run, several(source, 1), runtime)
    assert source.sent == [("REQ", None, True)] * 2
    assert runtime.results == [False, False]


def test_a_handler_that_wants_the_process_to_end_is_heard(runtime, source):
    error = SystemExit(3)
    run(raising(error), several(source, 2), runtime)
    assert runtime.fatal == [error]
    assert source.sent == [("REQ", 0.0, True)] * 2


def test_what_was_detached_is_left_alone_unless_the_batch_fails(runtime, source):
    run(lambda batch: batch[0].detach(), several(source, 2), runtime)
    assert source.sent == [("FIN",)]

    def fail(batch: list[Message]) -> None:
        batch[0].detach()
        batch[1].detach()
        batch[1].finish()
        raise ValueError("oops")

    source.sent.clear()
    counts = run(fail, several(source, 3), runtime)
    assert source.sent == [("FIN",), ("REQ", None, True), ("REQ", None, True)]
    assert counts.requeued == 1
    assert (runtime.checked_out.finished, runtime.checked_out.requeued) == (1, 1)


def test_every_lane_learns_of_its_end(runtime):
    good, bad = FakeOrdering(), FakeOrdering()
    messages = [message_of(Source(good, runtime)), message_of(Source(bad, runtime))]
    run(lambda batch: batch[1].requeue() and None, messages, runtime)
    assert (good.ended, bad.ended) == ([True], [False])


def test_the_expired_are_not_handled(runtime, source):
    messages = several(source)
    messages[0]._read_batch.deadline = monotonic() - 1
    seen: list[int] = []
    counts = run(lambda batch: seen.append(len(batch)), messages, runtime)
    assert (seen, counts.expired, counts.finished) == ([2], 1, 2)


def test_who_drains_gives_back_what_no_handler_has_seen(runtime, source):
    runtime.draining = True
    run(raising(AssertionError("handled")), several(source), runtime)
    assert source.sent == [("REQ now", 0.0)] * 3


def test_what_is_given_up_is_no_part_of_the_batch():
    given_up: list[Message] = []
    runtime = FakeRuntime(max_attempts=3, on_giving_up=given_up.append)
    source = Source(runtime=runtime)
    messages = [message_of(source), message_of(source, attempts=4)]
    seen: list[int] = []
    counts = run(lambda batch: seen.append(len(batch)), messages, runtime)
    assert (seen, given_up, counts.finished) == ([1], [messages[1]], 2)


def test_a_batch_whose_handler_still_runs_at_the_deadline_is_named(runtime, source):
    go_on = threading.Event()
    dispatcher = BatchWorkerPool(
        lambda batch: go_on.wait(10) and None, runtime, ConsumerConfig(workers=1, batch_max_delay=0)
    )
    messages = several(source)
    dispatcher.deliver(messages)
    dispatcher.start()
    eventually(lambda: dispatcher.thread_counts and dispatcher.thread_counts[0].batch)
    dispatcher.dismiss()
    assert dispatcher.join(monotonic() + 0.02) == messages
    go_on.set()
    assert dispatcher.join(monotonic() + 5) == []


def test_acknowledgements_leave_before_it_waits(runtime, source):
    class WriteBuffer:
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1

    write_buffer = WriteBuffer()
    with batches(lambda batch: dispatcher.dirty.append(write_buffer), runtime) as dispatcher:
        dispatcher.deliver(several(source, 1))
        eventually(lambda: write_buffer.flushed == 1)


def test_a_worker_survives_what_should_not_happen(runtime, source, caplog):
    seen: list[int] = []
    with batches(lambda batch: seen.append(len(batch)), runtime) as dispatcher:
        bad = message_of(source)
        bad.attempts = None
        dispatcher.deliver([bad])
        eventually(lambda: "a worker failed" in caplog.text)
        dispatcher.deliver(several(source, 1))
        eventually(lambda: seen == [1])
