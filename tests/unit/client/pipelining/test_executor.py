"""Threads that end when everything is done, also what comes while they end."""

from __future__ import annotations

import threading

import pytest

from nsqsmart.client.pipelining import keyed_batches as hands_module
from nsqsmart.client.pipelining.keyed_batches import Executor
from tests.helpers import eventually


def test_what_comes_while_it_closes_is_done_and_every_thread_ends():
    executor = Executor("test", 4)
    begun, go_on, done = threading.Event(), threading.Event(), []

    def first() -> None:
        begun.set()
        go_on.wait(10)
        for number in range(5):
            executor.do(lambda number=number: done.append(number))

    executor.do(first)
    executor.do(lambda: go_on.wait(10))
    assert begun.wait(10)
    closing = threading.Thread(target=executor.close)
    closing.start()
    eventually(lambda: executor._closed)
    go_on.set()
    closing.join(10)
    assert not closing.is_alive()
    assert sorted(done) == list(range(5))
    assert not any(thread.is_alive() for thread in executor._threads)


def test_behind_the_end_the_caller_does_it():
    executor = Executor("test", 2)
    executor.close()
    done = []
    executor.do(lambda: done.append(threading.current_thread()))
    assert done == [threading.current_thread()]


def test_where_no_thread_can_start_the_caller_does_it(monkeypatch):
    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(hands_module, "spawn", none_left)
    executor = Executor("test", 2)
    done = []
    executor.do(lambda: done.append(1))
    assert done == [1]
    executor.close()


@pytest.mark.parametrize("count", [1, 3, 10])
def test_no_more_threads_than_allowed(count):
    executor = Executor("test", 3)
    go_on = threading.Event()
    for _ in range(count):
        executor.do(lambda: go_on.wait(10))
    assert len(executor._threads) == min(count, 3)
    go_on.set()
    executor.close()
