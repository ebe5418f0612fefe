"""Keyed publishes take turns: first come, first served; one that leaves blocks no other."""

from __future__ import annotations

import threading
from contextlib import suppress
from time import monotonic

import pytest

from nsqsmart.client.publishing.turns import Turns
from nsqsmart.errors import ClientClosed, TurnTimeout
from nsqsmart.net.waiters import new_waiter
from tests.helpers import eventually
from tests.interrupts import count_places, interrupted_at

KEY, OTHER = ("t", 0), ("t", 1)


def take(turns: Turns, key=KEY, patience: float = 5):
    """Take a turn as its owner does: the token is given up if the call fails."""
    waiter = new_waiter()
    try:
        turns.take(key, waiter, monotonic() + patience)
    except BaseException:
        turns.give_up(key, waiter)
        raise
    return waiter


def waiting(turns: Turns, key=KEY) -> int:
    return len(turns._queues.get(key, ())) - 1


def test_one_at_a_time_and_partitions_do_not_know_each_other():
    turns = Turns()
    waiter = take(turns)
    take(turns, OTHER)
    with pytest.raises(TurnTimeout, match="partition 0 of t"):
        take(turns, patience=0.02)
    turns.give_up(KEY, waiter)
    take(turns)


def test_who_came_first_is_served_first():
    turns, served, threads = Turns(), [], []
    waiter = take(turns)

    def work(number: int) -> None:
        mine = take(turns)
        served.append(number)
        turns.give_up(KEY, mine)

    for number in range(6):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        eventually(lambda number=number: waiting(turns) == number + 1)
    turns.give_up(KEY, waiter)
    for thread in threads:
        thread.join(5)
    assert served == list(range(6))
    assert turns._queues == {}


def test_who_runs_out_of_time_leaves_the_queue():
    turns = Turns()
    waiter = take(turns)
    with pytest.raises(TurnTimeout):
        take(turns, patience=0)
    assert waiting(turns) == 0
    turns.give_up(KEY, waiter)
    assert turns._queues == {}


def test_giving_up_twice_or_a_turn_that_is_not_mine_wakes_nobody():
    turns = Turns()
    waiter = take(turns)
    turns.give_up(KEY, threading.Lock())
    turns.give_up(OTHER, waiter)
    with pytest.raises(TurnTimeout):
        take(turns, patience=0.02)
    turns.give_up(KEY, waiter)
    turns.give_up(KEY, waiter)
    take(turns)


def test_close_wakes_who_waits_and_refuses_who_comes():
    turns, ended = Turns(), []
    waiter = take(turns)

    def wait() -> None:
        with pytest.raises(ClientClosed):
            take(turns, patience=60)
        ended.append(1)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: waiting(turns) == 3)
    turns.close()
    for thread in threads:
        thread.join(5)
    assert len(ended) == 3
    with pytest.raises(ClientClosed):
        take(turns)
    turns.give_up(KEY, waiter)
    assert turns._queues == {}


def test_who_dies_with_the_turn_holds_nobody_up():
    turns = Turns()
    waiter = take(turns)
    del waiter
    turns.give_up(KEY, take(turns))
    assert turns._queues == {}


def test_who_dies_in_the_queue_holds_nobody_up():
    turns = Turns()
    waiter = take(turns)
    dead = new_waiter()
    with pytest.raises(TurnTimeout):
        turns.take(KEY, dead, monotonic())
    del dead
    turns.give_up(KEY, waiter)
    turns.give_up(KEY, take(turns))
    assert turns._queues == {}


def test_an_interrupt_anywhere_leaves_nobody_behind():
    turns = Turns()
    places = count_places(lambda: turns.give_up(KEY, take(turns)))
    assert places > 20
    for position in range(1, places + 1):
        with suppress(KeyboardInterrupt), interrupted_at(position):
            turns.give_up(KEY, take(turns))
        turns.give_up(KEY, take(turns, patience=0.5))
        assert turns._queues == {}


def test_a_turn_is_never_two_peoples_whoever_gives_up_meanwhile():
    turns, inside, wrong = Turns(), [0], []

    def work(number: int) -> None:
        for turn in range(60):
            try:
                mine = take(turns, patience=0.0003 if (number + turn) % 3 == 0 else 10)
            except TurnTimeout:
                continue
            inside[0] += 1
            if inside[0] != 1:
                wrong.append(inside[0])
            inside[0] -= 1
            turns.give_up(KEY, mine)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert wrong == []
    assert turns._queues == {}
