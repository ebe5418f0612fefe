"""``ordering="best-effort"``: a message with a key on a server that keeps no order."""

from __future__ import annotations

import logging

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster
from nsqsmart.errors import OrderingNotSupported


@pytest.fixture(scope="module")
def original():
    with Cluster(dialect="original", nsqds=2) as cluster:
        yield cluster


def stored(cluster, topic):
    return sorted(each.body for each in cluster.stored(topic))


@pytest.mark.parametrize("direct", [False, True])
def test_best_effort_sends_a_key_without_order_and_says_so_once(original, caplog, direct):
    address = f"nsq://{original.nsqds[0].name}" if direct else original.url
    topic = f"orders{direct}"
    with nsqsmart.Producer(address, ordering="best-effort") as producer:
        with caplog.at_level(logging.WARNING, "nsqsmart"):
            receipt = producer.publish(topic, b"1", key="k")
            producer.publish_many(topic, [b"2", b"3"], key=7)
            producer.publish_async(topic, b"4", key="k").result(5)
        # No lookup knew it before: publish_async has to find out first.
        producer.publish_async(topic + "2", b"5", key="k").result(5)
    assert (receipt.partition, receipt.topic) == (None, topic)
    assert stored(original, topic) == [b"1", b"2", b"3", b"4"]
    assert stored(original, topic + "2") == [b"5"]
    said = [each.getMessage() for each in caplog.records if "without order" in each.getMessage()]
    assert [text.split()[1] for text in said] == [topic, topic + "2"]
    assert "is on an original NSQ" in said[0]


def test_publish_async_on_a_known_topic_needs_no_thread_for_a_key(original):
    with nsqsmart.Producer(original.url, ordering="best-effort") as producer:
        producer.publish("known", b"1")
        pending = [producer.publish_async("known", b"%d" % n, key="k") for n in range(2, 6)]
        assert {each.result(5).partition for each in pending} == {None}
    assert len(stored(original, "known")) == 5


@pytest.mark.parametrize("arguments", [{"key": "k"}, {"partition": 0}])
def test_by_default_it_is_refused_and_the_error_names_the_option(original, arguments):
    with nsqsmart.Producer(original.url) as producer:
        for topic in ("refused", "orders"):
            with pytest.raises(OrderingNotSupported, match='ordering="best-effort"'):
                producer.publish(topic, b"1", **arguments)
    assert stored(original, "refused") == []


def test_a_partition_is_a_place_and_no_order(original):
    with nsqsmart.Producer(original.url, ordering="best-effort") as producer:
        with pytest.raises(OrderingNotSupported):
            producer.publish("orders", b"1", partition=0)
        with pytest.raises(OrderingNotSupported):
            producer.publish_async("orders", b"1", partition=0).result(5)


def test_what_was_spooled_with_a_key_leaves_without_one(original, tmp_path):
    spool = {"spool": str(tmp_path), "ordering": "best-effort"}
    with nsqsmart.Producer("nsq://127.0.0.1:1", publish_timeout=0.2, **spool) as producer:
        assert producer.publish("spooled", b"1", key="k").spooled
    with nsqsmart.Producer(original.url, **spool) as producer:
        (flushed,) = producer.flush_spool(5)
        assert flushed.error is None
    assert stored(original, "spooled") == [b"1"]


def test_where_there_are_partitions_best_effort_changes_nothing():
    with Cluster(auto_create=True) as cluster:
        cluster.create_topic("orders", partitions=4)
        with nsqsmart.Producer(cluster.url, ordering="best-effort") as producer:
            found = {producer.publish("orders", b"%d" % n, key="k").partition for n in range(5)}
            want = producer.partition_of("orders", "k")
    assert found == {want}
