"""What a batch is, and what its end means for each of its messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import pytest

from nsqsmart.client.consuming.batch_workers import BatchCrew
from nsqsmart.client.messages.message import Message
from nsqsmart.client.messages.results import Requeue
from nsqsmart.config import ConsumerConfig
from tests.helpers import eventually
from tests.unit.client.doubles import Boss, Lane, Life, Source, message_of, raising


@contextmanager
def batches(handler, boss: Boss, **options) -> Iterator[BatchCrew]:
    """A crew of one worker, unless told otherwise, that ends with the block."""
    options = {"workers": 1, "batch_max_delay": 0, **options}
    crew = BatchCrew(handler, boss, ConsumerConfig(**options))
    crew.start()
    try:
        yield crew
    finally:
        crew.dismiss()
        assert crew.join(monotonic() + 10) == []


def run(handler, messages: list[Message], boss: Boss, **options):
    """Deliver *messages*, and the crew's counts when they are handled."""
    with batches(
        handler, boss, batch_max_delay=10, **{"batch_max_messages": len(messages), **options}
    ) as crew:
        crew.deliver(messages)
    (tally,) = crew.tallies
    return tally


@pytest.fixture
def boss() -> Boss:
    return Boss()


@pytest.fixture
def source(boss) -> Source:
    return Source(boss=boss)


def several(source, count=3) -> list[Message]:
    return [message_of(source) for _ in range(count)]


def test_a_batch_is_no_larger_than_was_asked_for(boss, source):
    seen: list[int] = []
    with batches(
        lambda batch: seen.append(len(batch)), boss, batch_max_messages=4, batch_max_delay=30
    ) as crew:
        crew.deliver(several(source, 8))
        eventually(lambda: seen == [4, 4])


def test_what_is_there_is_a_batch_when_nobody_waits(boss, source):
    seen: list[int] = []
    crew = BatchCrew(
        lambda batch: seen.append(len(batch)), boss, ConsumerConfig(workers=1, batch_max_delay=0)
    )
    crew.deliver(several(source, 5))
    crew.start()
    eventually(lambda: seen == [5])
    crew.dismiss()
    crew.join(monotonic() + 5)


def test_it_waits_for_more_and_not_longer_than_was_asked_for(boss, source):
    seen: list[int] = []
    with batches(lambda batch: seen.append(len(batch)), boss, batch_max_delay=1) as crew:
        started = monotonic()
        crew.deliver(several(source, 1))
        crew.deliver(several(source, 1))
        eventually(lambda: seen == [2])
        assert monotonic() - started >= 1


def test_it_comes_at_once_when_nothing_more_can_come(boss, source):
    boss.starved = True
    seen: list[int] = []
    with batches(lambda batch: seen.append(len(batch)), boss, batch_max_delay=60) as crew:
        crew.deliver(several(source, 1))
        eventually(lambda: seen == [1])


def test_a_message_does_not_wait_away_its_own_time(boss, source):
    seen: list[bool] = []
    with batches(lambda batch: seen.append(batch[0].expired), boss, batch_max_delay=60) as crew:
        (message,) = several(source, 1)
        message._arrival.deadline = monotonic() + 2
        crew.deliver([message])
        eventually(lambda: seen)
    assert seen == [False]


def test_while_one_batch_is_handled_another_worker_gathers_the_next(boss, source):
    together = threading.Barrier(2, timeout=10)
    with batches(
        lambda batch: together.wait() and None, boss, workers=2, batch_max_messages=2
    ) as crew:
        crew.deliver(several(source, 4))
        eventually(lambda: len(source.sent) == 4)


@pytest.mark.parametrize("result", [None, True, 42])
def test_returning_finishes_what_is_not_answered(boss, source, result):
    def handler(batch: list[Message]) -> object:
        batch[1].requeue(5, backoff=False)
        batch.clear()
        return result

    boss.watching = True
    tally = run(handler, several(source), boss)
    assert source.sent == [("REQ", 5, False), ("FIN",), ("FIN",)]
    assert (tally.finished, tally.requeued, boss.results) == (2, 1, [True])


def test_one_that_slows_down_makes_the_batch_a_failure(boss, source):
    run(lambda batch: batch[1].requeue(5) and None, several(source), boss)
    assert boss.results == [False]


def test_raising_requeues_the_rest_and_slows_down(boss, source, caplog):
    def handler(batch: list[Message]) -> None:
        batch[0].finish()
        raise ValueError("oops")

    messages = several(source)
    messages[1]._life = Life()
    tally = run(handler, messages, boss)
    assert source.sent == [("FIN",), ("REQ", None, True), ("REQ", None, True)]
    assert (tally.finished, tally.requeued, tally.failed) == (1, 2, 2)
    # The flow takes the first for the batch (policy/test_flow).
    assert boss.results == [False, False]
    assert "handler failed on a batch of 3" in caplog.text
    assert (messages[1]._life.events, messages[1]._life.error) == (["started"], "ValueError")


