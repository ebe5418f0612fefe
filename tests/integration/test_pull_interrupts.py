"""KeyboardInterrupt in a pull: nothing is lost while it waits, nothing torn behind a read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import nsqsmart
from nsqsmart.client.pulling.connection import PullConnection
from nsqsmart.embedded import Cluster
from nsqsmart.errors import ConnectionLost
from nsqsmart.net.pull_reader import PullReader

BODIES = {b"%d" % number * 500 for number in range(20)}


@pytest.fixture(params=["original", "redesigned"])
def cluster(request) -> Iterator[Cluster]:
    with Cluster(dialect=request.param, nsqds=1, lookupds=1) as made:
        made.create_topic("t")
        made.create_channel("t", "c")
        yield made


@pytest.fixture
def source(cluster) -> Iterator[nsqsmart.PullSubscription]:
    source = nsqsmart.PullSubscription(cluster.url, "t", "c", max_in_flight=20).open()
    yield source
    source.drain(5)


def fill(cluster: Cluster) -> None:
    with nsqsmart.Producer(cluster.url) as producer:
        producer.publish_many("t", sorted(BODIES))


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_while_it_waits_leaves_it_as_it_was(cluster, source, monkeypatch):
    assert source.pull(timeout=0) == []
    with monkeypatch.context() as waiting:
        waiting.setattr(source._line._reader._socket, "poll", interrupt)
        with pytest.raises(KeyboardInterrupt):
            source.pull()
    fill(cluster)
    found: list[nsqsmart.Message] = []
    while len(found) < len(BODIES):
        found += source.pull(20, timeout=10)
    assert {each.body for each in found} == BODIES
    assert source.finish(found) == len(BODIES)
    assert source.drain(5).confirmed


@pytest.mark.parametrize("where", [(PullConnection, "_admit"), (PullReader, "_take")])
def test_nothing_is_read_behind_what_an_interrupt_took(cluster, source, monkeypatch, where):
    fill(cluster)
    with monkeypatch.context() as taken:
        taken.setattr(*where, interrupt)
        with pytest.raises(KeyboardInterrupt):
            source.pull(20, timeout=10)
    with pytest.raises(ConnectionLost):
        source.pull(20, timeout=10)
    report = source.drain(5)
    assert not report.confirmed


def test_a_drain_that_is_interrupted_is_not_confirmed(cluster, source, monkeypatch):
    fill(cluster)
    assert source.pull(timeout=10)
    with monkeypatch.context() as taken:
        taken.setattr(PullReader, "_take", interrupt)
        with pytest.raises(KeyboardInterrupt):
            source.drain(5)
    assert not source.drain(5).confirmed
