"""What log records carry besides their text: fields whose names begin with ``nsq_``."""

from __future__ import annotations

import logging

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster
from tests.helpers import eventually
from tests.integration.consuming import publish


@pytest.fixture
def cluster():
    with Cluster() as made:
        made.create_topic("t")
        made.create_channel("t", "c")
        yield made


@pytest.fixture
def records(caplog):
    caplog.set_level(logging.INFO, "nsqsmart")

    def find(text):
        found = [each for each in caplog.records if text in each.getMessage()]
        return found and facts(found[0])

    return find


def facts(record):
    return {name: value for name, value in vars(record).items() if name.startswith("nsq_")}


def test_a_consumer_says_where_and_of_what(cluster, records):
    publish(cluster, b"secret")
    nsqd = cluster.leader("t").name
    where = {"nsq_topic": "t", "nsq_channel": "c", "nsq_partition": 0, "nsq_nsqd": nsqd}

    def fail(message):
        raise ValueError

    options = {
        "default_requeue_delay": 0,
        "backoff_multiplier": 0.01,
        "max_attempts": 1,
        "on_giving_up": lambda message: None,
    }
    with nsqsmart.Consumer("t", "c", fail, address=cluster.url, **options):
        assert records("subscribed to") == where
        eventually(lambda: records("is given up"))
        cluster.kill(cluster.leader("t"))
        eventually(lambda: records("ended:"))
    assert records("is given up") == where | {"nsq_attempts": 2}
    assert records("backs off") == {"nsq_topic": "t", "nsq_channel": "c"}
    assert records("ended:") == where


def test_a_lookup_that_fails_names_its_topic(cluster, records):
    with nsqsmart.Producer(
        cluster.url, lookupd_poll_interval=0.01, lookupd_poll_jitter=0
    ) as producer:
        producer.publish("t", b"x")
        cluster.kill(cluster.lookupds[0])
        eventually(lambda: producer.publish("t", b"x") and records("lookup of topic"))
    assert records("lookup of topic") == {"nsq_topic": "t"}
