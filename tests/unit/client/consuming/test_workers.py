"""What a handler's end means for its message, and that every worker goes on."""

from __future__ import annotations

import threading
from time import monotonic

import pytest

from nsqsmart.client.consuming.workers import WorkerPool
from nsqsmart.client.messages.message import Message
from nsqsmart.client.messages.results import Requeue
from tests.helpers import eventually
from tests.unit.client.doubles import FakeOrdering, FakeRuntime, Life, Source, message_of, raising


def life_of(handler, source: Source | None = None) -> Life:
    """What a traced message's log says of *handler*."""
    message = message_of(source or Source())
    message._life = life = Life()
    WorkerPool(handler, FakeRuntime(), 0).deliver([message])
    return life


def handle(handler, runtime: FakeRuntime | None = None, source: Source | None = None):
    """Run *handler* on one message, in place; what was sent, and the pool's counts."""
    runtime, source = runtime or FakeRuntime(), source or Source()
    source.runtime = runtime
    dispatcher = WorkerPool(handler, runtime, 0)
    dispatcher.deliver([message_of(source)])
    return source.sent, dispatcher.thread_counts[0], runtime


@pytest.mark.parametrize("result", [None, True])
def test_returning_finishes(result):
    sent, counts, runtime = handle(lambda message: result)
    assert sent == [("FIN",)]
    assert (counts.finished, runtime.results) == (1, [])


def test_a_success_is_told_only_while_it_matters():
    runtime = FakeRuntime()
    runtime.watching = True
    handle(lambda message: None, runtime)
    assert runtime.results == [True]


def test_raising_requeues_with_backoff_and_is_logged(caplog):
    sent, counts, runtime = handle(raising(ValueError("oops")))
    assert sent == [("REQ", None, True)]
    assert (counts.failed, counts.requeued, runtime.results) == (1, 1, [False])
    assert "oops" in caplog.text
    assert caplog.records[-1].nsq_topic == "t"


@pytest.mark.parametrize("give", [raising, lambda request: lambda message: request])
def test_requeue_raised_or_returned_says_how_and_is_no_failure(give, caplog):
    sent, counts, runtime = handle(give(Requeue(7, backoff=False)))
    assert sent == [("REQ", 7, False)]
    assert (counts.failed, counts.requeued, runtime.results) == (0, 1, [])
    sent, counts, runtime = handle(give(Requeue(7)))
    assert runtime.results == [False]
    assert caplog.text == ""


def test_false_requeues():
    sent, counts, _ = handle(lambda message: False)
    assert sent == [("REQ", None, True)]
    assert counts.requeued == 1


def test_an_awaitable_or_a_generator_did_not_run(caplog):
    async def awaitable(message: Message) -> None: ...

    def generator(message: Message):
        yield

    async def async_generator(message: Message):
        yield

    for handler in (awaitable, generator, async_generator):
        sent, counts, _ = handle(handler)
        assert sent == [("REQ", None, True)]
        assert counts.finished == 0
    assert caplog.text.count("it did not run") == 3


def test_anything_else_is_success_and_said_once(caplog):
    source, runtime = Source(), FakeRuntime()
    dispatcher = WorkerPool(lambda message: 42, runtime, 0)
    dispatcher.deliver([message_of(source) for _ in range(3)])
    assert source.sent == [("FIN",)] * 3
    assert caplog.text.count("taken for success") == 1


def test_what_the_handler_answered_is_not_answered_again():
    sent, _, _ = handle(lambda message: message.finish())
    assert sent == [("FIN",)]

    def then_fail(message: Message) -> None:
        message.finish()
        raise ValueError("afterwards")

    assert handle(then_fail)[0] == [("FIN",)]
    assert handle(lambda message: message.requeue(3))[0] == [("REQ", 3, True)]


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException()], ids=repr
)
def test_a_handler_that_wants_the_process_to_end_is_heard(error):
    sent, _, runtime = handle(raising(error))
    assert runtime.fatal == [error]
    # Another consumer may have it at once.
    assert sent == [("REQ", 0.0, True)]


def test_an_expired_message_is_not_handled():
    source = Source()
    source.heard_at -= 61
    handled = []
    sent, counts, _ = handle(handled.append, source=source)
    assert (handled, sent, counts.expired) == ([], [], 1)


@pytest.mark.parametrize("end", ["return", "raise", "traced"])
def test_what_expires_while_the_one_before_it_is_handled_is_not_handled(end):
    first, second = message_of(Source()), message_of(Source())
    for message in (first, second):
        message._read_batch.ack = lambda _: True
    if end == "traced":
        first._life = Life()
    handled = []

    def handler(message: Message) -> None:
        handled.append(message)
        second._read_batch.deadline = monotonic()
        if end == "raise":
            raise ValueError("oops")

    WorkerPool(handler, FakeRuntime(), 0).deliver([first, second])
    assert handled == [first]


