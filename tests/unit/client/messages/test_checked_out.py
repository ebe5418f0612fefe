"""A message in the application's hands is answered once: by it, by time or by the end."""

from __future__ import annotations

import contextlib
import threading
from time import monotonic

import pytest

from nsqsmart.errors import AlreadyResponded
from tests.helpers import eventually
from tests.unit.client.doubles import Boss, Lane, Source, expire, message_of


@pytest.fixture
def boss() -> Boss:
    return Boss()


@pytest.fixture
def source(boss) -> Source:
    return Source(boss=boss)


def held(source):
    message = message_of(source)
    message.detach()
    return message


def test_an_answer_is_counted_and_told_to_lane_and_backoff(boss, source):
    source.lane = lane = Lane()
    boss.watching = True
    held(source).finish()
    held(source).requeue(1)
    held(source).requeue(1, backoff=False)
    assert source.sent == [("FIN",), ("REQ", 1, True), ("REQ", 1, False)]
    assert boss.results == [True, False]
    assert lane.ended == [True, False, False]
    assert (boss.holdings.finished, boss.holdings.requeued) == (1, 2)


def test_a_success_is_told_only_while_it_matters(boss, source):
    held(source).finish()
    assert boss.results == []


def test_the_backoff_hears_of_it_before_the_server_does(boss, source):
    source.on_send = lambda: heard.append(list(boss.results))
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


def test_at_close_all_goes_back_and_later_answers_are_too_late(boss, source):
    message = held(source)
    boss.holdings.give_back()
    boss.holdings.give_back()
    assert [message.finish(), message.requeue(), message.touch()] == [False] * 3
    assert source.sent == [("REQ now", 0.0)]
    assert boss.holdings.requeued == 1


def test_what_has_expired_or_lost_its_connection_is_forgotten(boss, source):
    fresh, expired, lost = held(source), held(source), held(Source(boss=boss))
    expire(expired)
    lost._subscription.live = False
    boss.holdings.drop_expired()
    assert expired.finish() is False
    assert source.forgotten == [expired]
    assert lost.finish() is False
    assert fresh.finish() is True


def test_an_expired_ordered_message_is_kept_for_its_partition_waits_for_it(boss, source):
    source.lane = lane = Lane()
    source.late = True
    message = held(source)
    message._arrival.deadline = monotonic() - 1
    boss.holdings.drop_expired()
    assert lane.ended == []
    assert message.finish() is False
    assert lane.ended == [False]


def test_a_block_runs_until_its_answer_is_on_the_way(boss, source):
    """Whoever closes would end the connection before."""
    message = held(source)
    waited_for: list[list[object]] = []
    source.on_send = lambda: waited_for.append(boss.holdings.wait_idle(monotonic()))
    with message:
        message.finish()
        assert boss.holdings.wait_idle(monotonic()) == []
    assert waited_for == [[message]]
    assert (source.sent, boss.holdings.finished) == ([("FIN",)], 1)


def test_a_block_whose_answer_was_interrupted_is_over(boss, source):
    def interrupt() -> None:
        raise KeyboardInterrupt

    source.on_send = interrupt
    with pytest.raises(KeyboardInterrupt), held(source) as message:
        message.finish()
    assert not boss.holdings.is_busy_here()
    assert boss.holdings.wait_idle(monotonic() + 10) == []


def test_with_blocks_are_waited_for(boss, source):
    message = held(source)
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with message:
            assert boss.holdings.is_busy_here()
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(10)
    assert not boss.holdings.is_busy_here()
    assert boss.holdings.wait_idle(monotonic()) == [message]
    found: list[list[object]] = []
    waiting = threading.Thread(
        target=lambda: found.append(boss.holdings.wait_idle(monotonic() + 10))
    )
    waiting.start()
    leave.set()
    waiting.join(10)
    thread.join()
    assert found == [[]]
    assert source.sent == [("FIN",)]
    eventually(lambda: boss.holdings.wait_idle(monotonic()) == [])


def test_an_answer_that_comes_too_late_is_counted_as_that(boss, source):
    source.late = True
    assert not held(source).finish()
    assert (boss.holdings.finished, boss.holdings.requeued, boss.holdings.expired) == (0, 0, 1)


def test_what_is_held_is_counted_by_subscription(boss, source):
    other = Source(boss=boss)
    messages = [message_of(each) for each in (source, source, other)]
    for message in messages:
        message.detach()
    assert boss.holdings.counts() == {source: 2, other: 1}
    messages[0].finish()
    expire(messages[2])
    boss.holdings.drop_expired()
    assert boss.holdings.counts() == {source: 1}
    assert boss.holdings.expired == 1
    boss.holdings.give_back()
    assert boss.holdings.counts() == {}
