"""sample_rate: the server sends so many of a hundred messages, and drops the rest."""

from __future__ import annotations

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster
from tests.integration.consuming import Handled, all_finished, numbered

COUNT = 400


@pytest.mark.parametrize("dialect", ["original", "redesigned"])
@pytest.mark.parametrize(("rate", "fewest", "most"), [(0, COUNT, COUNT), (20, 1, COUNT // 2)])
def test_so_many_of_a_hundred_come(dialect, rate, fewest, most):
    handled = Handled()
    with Cluster(dialect=dialect) as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        with nsqsmart.Producer(cluster.url) as producer:
            producer.publish_many("t", numbered(COUNT))
        with nsqsmart.Consumer("t", "c", handled, address=cluster.url, sample_rate=rate):
            all_finished(cluster)
    assert fewest <= len(handled.messages) <= most
