"""What is taken, and how a waiting caller is woken."""

from __future__ import annotations

import threading
from time import monotonic

import pytest

from nsqsmart.client.consuming.poll import PollQueue
from nsqsmart.client.messages.message import Message
from nsqsmart.errors import NotAuthorized
from tests.helpers import eventually
from tests.unit.client.doubles import FakeOrdering, FakeRuntime, Life, Source, expire, message_of


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
def source(runtime) -> Source:
    return Source(runtime=runtime)


@pytest.fixture
def puller(runtime) -> PollQueue:
    return PollQueue(runtime)


def test_it_takes_what_is_there_and_no_more_than_was_asked_for(puller, source):
    messages = [message_of(source) for _ in range(5)]
    puller.deliver(messages)
    assert puller.take(3, None) == messages[:3]
    assert puller.take(9, None) == messages[3:]
    assert puller.take(1, 0) == []
    assert source.sent == []


def test_it_waits_for_the_first_one(puller, source):
    found: list[list[Message]] = []
    thread = threading.Thread(target=lambda: found.append(puller.take(3, 10)))
    thread.start()
    message = message_of(source)
    puller.deliver([message])
    thread.join(10)
    assert found == [[message]]
    started = monotonic()
    assert puller.take(1, 0.1) == []
    assert monotonic() - started >= 0.1


def test_before_it_waits_acknowledgements_leave(puller):
    class WriteBuffer:
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1

    write_buffer = WriteBuffer()
    puller.dirty.append(write_buffer)
    puller.take(1, 0)
    assert write_buffer.flushed == 1


def test_who_waits_is_woken_by_the_end_and_what_is_left_goes_back(puller, runtime, source):
    found: list[list[Message]] = []
    threads = [
        threading.Thread(target=lambda: found.append(puller.take(1, None))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    runtime.draining = True
    puller.dismiss()
    for thread in threads:
        thread.join(10)
    assert found == [[]] * 3
    assert puller.take(1, None) == []


def test_what_nobody_has_taken_goes_back(puller, runtime, source):
    source.ordering = ordering = FakeOrdering()
    puller.deliver([message_of(source), message_of(source)])
    runtime.draining = True
    assert puller.take(1, 0) == []
    puller.deliver([message_of(source)])
    puller.dismiss()
    assert source.sent == [("REQ now", 0.0)] * 3
    assert ordering.ended == [False] * 3
    assert sum(counts.requeued for counts in puller.thread_counts) == 3


def test_the_expired_are_not_given(puller, source):
    late, fresh = message_of(source), message_of(source)
    expire(late)
    puller.deliver([late, fresh])
    assert puller.take(5, 0) == [fresh]
    assert source.forgotten == [late]
    assert puller.thread_counts[0].expired == 1


def test_a_lane_is_held_until_its_message_is_answered(puller, source):
    source.ordering = ordering = FakeOrdering()
    puller.deliver([message_of(source)])
    (message,) = puller.take(1, 0)
    assert ordering.ended == []
    message.requeue()
    assert ordering.ended == [False]


def test_a_traced_message_is_logged_when_it_is_taken(puller, source):
    message = message_of(source)
    message._life = Life()
    puller.deliver([message])
    puller.take(1, 0)
    assert message._life.events == ["started"]


def test_beyond_the_most_attempts_nobody_gets_it():
    given_up: list[Message] = []
    runtime = FakeRuntime(max_attempts=3, on_giving_up=given_up.append)
    source = Source(runtime=runtime)
    puller = PollQueue(runtime)
    hopeless, last = message_of(source, attempts=4), message_of(source, attempts=3)
    puller.deliver([hopeless, last])
    assert puller.take(5, 0) == [last]
    assert given_up == [hopeless]
    assert source.sent == [("FIN",)]


def test_what_ended_it_is_raised_for_everybody(puller):
    error = NotAuthorized("no", code="E_UNAUTHORIZED")
    found: list[BaseException] = []

    def take() -> None:
        try:
            puller.take(1, None)
        except NotAuthorized as caught:
            found.append(caught)

    threads = [threading.Thread(target=take, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    puller.end(error)
    for thread in threads:
        thread.join(10)
    assert found == [error, error]


def test_it_handles_while_a_with_block_runs(puller, source):
    puller.deliver([message_of(source)])
    (message,) = puller.take(1, 0)
    assert not puller.is_handling()
    with message:
        assert puller.is_handling()
        assert puller.join(monotonic()) == [message]
    assert not puller.is_handling()
    eventually(lambda: puller.join(monotonic()) == [])
