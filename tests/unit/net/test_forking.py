"""What is kept from the children of a process."""

from __future__ import annotations

import os
from weakref import WeakSet

from nsqsmart.net import cancel_scope as forking


class Kept:
    def __init__(self) -> None:
        self.drops = 0

    def drop(self) -> None:
        self.drops += 1


def test_a_child_drops_what_there_is_and_the_parent_keeps_it(monkeypatch):
    monkeypatch.setattr(forking, "_inherited", WeakSet())
    kept, gone = Kept(), Kept()
    forking.keep_from_children(kept)
    forking.keep_from_children(gone)
    del gone
    forking._drop_all()
    forking._drop_all()
    # Again would be of no use: what the child makes is its own.
    assert kept.drops == 1


def test_a_fork_is_noticed(monkeypatch, recwarn):
    monkeypatch.setattr(forking, "_inherited", WeakSet())
    kept = Kept()
    forking.keep_from_children(kept)
    child = os.fork()
    if child == 0:
        os._exit(10 + kept.drops)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 11
    assert kept.drops == 0
