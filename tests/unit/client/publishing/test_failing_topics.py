"""What fails, by topic: one warning when it lasts, one when it works again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nsqsmart.client.publishing import shared_state as troubles_module
from nsqsmart.client.publishing.shared_state import FailingTopics


class Clock:
    now = 100.0


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(troubles_module, "monotonic", lambda: made.now)
    return made


def test_what_lasts_is_told_once_and_so_is_its_end(clock, caplog):
    failing_topics = FailingTopics()
    for _ in range(120):
        failing_topics.failed("orders", "refused by a:4150", clock.now)
        clock.now += 0.5
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "topic orders has failed for 1.0 s" in record.getMessage()
    assert "refused by a:4150" in record.getMessage()
    failing_topics.worked("orders")
    assert "works again, after 60.0 s" in caplog.records[-1].getMessage()
    assert (len(caplog.records), failing_topics.topics) == (2, {})


def test_what_passes_in_a_second_is_not_told(clock, caplog):
    failing_topics = FailingTopics()
    failing_topics.failed("t", "moved", clock.now)
    clock.now += 0.9
    failing_topics.failed("t", "moved", clock.now)
    assert failing_topics.reasons() == []
    failing_topics.worked("t")
    # It begins anew.
    clock.now += 0.9
    failing_topics.failed("t", "moved", clock.now)
    assert not caplog.records


def test_reasons_are_those_of_calls_that_ended_or_of_a_second(clock):
    failing_topics = FailingTopics()
    failing_topics.failed("b", "refused", clock.now, ended=True)
    failing_topics.failed("a", "silent", clock.now)
    assert failing_topics.reasons() == ["topic b for 0 s: refused"]
    clock.now += 2
    assert failing_topics.reasons() == ["topic a for 2 s: silent", "topic b for 2 s: refused"]


def test_everywhere_is_where_nothing_else_works(clock):
    failing_topics = FailingTopics()
    assert not failing_topics.everywhere
    failing_topics.failed("a", "refused", clock.now)
    assert failing_topics.everywhere
    failing_topics.note_stored([SimpleNamespace(topic="b")])
    assert not failing_topics.everywhere
    failing_topics.failed("a", "refused", clock.now)
    assert not failing_topics.everywhere
    failing_topics.failed("b", "refused", clock.now)
    assert failing_topics.everywhere
    failing_topics.worked("a")
    failing_topics.worked("b")
    assert (failing_topics.everywhere, failing_topics.topics) == (False, {})