def test_who_drains_gives_back_what_no_handler_has_seen():
    runtime, handled = FakeRuntime(), []
    runtime.draining = True
    sent, _, _ = handle(handled.append, runtime)
    assert (handled, sent) == ([], [("REQ now", 0.0)])


def test_a_traced_message_is_logged_when_its_handler_starts_and_with_its_kind_of_error():
    assert (life_of(lambda message: None).events, life_of(print).error) == (["started"], None)
    assert life_of(raising(Requeue(7))).error is None
    failed = life_of(raising(ValueError("the body")))
    assert (failed.events, failed.error) == (["started"], "ValueError")


def test_a_traced_message_that_waited_too_long_is_logged_as_timed_out():
    source = Source()
    source.heard_at -= 61
    assert life_of(print, source).events == []  # the subscription logs it
    assert len(source.forgotten) == 1


def test_the_lane_learns_of_every_end():
    ordering = FakeOrdering()
    source = Source(ordering)
    handle(lambda message: None, source=source)
    handle(raising(ValueError()), source=source)
    runtime = FakeRuntime()
    runtime.draining = True
    handle(print, runtime, source)
    assert ordering.ended == [True, False, False]


def test_workers_handle_side_by_side_and_end_when_dismissed():
    runtime, source = FakeRuntime(), Source()
    together = threading.Barrier(4, timeout=10)
    dispatcher = WorkerPool(lambda message: together.wait() and None, runtime, 4)
    dispatcher.start()
    dispatcher.deliver([message_of(source) for _ in range(8)])
    dispatcher.dismiss()
    assert dispatcher.join(monotonic() + 10) == []
    assert sum(counts.finished for counts in dispatcher.thread_counts) == 8
    assert not any(thread.is_alive() for thread in dispatcher._threads)


def test_whose_handler_still_runs_at_the_deadline_is_named():
    go_on = threading.Event()
    runtime, source = FakeRuntime(), Source()
    dispatcher = WorkerPool(lambda message: go_on.wait(10) and None, runtime, 1)
    dispatcher.start()
    dispatcher.deliver([message_of(source)])
    eventually(lambda: dispatcher.thread_counts and dispatcher.thread_counts[0].current)
    dispatcher.dismiss()
    assert len(dispatcher.join(monotonic() + 0.02)) == 1
    go_on.set()
    assert dispatcher.join(monotonic() + 5) == []


def test_only_the_handlers_own_thread_is_handling():
    seen = []
    dispatcher = WorkerPool(lambda message: seen.append(dispatcher.is_handling()), FakeRuntime(), 0)
    assert not dispatcher.is_handling()
    dispatcher.deliver([message_of(Source())])
    assert seen == [True]
    assert not dispatcher.is_handling()


def test_acknowledgements_leave_when_there_is_no_more_work():
    class WriteBuffer:
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1

    write_buffer = WriteBuffer()
    dispatcher = WorkerPool(lambda message: dispatcher.dirty.append(write_buffer), FakeRuntime(), 1)
    dispatcher.start()
    dispatcher.deliver([message_of(Source())])
    eventually(lambda: write_buffer.flushed == 1)
    dispatcher.dismiss()
    dispatcher.join(monotonic() + 5)


def test_what_the_handler_requeued_itself_counts_as_that_and_slows_down_if_it_says_so():
    _, counts, runtime = handle(lambda message: message.requeue(3) and None)
    assert (counts.finished, counts.requeued, runtime.results) == (0, 1, [False])
    _, counts, runtime = handle(lambda message: message.requeue(3, backoff=False) and None)
    assert (counts.finished, counts.requeued, runtime.results) == (0, 1, [])


def test_a_success_that_came_too_late_is_not_counted_as_one():
    source = Source()
    source.late = True
    _, counts, _ = handle(lambda message: None, source=source)
    assert (counts.finished, counts.expired) == (0, 1)


def test_a_success_beyond_the_time_is_left_to_who_says_so():
    source, acked = Source(), []
    source.late = True
    message = message_of(source)
    message._read_batch.ack = acked.append

    def handler(message: Message) -> None:
        message._read_batch.deadline -= 61

    dispatcher = WorkerPool(handler, FakeRuntime(), 0)
    dispatcher.deliver([message])
    assert (acked, dispatcher.thread_counts[0].expired) == ([], 1)


