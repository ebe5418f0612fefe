"""Whom the switch traces, and what the trace log says of publishing."""

from __future__ import annotations

import json
import logging

import pytest

import nsqsmart
from nsqsmart import tracing
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import PublishError

BODY = b"secret-body"


@pytest.fixture(autouse=True)
def switch(caplog):
    caplog.set_level(logging.INFO, "nsqsmart")
    yield
    tracing.set_source(None)


@pytest.fixture(scope="module")
def cluster():
    with Cluster(nsqds=2, lookupds=1) as made:
        for topic, extended in (("t", False), ("ext", True)):
            made.create_topic(topic, partitions=2, extend_support=extended)
            made.create_channel(topic, "c")
        yield made


@pytest.fixture
def producer(cluster):
    with nsqsmart.Producer(cluster.url) as made:
        yield made


@pytest.fixture
def lines(caplog):
    def read():
        records = [record for record in list(caplog.records) if record.name == "nsqsmart.trace"]
        return [json.loads(record.getMessage()) for record in records]

    return read


def test_the_switch_traces_what_the_call_does_not_decide(cluster, producer, lines):
    assert producer.publish("t", BODY).trace_id is None
    tracing.enable("t")
    assert producer.publish("t", BODY).trace_id
    assert producer.publish_async("t", BODY).result().trace_id
    assert producer.publish("t", BODY, trace=False).trace_id is None
    assert producer.publish("ext", BODY).trace_id is None
    tracing.disable("t")
    assert producer.publish("t", BODY).trace_id is None
    assert len(lines()) == 2


@pytest.mark.parametrize("topic", ["t", "ext"])
def test_a_line_says_where_a_message_is_stored(cluster, producer, lines, caplog, topic):
    receipt = producer.publish(topic, BODY, trace_id=2**64 - 3, key="k")
    (line,) = lines()
    assert line["event"] == "published"
    assert line["nsq_trace_id"] == str(2**64 - 3)
    assert line["nsq_internal_id"] == str(receipt.internal_id)
    assert line["nsq_disk_offset"] == str(receipt.offset)
    assert (line["nsqd_addr"], line["partition"]) == (receipt.nsqd, receipt.partition)
    assert "secret" not in caplog.text


@pytest.mark.parametrize("topic", ["t", "ext"])
def test_a_batch_has_a_line_for_every_message(cluster, producer, lines, topic):
    producer.publish_many(topic, [BODY] * 3, partition=1, trace=True)
    stored = [each for each in cluster.stored(topic) if each.partition == 1][-3:]
    assert [line["nsq_trace_id"] for line in lines()] == [str(each.trace_id) for each in stored]
    if topic == "t":
        ids = [str(each.internal_id) for each in stored]
        assert [line["nsq_internal_id"] for line in lines()] == ids


@pytest.mark.parametrize("key", [None, "k"])
def test_publish_async_has_them_too(cluster, producer, lines, key):
    pendings = [producer.publish_async("t", BODY, trace=True, key=key) for _ in range(30)]
    assert producer.flush(10)
    traced = {str(pending.result().trace_id) for pending in pendings}
    assert {line["nsq_trace_id"] for line in lines()} == traced
    assert len(lines()) == 30


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_failure_says_what_is_known(cluster, lines, asynchronous):
    fault = cluster.faults.add(faults.on("PUB_TRACE").reply("E_BAD_MESSAGE"))
    with nsqsmart.Producer(cluster.url) as producer:
        producer.publish("t", BODY)

        def publish():
            if asynchronous:
                return producer.publish_async("t", BODY, trace_id=7).result()
            return producer.publish("t", BODY, trace_id=7)

        with pytest.raises(PublishError):
            publish()
    assert fault.spent
    (line,) = lines()
    assert (line["event"], line["nsq_trace_id"]) == ("publish_failed", "7")
    assert (line["error"], line["outcome"]) == ("E_BAD_MESSAGE", "rejected")


def test_an_original_nsqd_is_passed_over_and_that_is_said_once(caplog, lines):
    tracing.enable()
    with Cluster(dialect="original") as old, nsqsmart.Producer(old.url) as producer:
        for _ in range(3):
            assert producer.publish("passed-over", BODY).trace_id is None
            assert producer.publish_many("passed-over", [BODY]).trace_id is None
            assert producer.publish_async("passed-over", BODY).result().trace_id is None
    assert not lines()
    assert sum("passed over" in record.message for record in caplog.records) == 1
