"""Who ends a consumer: once, from any thread, from inside, and from a signal handler."""

from __future__ import annotations

import os
import threading
from time import monotonic

import pytest

from nsqsmart.client.consuming.consumer import Shutdown
from nsqsmart.errors import ClientClosed


def test_only_the_first_to_end_it_does():
    ending = Shutdown()
    ending.check()
    assert not ending.closing
    assert [ending.claim() for _ in range(3)] == [True, False, False]
    assert ending.closing
    with pytest.raises(ClientClosed):
        ending.check()


def test_what_wants_the_end_while_it_starts_is_found_when_it_has():
    calm, failed, wished = Shutdown(), Shutdown(), Shutdown()
    assert not failed.fail(ValueError("first"))
    assert not failed.fail(ValueError("second"))
    assert not wished.ask()
    assert [each.is_wanted() for each in (calm, failed, wished)] == [False, True, True]
    assert str(failed.error) == "first"
    # From then on it is at once.
    assert calm.fail(ValueError())
    assert calm.ask()


@pytest.mark.timeout(10)
def test_a_wish_takes_no_lock():
    ending = Shutdown()
    with ending._lock:
        ending.ask()


def test_at_the_end_of_the_process_a_drain_that_goes_on_is_waited_for(monkeypatch):
    ending = Shutdown()
    thread = threading.Thread(target=ending.over.set)
    thread.start()
    ending.leave(monotonic() + 60)
    assert ending.over.is_set()
    thread.join()
    ending.over.clear()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    ending.leave(monotonic() + 60)  # in a child it is another's