@pytest.mark.parametrize("answer", [Message.finish, Message.requeue, Message.detach, Message.touch])
def test_nothing_is_finished_twice(answer):
    source, acked = Source(), []
    message = message_of(source)
    message._read_batch.ack = acked.append

    def handler(message: Message) -> None:
        answer(message)

    WorkerPool(handler, FakeRuntime(), 0).deliver([message])
    assert acked == []


def test_a_detached_message_is_answered_by_whoever_has_it():
    taken: list[Message] = []
    ordering = FakeOrdering()
    source, runtime = Source(ordering), FakeRuntime()

    def handler(message: Message) -> bool:
        message.detach()
        message.detach()
        taken.append(message)
        return True

    sent, counts, _ = handle(handler, runtime, source)
    assert (sent, ordering.ended, counts.finished) == ([], [], 0)
    thread = threading.Thread(target=taken[0].finish)
    thread.start()
    thread.join()
    assert (sent, ordering.ended, runtime.checked_out.finished) == ([("FIN",)], [True], 1)


@pytest.mark.parametrize("end", [raising(ValueError()), lambda message: False])
def test_a_handler_that_fails_after_detaching_has_it_requeued(end):
    ordering = FakeOrdering()

    def handler(message: Message) -> object:
        message.detach()
        return end(message)

    sent, counts, runtime = handle(handler, source=Source(ordering))
    assert (sent, ordering.ended, runtime.results) == ([("REQ", None, True)], [False], [False])
    assert (counts.requeued, runtime.checked_out.requeued) == (0, 1)


def test_what_was_detached_and_answered_is_not_answered_again():
    def handler(message: Message) -> None:
        message.detach()
        message.finish()
        raise ValueError("afterwards")

    ordering = FakeOrdering()
    assert handle(handler, source=Source(ordering))[0] == [("FIN",)]
    assert ordering.ended == [True]


def test_beyond_the_most_attempts_the_handler_does_not_see_it():
    given_up, handled = [], []
    runtime, source = FakeRuntime(max_attempts=3, on_giving_up=given_up.append), Source()
    source.runtime = runtime
    dispatcher = WorkerPool(handled.append, runtime, 0)
    dispatcher.deliver([message_of(source, attempts=3), message_of(source, attempts=4)])
    assert ([m.attempts for m in handled], [m.attempts for m in given_up]) == ([3], [4])
    assert source.sent == [("FIN",), ("FIN",)]
    assert runtime.dead_letters.given_up == 1


def test_a_message_that_cannot_be_given_up_is_requeued_and_slows_down():
    runtime, source = FakeRuntime(max_attempts=3, on_giving_up=raising(ValueError())), Source()
    source.runtime = runtime
    dispatcher = WorkerPool(print, runtime, 0)
    dispatcher.deliver([message_of(source, attempts=4)])
    assert (source.sent, runtime.results) == ([("REQ", None, True)], [False])
    assert dispatcher.thread_counts[0].requeued == 1


def test_a_worker_survives_what_should_not_happen(caplog):
    runtime, source, handled = FakeRuntime(), Source(), []
    dispatcher = WorkerPool(handled.append, runtime, 1)
    dispatcher.start()
    bad = message_of(source)
    bad._read_batch.deadline = None
    dispatcher.deliver([bad, message_of(source)])
    eventually(lambda: len(handled) == 1)
    dispatcher.dismiss()
    assert dispatcher.join(monotonic() + 5) == []
    assert "a worker failed" in caplog.text
    # What it failed on is the server's again.
    assert source.sent.count(("REQ now", 0.0)) == 1


@pytest.mark.parametrize("dismissed", [False, True])
def test_a_worker_that_dies_has_a_successor(caplog, monkeypatch, dismissed):
    runtime, source, handled = FakeRuntime(), Source(FakeOrdering()), []
    dispatcher = WorkerPool(handled.append, runtime, 1)
    handle, first = dispatcher._handle, message_of(source)
    delivered = threading.Event()

    def dying(message: Message, counts: object) -> None:
        if message is first:
            assert delivered.wait(10)
            if dismissed:
                dispatcher.dismiss()
            raise SystemExit
        handle(message, counts)

    monkeypatch.setattr(dispatcher, "_handle", dying)
    dispatcher.start()
    dispatcher.deliver([first, message_of(source)])
    delivered.set()
    eventually(lambda: handled)
    eventually(lambda: len(dispatcher._threads) == 2)
    assert ("REQ now", 0.0) in source.sent
    assert source.ordering.ended[0] is False
    assert "worker 0 died" in caplog.text
    dispatcher.dismiss()
    assert dispatcher.join(monotonic() + 5) == []
    assert not any(thread.is_alive() for thread in dispatcher._threads)
