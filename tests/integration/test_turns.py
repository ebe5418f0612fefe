"""Keyed messages of one partition: one after the other, whatever happens to the first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import nsqsmart
from nsqsmart.client.publishing import call as publish_call
from nsqsmart.embedded import Cluster, faults
from tests.helpers import eventually


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        made.create_topic("t")
        made.create_channel("t", "c")
        yield made


def test_nothing_passes_by_a_keyed_message_that_is_tried_again(cluster, monkeypatch):
    # Every pause as long as it may be: there is time enough to pass by.
    whole = SimpleNamespace(uniform=lambda low, high: high)
    monkeypatch.setattr(publish_call, "random", whole)
    with nsqsmart.Producer(cluster.url, retry_pause=0.2) as producer:
        producer.warm("t")
        refused = faults.on("PUB").reply("E_PUB_FAILED", "later")
        cluster.faults.add(refused)
        first = threading.Thread(target=producer.publish, args=("t", b"a"), kwargs={"key": "k"})
        first.start()
        eventually(lambda: refused.acted)
        producer.publish("t", b"b", key="k")
        first.join(10)
    assert [stored.body for stored in cluster.stored("t")] == [b"a", b"b"]
