"""A waiting thread is woken, or looks again by itself; no interrupt leaves a lock taken."""

from __future__ import annotations

import threading
from contextlib import suppress
from time import monotonic

from nsqsmart.net import waiters as tokens
from nsqsmart.net.waiters import Latch, new_waiter, wait_for, wake
from tests.interrupts import count_places, interrupted_at


def test_who_is_woken_before_he_waits_does_not_wait():
    waiter = new_waiter()
    wake(waiter)
    wake(waiter)
    wait_for(waiter, 60)
    started = monotonic()
    wait_for(waiter, 0.02)
    assert monotonic() - started >= 0.02


def test_a_wait_ends_when_it_is_woken():
    waiter, ended = new_waiter(), threading.Event()

    def work() -> None:
        waiter.acquire(timeout=60)
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    wake(waiter)
    assert ended.wait(5)
    thread.join()


def test_a_long_wait_is_cut_to_look_again(monkeypatch):
    monkeypatch.setattr(tokens, "LOOK_AGAIN", 0.01)
    wait_for(new_waiter(), 3600)
    wait_for(new_waiter(), -1)


def test_a_gate_is_closed_until_it_is_open_for_all():
    gate = Latch()
    assert not gate.passed(0.01)
    assert not gate.passed(-1)
    passed = []
    threads = [threading.Thread(target=lambda: passed.append(gate.passed(60))) for _ in range(5)]
    for thread in threads:
        thread.start()
    gate.open()
    gate.open()
    for thread in threads:
        thread.join(5)
    assert passed == [True] * 5
    assert gate.passed(0)


def test_an_interrupt_anywhere_keeps_nobody_else():
    places = count_places(lambda: Latch().passed(0))
    for position in range(1, places + 1):
        gate = Latch()
        with suppress(KeyboardInterrupt), interrupted_at(position):
            gate.passed(0)
        gate.open()
        assert gate.passed(0)
