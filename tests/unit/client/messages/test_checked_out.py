"""A message in the application's hands is answered once: by it, by time or by the end."""

from __future__ import annotations

import contextlib
import threading
from time import monotonic

import pytest

from nsqsmart.errors import AlreadyResponded
from tests.helpers import eventually
from tests.unit.client.doubles import FakeOrdering, FakeRuntime, Source, expire, message_of


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
def source(runtime) -> Source:
    return Source(runtime=runtime)


def held(source):
    message = message_of(source)
    message.detach()
    return message


def test_an_answer_is_counted_and_told_to_lane_and_backoff(runtime, source):
    source.ordering = ordering = FakeOrdering()
    runtime.watching = True
    held(source).finish()
    held(source).requeue(1)
    held(source).requeue(1, backoff=False)
    assert source.sent == [("FIN",), ("REQ", 1, True), ("REQ", 1, False)]
    assert runtime.results == [True, False]
    assert ordering.ended == [True, False, False]
    assert (runtime.checked_out.finished, runtime.checked_out.requeued) == (1, 2)


def test_a_success_is_told_only_while_it_matters(runtime, source):
    held(source).finish()
    assert runtime.results == []


def test_the_backoff_hears_of_it_before_the_server_does(runtime, source):
    source.on_send = lambda: heard.append(list(runtime.results))
    heard: list[list[bool]] = []
    held(source).requeue(0)
    assert heard == [[False]]


def test_a_second_answer_is_a_mistake(source):
    message = held(source)
    message.finish()
    with pytest.raises(AlreadyResponded):
        message.requeue()


def test_many_who_answer_at_once_send_one_answer(source):
    for _ in range(50):
        message = held(source)
        start = threading.Barrier(4)

        def answer(message=message, start=start) -> None:
            start.wait()
            with contextlib.suppress(AlreadyResponded):
                message.finish()

        threads = [threading.Thread(target=answer) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert source.sent == [("FIN",)] * 50


def test_at_close_all_goes_back_and_later_answers_are_too_late(runtime, source):
    message = held(source)
    runtime.checked_out.give_back()
    runtime.checked_out.give_back()
    assert [message.finish(), message.requeue(), message.touch()] == [False] * 3
    assert source.sent == [("REQ now", 0.0)]
    assert runtime.checked_out.requeued == 1


def test_what_has_expired_or_lost_its_connection_is_forgotten(runtime, source):
    fresh, expired, lost = held(source), held(source), held(Source(runtime=runtime))
    expire(expired)
    lost._subscription.live = False
    runtime.checked_out.drop_expired()
    assert expired.finish() is False
    assert source.forgotten == [expired]
    assert lost.finish() is False
    assert fresh.finish() is True


def test_an_expired_ordered_message_is_kept_for_its_partition_waits_for_it(runtime, source):
    source.ordering = ordering = FakeOrdering()
    source.late = True
    message = held(source)
    message._read_batch.deadline = monotonic() - 1
    runtime.checked_out.drop_expired()
    assert ordering.ended == []
    assert message.finish() is False
    assert ordering.ended == [False]


def test_a_block_runs_until_its_answer_is_on_the_way(runtime, source):
    """close() would end the connection before."""
    message = held(source)
    waited_for: list[list[object]] = []
    source.on_send = lambda: waited_for.append(runtime.checked_out.wait_idle(monotonic()))
    with message:
        message.finish()
        assert runtime.checked_out.wait_idle(monotonic()) == []
    assert waited_for == [[message]]
    assert (source.sent, runtime.checked_out.finished) == ([("FIN",)], 1)


def test_a_block_whose_answer_was_interrupted_is_over(runtime, source):
    def interrupt() -> None:
        raise KeyboardInterrupt

    source.on_send = interrupt
    with pytest.raises(KeyboardInterrupt), held(source) as message:
        message.finish()
    assert not runtime.checked_out.is_busy_here()
    assert runtime.checked_out.wait_idle(monotonic() + 10) == []


def test_with_blocks_are_waited_for(runtime, source):
    message = held(source)
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with message:
            assert runtime.checked_out.is_busy_here()
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(10)
    assert not runtime.checked_out.is_busy_here()
    assert runtime.checked_out.wait_idle(monotonic()) == [message]
    found: list[list[object]] = []
    waiting = threading.Thread(
        target=lambda: found.append(runtime.checked_out.wait_idle(monotonic() + 10))
    )
    waiting.start()
    leave.set()
    waiting.join(10)
    thread.join()
    assert found == [[]]
    assert source.sent == [("FIN",)]
    eventually(lambda: runtime.checked_out.wait_idle(monotonic()) == [])


def test_an_answer_that_comes_too_late_is_counted_as_that(runtime, source):
    source.late = True
    assert not held(source).finish()
    assert (
        runtime.checked_out.finished,
        runtime.checked_out.requeued,
        runtime.checked_out.expired,
    ) == (0, 0, 1)


def test_what_is_held_is_counted_by_subscription(runtime, source):
    other = Source(runtime=runtime)
    messages = [message_of(each) for each in (source, source, other)]
    for message in messages:
        message.detach()
    assert runtime.checked_out.counts() == {source: 2, other: 1}
    messages[0].finish()
    expire(messages[2])
    runtime.checked_out.drop_expired()
    assert runtime.checked_out.counts() == {source: 1}
    assert runtime.checked_out.expired == 1
    runtime.checked_out.give_back()
    assert runtime.checked_out.counts() == {}
