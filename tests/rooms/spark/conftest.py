"""A cluster with a topic and a channel, and what a query on it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from nsqsmart.spark.options import ReadOptions

TOPIC, CHANNEL = "orders", "archive"


@pytest.fixture(params=["original", "redesigned"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Two nsqds; the topic is on both, or has two partitions."""
    with Cluster(dialect=request.param, nsqds=2, lookupds=1) as cluster:
        admin = nsqsmart.Admin(cluster.url)
        admin.create_topic(TOPIC, **({"partitions": 2} if request.param == "redesigned" else {}))
        admin.create_channel(TOPIC, CHANNEL)
        yield cluster


@pytest.fixture
def publish(cluster: Cluster) -> Iterator[Callable[[int], list[bytes]]]:
    """Publish so many more messages, in batches, all different; returns their bodies."""
    made: list[bytes] = []
    with nsqsmart.Producer(cluster.url) as producer:

        def more(count: int) -> list[bytes]:
            bodies = [b"%08d" % (len(made) + number) for number in range(count)]
            made.extend(bodies)
            for first in range(0, count, 100):
                producer.publish_many(TOPIC, bodies[first : first + 100])
            return bodies

        yield more


@pytest.fixture
def told(cluster: Cluster, tmp_path: Path) -> Callable[..., ReadOptions]:
    """Options for a query; keywords are more of them."""
    from nsqsmart.spark.options import ReadOptions

    def tell(**more: object) -> ReadOptions:
        base = {
            "address": cluster.url,
            "subscribe": TOPIC,
            "channel": CHANNEL,
            "spoolLocation": str(tmp_path / "spool"),
            "idleTimeoutMs": "50",
            "statsIntervalMs": "1",
            "chunkMessages": "100",
        }
        return ReadOptions.parse(base | {name: str(value) for name, value in more.items()})

    return tell


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of all tests, on this machine.

    Without Java the test is skipped, or fails if Java is required.
    """
    from tests.rooms.spark.submitted import local_session

    # Four attempts at a task.
    with local_session("local[2,4]", tmp_path_factory.mktemp("warehouse")) as made:
        yield made
