"""Threads that end when everything is done, also what comes while they end."""

from __future__ import annotations

import threading

import pytest

from nsqsmart.client.pipelining import keyed_batches as hands_module
from nsqsmart.client.pipelining.keyed_batches import Hands
from tests.helpers import eventually


def test_what_comes_while_it_closes_is_done_and_every_thread_ends():
    hands = Hands("test", 4)
    begun, go_on, done = threading.Event(), threading.Event(), []

    def first() -> None:
        begun.set()
        go_on.wait(10)
        for number in range(5):
            hands.do(lambda number=number: done.append(number))

    hands.do(first)
    hands.do(lambda: go_on.wait(10))
    assert begun.wait(10)
    closing = threading.Thread(target=hands.close)
    closing.start()
    eventually(lambda: hands._closed)
    go_on.set()
    closing.join(10)
    assert not closing.is_alive()
    assert sorted(done) == list(range(5))
    assert not any(thread.is_alive() for thread in hands._threads)


def test_behind_the_end_the_caller_does_it():
    hands = Hands("test", 2)
    hands.close()
    done = []
    hands.do(lambda: done.append(threading.current_thread()))
    assert done == [threading.current_thread()]


def test_where_no_thread_can_start_the_caller_does_it(monkeypatch):
    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(hands_module, "spawn", none_left)
    hands = Hands("test", 2)
    done = []
    hands.do(lambda: done.append(1))
    assert done == [1]
    hands.close()


@pytest.mark.parametrize("count", [1, 3, 10])
def test_no_more_threads_than_allowed(count):
    hands = Hands("test", 3)
    go_on = threading.Event()
    for _ in range(count):
        hands.do(lambda: go_on.wait(10))
    assert len(hands._threads) == min(count, 3)
    go_on.set()
    hands.close()
