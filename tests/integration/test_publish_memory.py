"""What a producer remembers: nodes that failed, commands without an answer, partition counts."""

from __future__ import annotations

import threading
from time import monotonic

import pytest
import requests

import nsqsmart
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import Outcome, PartitionCountChanged, PublishError, PublishFailed
from tests.helpers import eventually


@pytest.fixture
def original():
    with Cluster(dialect="original", nsqds=2, lookupds=0) as made:
        yield made


@pytest.fixture
def cluster():
    with Cluster(nsqds=2, lookupds=1) as made:
        made.create_topic("t", partitions=2)
        made.create_channel("t", "c")
        yield made


def test_a_node_that_failed_is_left_alone_for_a_while(original, monkeypatch):
    monkeypatch.setattr("nsqsmart.policy.outages._PAUSE", 30.0)
    with nsqsmart.Producer(original.url) as producer:
        original.kill(original.nsqds[0])
        attempts = [producer.publish("t", b"x").attempts for _ in range(20)]
    assert sum(attempts) == 21


def test_it_is_tried_again_and_used_again(original, monkeypatch):
    monkeypatch.setattr("nsqsmart.policy.outages._PAUSE", 0.05)
    first = original.nsqds[0]
    with nsqsmart.Producer(original.url) as producer:
        original.kill(first)
        assert {producer.publish("t", b"x").nsqd for _ in range(4)} == {
            "{}:{}".format(*original.nsqds[1].tcp_address)
        }
        original.restart(first)
        name = "{}:{}".format(*first.tcp_address)
        eventually(lambda: producer.publish("t", b"x").nsqd == name)
        assert name in {producer.publish("t", b"x").nsqd for _ in range(2)}


def test_who_has_only_nodes_that_failed_uses_those(original):
    with nsqsmart.Producer(original.url, publish_timeout=20) as producer:
        for nsqd in original.nsqds:
            original.kill(nsqd)
        with pytest.raises(PublishError):
            producer.publish("t", b"x", timeout=0.2)
        for nsqd in original.nsqds:
            original.restart(nsqd)
        assert producer.publish("t", b"x")


def test_a_fence_holds_what_follows_an_unanswered_publish(cluster):
    with nsqsmart.Producer(cluster.url, uncertain_fence=1.5) as producer:
        producer.publish("t", b"before", partition=0)
        cluster.faults.add(faults.on("PUB").store_then_close())
        started = monotonic()
        with pytest.raises(PublishFailed) as caught:
            producer.publish("t", b"lost", partition=0)
        assert caught.value.outcome is Outcome.UNCERTAIN
        with pytest.raises(PublishError, match="fenced") as fenced:
            producer.publish("t", b"early", partition=0, timeout=0.05)
        assert fenced.value.outcome is Outcome.NOT_SENT
        assert producer.publish("t", b"elsewhere", partition=1, timeout=1)
        producer.publish("t", b"after", partition=0)
        assert monotonic() - started >= 1.5
    found = [each.body for each in cluster.stored("t", 0)]
    assert found[0] == b"before"
    assert found[-1] == b"after"
    assert b"early" not in found


def test_a_new_partition_count_is_said_once_and_used(cluster, caplog):
    cluster.create_topic("m", partitions=2, multi_part=True)
    cluster.create_channel("m", "c")
    (lookupd,) = cluster.lookupds
    with nsqsmart.Producer(cluster.url, lookupd_poll_interval=0.05) as producer:
        for key in range(20):
            producer.publish("m", b"x", key=key)
        expand = "http://{}:{}/topic/partition/expand?topic=m&partition_num=4"
        requests.post(expand.format(*lookupd.http_address), timeout=5).raise_for_status()
        cluster.create_channel("m", "c")

        def changed() -> Outcome | None:
            try:
                producer.publish("m", b"x", key=3)
            except PartitionCountChanged as error:
                return error.outcome
            return None

        assert eventually(changed) is Outcome.NOT_SENT
        used = {producer.publish("m", b"x", key=key).partition for key in range(20)}
    assert used == {0, 1, 2, 3}
    assert [record.message for record in caplog.records if "partitions now" in record.message] == [
        "topic m has 4 partitions now, not 2: keys move to others"
    ]


@pytest.mark.parametrize("callers", [1, 3])
def test_a_leader_that_left_a_keyed_publish_unanswered_is_not_dialled_again(callers):
    with Cluster(nsqds=3, lookupds=1) as cluster:
        cluster.create_topic("t", replicas=3)
        cluster.create_channel("t", "c")
        old = cluster.leader("t")
        results: list[object] = []

        def publish() -> None:
            try:
                results.append(producer.publish("t", b"x", partition=0))
            except PublishFailed as error:
                results.append(error.outcome)

        options = {"response_timeout": 0.5, "lookupd_min_refresh_interval": 0.05}
        with nsqsmart.Producer(cluster.url, **options) as producer:
            producer.publish("t", b"first", partition=0)
            cluster.hang(old)
            # One waits for its answer, the others for their turns, all with the old topology.
            threads = [threading.Thread(target=publish) for _ in range(callers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            publish()
            pools = producer.stats()["pools"]
            cluster.wake(old)
    assert results.pop(0) is Outcome.UNCERTAIN
    assert {receipt.nsqd for receipt in results}.isdisjoint({old.name})
    assert pools[old.name]["connections_num"] == 1


def test_a_leader_in_doubt_serves_while_no_lookup_answers(cluster):
    with nsqsmart.Producer(cluster.url, lookupd_min_refresh_interval=0.05) as producer:
        producer.publish("t", b"first", partition=0)
        for lookupd in cluster.lookupds:
            cluster.kill(lookupd)
        cluster.faults.add(faults.on("PUB").reset())
        with pytest.raises(PublishFailed):
            producer.publish("t", b"x", partition=0)
        receipt = producer.publish("t", b"y", partition=0, timeout=10)
    assert receipt.nsqd == cluster.leader("t").name


def test_who_pauses_goes_on_when_another_call_brings_a_newer_picture(cluster, monkeypatch):
    # As long as a pause can be.
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    options = {"retry_pause": 60, "max_retry_pause": 60, "lookupd_poll_interval": 0.05}
    with nsqsmart.Producer(cluster.url, **options) as producer:
        cluster.set_writable("t", 0, False)
        receipts: list[nsqsmart.Receipt] = []
        thread = threading.Thread(
            target=lambda: receipts.append(producer.publish("t", b"x", partition=0, timeout=120))
        )
        thread.start()
        eventually(lambda: producer._running().publishing.directory._entries["t"].waiting)
        cluster.set_writable("t", 0)

        def stored() -> bool:
            producer.publish("t", b"y", partition=1)
            return bool(receipts)

        eventually(stored)
        thread.join()
