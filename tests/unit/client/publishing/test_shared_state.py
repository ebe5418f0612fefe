"""What the calls of a producer share: which calls are under way when it closes."""

from __future__ import annotations

import threading
from time import monotonic

import pytest

from nsqsmart.client.publishing.shared_state import PublishingState
from nsqsmart.client.shared.directory import Directory
from nsqsmart.config import Endpoint, ProducerConfig
from nsqsmart.net import waiters as tokens
from nsqsmart.net.http.lookup import WRITE
from nsqsmart.net.pool import ConnectionPool
from tests.helpers import eventually


class Call:
    """Stands for a call between two exchanges."""


@pytest.fixture
def publisher(monkeypatch) -> PublishingState:
    monkeypatch.setattr(tokens, "LOOK_AGAIN", 30.0)
    config = ProducerConfig()
    directory = Directory(Endpoint.parse("nsq://h:4150"), config, WRITE)
    pool = ConnectionPool(lambda _address, _deadline: None, 1, 1.0)
    return PublishingState(config, directory, pool, "id")


def test_close_waits_for_calls_and_is_told_when_they_end(publisher):
    calls = [Call(), Call()]
    for call in calls:
        publisher.begin(call)
    closing = threading.Thread(target=publisher.close, args=(monotonic() + 60,))
    closing.start()
    eventually(lambda: publisher.pool._watchers)
    publisher.end(calls[0])
    assert not publisher.ending.passed(0.02)
    publisher.end(calls[1])
    closing.join(5)
    assert publisher.ended
    assert publisher.ending.passed(0)
    assert publisher.pool.closed


def test_a_call_that_is_gone_is_not_waited_for(publisher):
    """An interrupt may end it before it can say so."""
    publisher.begin(Call())
    publisher.close(monotonic() + 60)
    assert publisher.pool.closed


def test_close_waits_no_longer_than_it_may(publisher):
    call = Call()
    publisher.begin(call)
    publisher.close(monotonic() + 0.02)
    assert publisher.ended
    assert publisher.ending.passed(0)
