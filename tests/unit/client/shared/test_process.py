"""One object a process, whichever thread asks first."""

from __future__ import annotations

import os
import sys
import threading

from nsqsmart.client.shared.process import PerProcess


class Thing:
    def __init__(self) -> None:
        self.dropped = False

    def drop(self) -> None:
        self.dropped = True


def test_it_is_made_once_and_everybody_has_the_same() -> None:
    held: PerProcess[Thing] = PerProcess()
    assert held.get() is None
    assert held.get_or_make(Thing) is held.get_or_make(Thing) is held.get()


def test_what_came_with_a_fork_is_dropped(monkeypatch) -> None:
    held: PerProcess[Thing] = PerProcess()
    parents = held.get_or_make(Thing)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert held.get() is None
    mine = held.get_or_make(Thing)
    assert mine is not parents
    assert parents.dropped
    assert held.take() is mine
    assert held.get() is None


def test_threads_that_ask_first_at_once_do_not_disturb_each_other() -> None:
    """Looking for what was inherited goes on while others add their own."""
    failures: list[RuntimeError] = []

    def ask(held: PerProcess[Thing], barrier: threading.Barrier) -> None:
        barrier.wait()
        try:
            held.get_or_make(Thing)
        except RuntimeError as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(200):
            held: PerProcess[Thing] = PerProcess()
            held.held = {-number: Thing() for number in range(1, 50)}
            barrier = threading.Barrier(4)
            threads = [threading.Thread(target=ask, args=(held, barrier)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures
