"""Publishing: routing, receipts, refusals, and what a failed call says of its message."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import (
    MessageRejected,
    NotSupported,
    OrderingNotSupported,
    Outcome,
    PartitionUnavailable,
    PublishError,
    PublishFailed,
    TopicHasNoChannel,
    TopicNotExist,
)
from nsqsmart.policy.routing import java_hash
from tests.helpers import eventually


@pytest.fixture
def cluster():
    with Cluster(nsqds=3, lookupds=2) as made:
        made.create_topic("t", partitions=3)
        made.create_channel("t", "c")
        yield made


@pytest.fixture
def producer(cluster):
    with nsqsmart.Producer(cluster.url) as made:
        yield made


def bodies(cluster, topic="t") -> Counter[bytes]:
    return Counter(stored.body for stored in cluster.stored(topic))


def test_a_key_goes_to_the_partition_that_java_would_choose(cluster, producer):
    keys = ["", "a", "customer-7", "żółw", "😀", 0, 7, -1, 2**63 - 1, -(2**63)]
    for number, key in enumerate(keys):
        receipt = producer.publish("t", b"%d" % number, key=key)
        assert receipt.partition == abs(java_hash(key)) % 3
    assert {int(found.body): found.partition for found in cluster.stored("t")} == {
        number: abs(java_hash(key)) % 3 for number, key in enumerate(keys)
    }


def test_a_partition_can_be_named(cluster, producer):
    for partition in range(3):
        assert producer.publish("t", b"%d" % partition, partition=partition).partition == partition
    assert [(found.partition, found.body) for found in cluster.stored("t")] == [
        (0, b"0"),
        (1, b"1"),
        (2, b"2"),
    ]


def test_a_partition_beyond_the_count_is_unavailable_and_nothing_is_sent(producer):
    with pytest.raises(PartitionUnavailable, match="3 partitions") as caught:
        producer.publish("t", b"x", partition=3, timeout=0.3)
    assert caught.value.outcome is Outcome.NOT_SENT


def test_unkeyed_messages_are_spread(cluster, producer):
    for number in range(30):
        producer.publish("t", b"%d" % number)
    assert Counter(found.partition for found in cluster.stored("t")) == {0: 10, 1: 10, 2: 10}


def test_a_traced_receipt_is_the_stored_position(cluster, producer):
    receipts = [producer.publish("t", b"m%d" % n, key="k", trace=True) for n in range(5)]
    receipts.append(producer.publish("t", b"m5", key="k", trace_id=2**64 - 1))
    stored = cluster.stored("t")
    assert [(r.partition, r.internal_id, r.trace_id, r.offset) for r in receipts] == [
        (s.partition, s.internal_id, s.trace_id, s.offset) for s in stored
    ]
    ends = [receipt.offset + receipt.size for receipt in receipts]
    assert ends[:-1] == [receipt.offset for receipt in receipts[1:]]
    assert receipts[-1].trace_id == 2**64 - 1


def test_an_untraced_receipt_knows_no_position(producer):
    receipt = producer.publish("t", b"x")
    assert (receipt.internal_id, receipt.trace_id, receipt.offset) == (None, None, None)
    assert receipt.attempts == 1


def test_a_partition_that_takes_no_writes_for_a_while_is_waited_for(cluster, producer):
    producer.publish("t", b"before", partition=0)
    cluster.set_writable("t", 0, False)

    def allow() -> None:
        # Refused once by the old leader; from then on no lookup names one.
        eventually(lambda: len(cluster.log.of("PUB")) == 2)
        cluster.set_writable("t", 0, True)

    thread = threading.Thread(target=allow)
    thread.start()
    receipt = producer.publish("t", b"x", partition=0, timeout=15)
    thread.join()
    assert receipt.attempts >= 2
    assert bodies(cluster) == {b"before": 1, b"x": 1}


def test_a_partition_that_takes_no_writes_till_the_end_is_unavailable(cluster, producer):
    cluster.set_writable("t", 0, False)
    with pytest.raises(PartitionUnavailable, match="partition 0 of 't' has no leader") as caught:
        producer.publish("t", b"x", partition=0, timeout=1.5)
    assert caught.value.outcome is Outcome.NOT_SENT
    assert bodies(cluster) == {}


@pytest.mark.parametrize("code", ["E_PUB_FAILED", "E_FAILED_ON_NOT_LEADER", "E_INVALID"])
def test_a_refusal_is_retried_and_nothing_is_doubled(cluster, producer, code):
    cluster.faults.add(faults.on("PUB").reply(code))
    assert producer.publish("t", b"x", timeout=10).attempts == 2
    assert bodies(cluster) == {b"x": 1}


def test_a_refusal_that_lied_leaves_a_duplicate_and_the_receipt_says_so(cluster, producer):
    cluster.faults.add(faults.on("PUB").store_then_reply("E_PUB_FAILED"))
    assert producer.publish("t", b"x", key="k", timeout=10).attempts == 2
    assert bodies(cluster) == {b"x": 2}


def test_without_retries_the_same_lie_is_uncertain(cluster):
    cluster.faults.add(faults.on("PUB").store_then_reply("E_PUB_FAILED"))
    with (
        nsqsmart.Producer(cluster.url, publish_attempts=1) as once,
        pytest.raises(PublishFailed) as caught,
    ):
        once.publish("t", b"x")
    assert caught.value.outcome is Outcome.UNCERTAIN
    assert caught.value.answered
    assert caught.value.code == "E_PUB_FAILED"


@pytest.mark.parametrize("fault", ["reset", "close", "store_then_reset", "store_then_close"])
def test_a_lost_connection_is_retried_for_an_unkeyed_message(cluster, producer, fault):
    cluster.faults.add(getattr(faults.on("PUB"), fault)())
    assert producer.publish("t", b"x", timeout=10).attempts == 2
    assert bodies(cluster) == {b"x": 2 if "store" in fault else 1}


@pytest.mark.parametrize("fault", ["reset", "store_then_reset"])
def test_a_lost_connection_ends_a_keyed_publish(cluster, producer, fault):
    cluster.faults.add(getattr(faults.on("PUB"), fault)())
    with pytest.raises(PublishFailed) as caught:
        producer.publish("t", b"x", key="k", timeout=10)
    assert caught.value.outcome is Outcome.UNCERTAIN
    assert not caught.value.answered
    assert bodies(cluster) == ({b"x": 1} if "store" in fault else {})
    producer.publish("t", b"y", key="k", timeout=10)
    assert bodies(cluster)[b"y"] == 1


def test_a_keyed_publish_is_repeated_where_that_is_wanted(cluster):
    cluster.faults.add(faults.on("PUB").store_then_reset())
    with nsqsmart.Producer(cluster.url, retry_unanswered=True) as bold:
        assert bold.publish("t", b"x", key="k", timeout=10).attempts == 2
    assert bodies(cluster) == {b"x": 2}


def test_an_answer_that_comes_too_late_is_never_anothers(cluster):
    cluster.faults.add(faults.on("PUB_TRACE").delay(1.2))
    with nsqsmart.Producer(cluster.url, response_timeout=0.5) as hasty:
        with pytest.raises(PublishError) as caught:
            hasty.publish("t", b"slow", key="k", trace_id=1)
        assert caught.value.outcome is Outcome.UNCERTAIN
        for number in range(2, 12):
            receipt = hasty.publish("t", b"next", key="k", trace_id=number, timeout=10)
            assert receipt.trace_id == number
    eventually(lambda: bodies(cluster)[b"slow"] == 1)
    assert bodies(cluster)[b"next"] == 10


def test_what_the_server_will_never_take_is_said_at_once(cluster):
    with Cluster(max_msg_size=100) as small:
        small.create_topic("t")
        small.create_channel("t", "c")
        with nsqsmart.Producer(small.url) as producer:
            with pytest.raises(MessageRejected) as caught:
                producer.publish("t", b"x" * 101)
            assert len(caught.value.attempts) == 1
            assert caught.value.outcome is Outcome.REJECTED
            assert producer.publish("t", b"x" * 100)


def test_an_unknown_topic_of_a_redesigned_cluster_is_an_error_after_two_lookups(producer):
    started = time.monotonic()
    with pytest.raises(TopicNotExist, match="check its name") as caught:
        producer.publish("absent", b"x")
    assert 0.9 < time.monotonic() - started < 2.5
    assert caught.value.outcome is Outcome.NOT_SENT


def test_a_topic_without_a_channel_takes_no_messages(cluster, producer):
    cluster.create_topic("dry")
    with pytest.raises(TopicHasNoChannel, match="create_channel") as caught:
        producer.publish("dry", b"x", timeout=5)
    assert caught.value.outcome is Outcome.NOT_SENT
    cluster.create_channel("dry", "c")

    def takes() -> bool:
        try:
            return bool(producer.publish("dry", b"x", timeout=5))
        except TopicHasNoChannel:
            return False

    eventually(takes)


def test_a_topic_that_appears_is_found(cluster, producer):
    with pytest.raises(TopicNotExist):
        producer.publish("late", b"x", timeout=5)
    cluster.create_topic("late")
    cluster.create_channel("late", "c")
    assert producer.publish("late", b"x", timeout=5)


@pytest.fixture
def original():
    with Cluster(dialect="original", nsqds=2, lookupds=2) as made:
        yield made


@pytest.mark.parametrize("arguments", [{"key": "k"}, {"partition": 0}])
@pytest.mark.parametrize("topic", ["t", "unknown"])
@pytest.mark.parametrize("direct", [True, False])
def test_ordering_is_refused_on_an_original_nsq_before_anything_is_sent(
    original, arguments, topic, direct
):
    original.create_topic("t")
    url = f"nsq://{original.nsqds[0].name}" if direct else original.url
    with nsqsmart.Producer(url) as producer, pytest.raises(OrderingNotSupported):
        producer.publish(topic, b"x", timeout=5, **arguments)
    assert not original.log.of("PUB")


def test_tracing_on_an_original_nsq_is_passed_over_or_refused(original):
    original.create_topic("t")
    with nsqsmart.Producer(original.url, trace=True) as producer:
        assert producer.publish("t", b"x", timeout=5).trace_id is None
        with pytest.raises(NotSupported):
            producer.publish("t", b"x", trace=True, timeout=5)


def test_the_first_publish_makes_the_topic_of_an_original_cluster(original):
    with nsqsmart.Producer(original.url) as producer:
        assert producer.publish("new", b"first", timeout=5).attempts == 1
        eventually(lambda: bodies(original, "new") == {b"first": 1})
        for number in range(20):
            producer.publish("new", b"%d" % number, timeout=5)
    assert len(bodies(original, "new")) == 21


def test_the_first_publish_bears_a_dead_lookup(original):
    original.kill(original.lookupds[0])
    with nsqsmart.Producer(original.url) as producer:
        assert producer.publish("new", b"first", timeout=5)
    assert bodies(original, "new") == {b"first": 1}


def test_nsqds_named_by_hand_need_no_lookup():
    with Cluster(dialect="original", nsqds=2, lookupds=0) as cluster:
        with nsqsmart.Producer(cluster.url) as producer:
            for number in range(10):
                producer.publish("t", b"%d" % number, timeout=5)
        assert len(bodies(cluster)) == 10
        assert len({found.nsqd for found in cluster.stored("t")}) == 2


def test_many_threads_that_fail_at_once_ask_the_lookups_once(cluster):
    with nsqsmart.Producer(cluster.url, serialize=False) as producer:
        producer.publish("t", b"first")
        asked = len(cluster.log.of("GET /lookup"))
        cluster.faults.add(faults.on("PUB", times=8).reply("E_FAILED_ON_NOT_LEADER"))
        barrier = threading.Barrier(8)
        failures: list[Exception] = []

        def publish() -> None:
            barrier.wait()
            try:
                producer.publish("t", b"x", key="k", timeout=10)
            except PublishError as error:
                failures.append(error)

        threads = [threading.Thread(target=publish) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    assert bodies(cluster)[b"x"] == 8
    # One flight asks both lookups; a second one may follow a second later.
    assert len(cluster.log.of("GET /lookup")) - asked <= 4
