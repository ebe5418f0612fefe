"""What tests of publishing share: honest failures in time, and nothing held afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest

import nsqsmart
from nsqsmart import Receipt
from nsqsmart.client.publishing.shared_state import PublishingState
from nsqsmart.embedded import Cluster
from nsqsmart.errors import PublishError
from tests.helpers import eventually

SLACK = 2.0


def shared(producer: nsqsmart.Producer) -> PublishingState:
    """What the calls of *producer* have in common in this process."""
    return producer._running().publishing


def check_free(producer: nsqsmart.Producer) -> None:
    """No thread holds a connection of the pool, a turn or a lookup."""
    publisher = shared(producer)
    assert not publisher.turns._queues
    for place in publisher.pool._hosts.values():
        assert not place.line
        assert place.count() == len(place.idle)
    for entry in publisher.directory._entries.values():
        # What is merely old may be renewed beside the calls at this moment.
        eventually(lambda entry=entry: not entry.flying, what="a lookup that ends")
        assert not entry.waiting


@contextmanager
def in_time(seconds: float) -> Iterator[None]:
    """The block keeps a deadline so many seconds from now."""
    started = monotonic()
    yield
    assert monotonic() - started < seconds + SLACK


def failure(
    producer: nsqsmart.Producer, body: bytes = b"x", timeout: float = 1.0, **arguments: Any
) -> PublishError:
    """How a publish to ``t`` fails, which it must do in time and without holding anything."""
    with in_time(timeout), pytest.raises(PublishError) as caught:
        producer.publish("t", body, timeout=timeout, **arguments)
    check_free(producer)
    return caught.value


def answered_failure(producer: nsqsmart.Producer, **arguments: Any) -> PublishError:
    """Publish where every server refuses; the deadline was not in the middle of an exchange."""

    def fail() -> PublishError | None:
        error = failure(producer, **arguments)
        return error if error.answered else None

    return eventually(fail, 20)


def codes(error: PublishError) -> list[str]:
    """What its attempts ended with."""
    return [attempt.code for attempt in error.attempts]


def bodies(cluster: Cluster, topic: str = "t") -> Counter[bytes]:
    """What is stored, and how often."""
    return Counter(stored.body for stored in cluster.stored(topic))


def published(producer: nsqsmart.Producer, way: str, body: bytes, **arguments: Any) -> Receipt:
    """The receipt of *body*, published to ``t`` by the method of that name."""
    given = [body] if way == "publish_many" else body
    found = getattr(producer, way)("t", given, **arguments)
    return found.result(10) if way == "publish_async" else found