def test_a_batch_that_fails_behind_its_answers_slows_down_all_the_same(boss, source):
    def handler(batch: list[Message]) -> None:
        for message in batch:
            message.finish()
        raise ValueError("afterwards")

    run(handler, several(source), boss)
    assert (source.sent, boss.results) == ([("FIN",)] * 3, [False])


def test_the_newest_message_of_a_success_is_what_a_probe_has_brought(boss, source):
    boss.watching = True
    messages = several(source)
    messages[1]._arrival.at += 1
    run(lambda batch: None, messages, boss)
    assert (boss.results, boss.judged) == ([True], [messages[1]])


@pytest.mark.parametrize("give", [raising, lambda wish: lambda batch: wish])
def test_a_wish_holds_for_all(boss, source, give, caplog):
    tally = run(give(Requeue(7, backoff=False)), several(source), boss)
    assert source.sent == [("REQ", 7, False)] * 3
    assert (tally.failed, boss.results, caplog.text) == (0, [], "")


def test_false_and_what_did_not_run_requeue(boss, source):
    async def did_not_run(batch) -> None: ...

    run(lambda batch: False, several(source, 1), boss)
    run(did_not_run, several(source, 1), boss)
    assert source.sent == [("REQ", None, True)] * 2
    assert boss.results == [False, False]


def test_a_handler_that_wants_the_process_to_end_is_heard(boss, source):
    error = SystemExit(3)
    run(raising(error), several(source, 2), boss)
    assert boss.fatal == [error]
    assert source.sent == [("REQ", 0.0, True)] * 2


def test_what_was_detached_is_left_alone_unless_the_batch_fails(boss, source):
    run(lambda batch: batch[0].detach(), several(source, 2), boss)
    assert source.sent == [("FIN",)]

    def fail(batch: list[Message]) -> None:
        batch[0].detach()
        batch[1].detach()
        batch[1].finish()
        raise ValueError("oops")

    source.sent.clear()
    tally = run(fail, several(source, 3), boss)
    assert source.sent == [("FIN",), ("REQ", None, True), ("REQ", None, True)]
    assert tally.requeued == 1
    assert (boss.holdings.finished, boss.holdings.requeued) == (1, 1)


def test_every_lane_learns_of_its_end(boss):
    good, bad = Lane(), Lane()
    messages = [message_of(Source(good, boss)), message_of(Source(bad, boss))]
    run(lambda batch: batch[1].requeue() and None, messages, boss)
    assert (good.ended, bad.ended) == ([True], [False])


def test_the_expired_are_not_handled(boss, source):
    messages = several(source)
    messages[0]._arrival.deadline = monotonic() - 1
    seen: list[int] = []
    tally = run(lambda batch: seen.append(len(batch)), messages, boss)
    assert (seen, tally.expired, tally.finished) == ([2], 1, 2)


def test_who_drains_gives_back_what_no_handler_has_seen(boss, source):
    boss.draining = True
    run(raising(AssertionError("handled")), several(source), boss)
    assert source.sent == [("REQ now", 0.0)] * 3


def test_what_is_given_up_is_no_part_of_the_batch():
    given_up: list[Message] = []
    boss = Boss(max_attempts=3, on_giving_up=given_up.append)
    source = Source(boss=boss)
    messages = [message_of(source), message_of(source, attempts=4)]
    seen: list[int] = []
    tally = run(lambda batch: seen.append(len(batch)), messages, boss)
    assert (seen, given_up, tally.finished) == ([1], [messages[1]], 2)


def test_a_batch_whose_handler_still_runs_at_the_deadline_is_named(boss, source):
    go_on = threading.Event()
    crew = BatchCrew(
        lambda batch: go_on.wait(10) and None, boss, ConsumerConfig(workers=1, batch_max_delay=0)
    )
    messages = several(source)
    crew.deliver(messages)
    crew.start()
    eventually(lambda: crew.tallies and crew.tallies[0].batch)
    crew.dismiss()
    assert crew.join(monotonic() + 0.02) == messages
    go_on.set()
    assert crew.join(monotonic() + 5) == []


def test_acknowledgements_leave_before_it_waits(boss, source):
    class Outbox:
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1

    outbox = Outbox()
    with batches(lambda batch: crew.dirty.append(outbox), boss) as crew:
        crew.deliver(several(source, 1))
        eventually(lambda: outbox.flushed == 1)


def test_a_worker_survives_what_should_not_happen(boss, source, caplog):
    seen: list[int] = []
    with batches(lambda batch: seen.append(len(batch)), boss) as crew:
        bad = message_of(source)
        bad.attempts = None
        crew.deliver([bad])
        eventually(lambda: "a worker failed" in caplog.text)
        crew.deliver(several(source, 1))
        eventually(lambda: seen == [1])
