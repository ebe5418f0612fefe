"""What waits for a worker: what a connection has left behind goes, the rest keeps its order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from nsqsmart.client.consuming.workers import Inbox, ThreadCounts


def message(source: object, ordering: object = None) -> Any:
    return SimpleNamespace(_subscription=source, _ordering=ordering, _answer=None, body=b"x")


def left(inbox: Inbox) -> list[object]:
    return [inbox.queue.get_nowait() for _ in range(inbox.queue.qsize())]


def test_what_came_from_a_connection_that_is_over_is_forgotten():
    forgotten: list[object] = []
    gone, other = SimpleNamespace(forget=forgotten.append), object()
    messages = [message(gone), message(other), message(gone), message(other)]
    head = message(gone, ordering=object())
    inbox, counts = Inbox(), ThreadCounts()
    for each in (*messages, head):
        inbox.queue.put(each)
    inbox.drop(gone, counts)
    assert left(inbox) == [messages[1], messages[3], head]
    assert forgotten == [messages[0], messages[2]]
    assert counts.expired == 2
    assert (messages[0]._answer, messages[0].body) == (False, b"")
    assert messages[1].body == b"x"


def test_the_end_stays_behind_what_was_before_it():
    other = object()
    inbox, first = Inbox(), message(other)
    inbox.queue.put(first)
    inbox.end(2)
    inbox.drop(object(), ThreadCounts())
    assert left(inbox) == [first, None, None]
