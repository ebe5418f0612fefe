"""Batches, headers, tags, delays and JSON: every kind of publish beside the plain one."""

from __future__ import annotations

import json
from time import monotonic

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import (
    ConfigError,
    MessageRejected,
    NotSupported,
    OrderingNotSupported,
    Outcome,
    PublishError,
)
from tests.helpers import eventually
from tests.integration.consuming import Handled, numbered


@pytest.fixture(scope="module")
def cluster():
    with Cluster(nsqds=2, lookupds=1) as made:
        for topic, extended in (("t", False), ("ext", True), ("fresh", False)):
            made.create_topic(topic, partitions=2, extend_support=extended)
            made.create_channel(topic, "c")
        yield made


@pytest.fixture(scope="module")
def original():
    with Cluster(dialect="original", nsqds=2, lookupds=1) as made:
        yield made


@pytest.fixture
def producer(cluster):
    with nsqsmart.Producer(cluster.url) as made:
        yield made


@pytest.fixture
def old(original):
    with nsqsmart.Producer(original.url) as made:
        yield made


def stored(cluster, topic="t"):
    return cluster.stored(topic)


# ---------------------------------------------------------------------------------------- batches


def test_a_batch_is_one_command_and_stays_together_in_order(cluster, producer):
    bodies = numbered(50, b"batch-")
    receipt = producer.publish_many("fresh", bodies, key="customer-7")
    assert (receipt.count, receipt.attempts) == (50, 1)
    found = [each for each in stored(cluster, "fresh") if each.partition == receipt.partition]
    assert [each.body for each in found] == bodies
    assert len(cluster.log.of("MPUB")) == 1


def test_a_batch_may_come_from_any_iterable(original, old):
    assert old.publish_many("iterable", (b"%d" % n for n in range(3))).count == 3
    assert [each.body for each in stored(original, "iterable")] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("topic", ["t", "ext"])
def test_a_traced_batch_has_an_id_for_every_message(cluster, producer, topic):
    receipt = producer.publish_many(topic, [b"a", b"b"], partition=0, trace=True)
    *_, first, second = (each for each in stored(cluster, topic) if each.partition == 0)
    assert first.trace_id != second.trace_id
    assert first.trace_id
    assert second.trace_id
    if topic == "t":  # MPUB_EXT says nothing of where it was stored (protocol#mpub_ext)
        place = (receipt.internal_id, receipt.trace_id, receipt.offset)
        assert place == (first.internal_id, first.trace_id, first.offset)
        assert receipt.size == 2 * 31


def test_a_large_batch_is_sent_in_parts_where_that_is_wanted(cluster, producer):
    bodies = numbered(2500)
    before = len(cluster.log.of("MPUB"))
    receipt = producer.publish_many("t", bodies, partition=1, split=True)
    assert receipt.count == 2500
    assert len(cluster.log.of("MPUB")) - before == 3
    assert [each.body for each in stored(cluster) if each.partition == 1][-2500:] == bodies


def test_parts_are_bounded_in_bytes_too(cluster, producer):
    before = len(cluster.log.of("MPUB"))
    big = b"x" * 400_000
    assert producer.publish_many("t", [big] * 5, partition=0, split=True).count == 5
    assert len(cluster.log.of("MPUB")) - before == 3


def test_an_error_says_what_earlier_parts_stored(cluster):
    cluster.faults.add(faults.on("MPUB", nth=2).reply("E_MPUB_FAILED"))
    with (
        nsqsmart.Producer(cluster.url, publish_attempts=1) as producer,
        pytest.raises(PublishError) as caught,
    ):
        producer.publish_many("t", numbered(1500), split=True)
    assert caught.value.accepted == 1000
    cluster.faults.clear()


@pytest.mark.parametrize("code", ["E_MPUB_FAILED", "E_FAILED_ON_NOT_LEADER"])
def test_an_error_to_a_batch_ends_its_connection(cluster, producer, code):
    """What is left of the batch in the stream must not become commands."""
    producer.publish_many("t", [b"x"], partition=0)
    (connection,) = {entry.connection for entry in cluster.log.of("MPUB")[-1:]}
    cluster.faults.add(faults.on("MPUB").reply(code))
    assert producer.publish_many("t", [b"y"], partition=0).attempts == 2
    assert cluster.log.of("MPUB")[-1].connection != connection
    cluster.faults.clear()


def test_a_batch_larger_than_the_server_takes_is_refused_as_a_whole(old):
    with pytest.raises(MessageRejected) as caught:
        old.publish_many("large", [b"x" * 1_000_000] * 6)
    assert caught.value.outcome is Outcome.REJECTED


@pytest.mark.parametrize(
    ("bodies", "error", "says"),
    [
        ([], ConfigError, "bodies is empty"),
        ([b"a", b""], ConfigError, r"bodies\[1\] is empty"),
        ([b"a", "b"], TypeError, r"bodies\[1\] must be bytes, not str"),
        (b"abc", TypeError, "must be a list of bytes, not bytes"),
        ({b"a": 1}, TypeError, "must be a list of bytes, not dict"),
        (7, TypeError, "must be a list of bytes, not int"),
    ],
)
def test_batches_that_cannot_be_are_refused(producer, bodies, error, says):
    with pytest.raises(error, match=says):
        producer.publish_many("t", bodies)


# ---------------------------------------------------------------------------------------- headers


def test_headers_and_tag_arrive_with_the_message(cluster, producer):
    handled = Handled()
    headers = {"user": "żółw", "n": 1}
    with nsqsmart.Consumer("ext", "h", handled, address=cluster.url):
        receipt = producer.publish("ext", b"tagged", headers=headers, tag="red", trace=True)
        producer.publish_many("ext", [b"one", b"two"], headers={"batch": "yes"})
        eventually(lambda: {b"tagged", b"one", b"two"} <= set(handled.bodies()))
    messages = {message.body: message for message in handled.messages}
    assert messages[b"tagged"].headers["user"] == "żółw"
    assert messages[b"tagged"].headers["n"] == 1
    assert messages[b"tagged"].tag == "red"
    assert messages[b"tagged"].trace_id == receipt.trace_id
    assert messages[b"two"].headers == {"batch": "yes"}


def test_headers_need_a_topic_that_takes_them(cluster, producer, old):
    for arguments in ({"headers": {"a": 1}}, {"tag": "red"}):
        with pytest.raises(NotSupported, match="extend_support") as caught:
            producer.publish("t", b"headed", **arguments)
        assert caught.value.outcome is Outcome.NOT_SENT
        with pytest.raises(NotSupported, match="original nsqd"):
            old.publish("headed", b"x", **arguments)
    assert b"headed" not in {each.body for each in stored(cluster)}


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"headers": {"##trace_id": "1"}}, ConfigError, "are the server's"),
        ({"headers": {1: 2}}, TypeError, "must have a text for a name"),
        ({"headers": [1]}, TypeError, "must be a dict, not list"),
        ({"headers": {"a": object()}}, ConfigError, "cannot be written as JSON"),
        ({"headers": {"a": float("nan")}}, ConfigError, "cannot be written as JSON"),
        ({"headers": {"a": "x" * 70_000}}, ConfigError, "65534 is the limit"),
        ({"tag": ""}, TypeError, "tag must be a text"),
        ({"tag": 7}, TypeError, "tag must be a text"),
    ],
)
def test_headers_that_cannot_be_are_refused(producer, arguments, error, says):
    with pytest.raises(error, match=says):
        producer.publish("ext", b"x", **arguments)


# ------------------------------------------------------------------------------- delays and JSON


def test_a_delayed_message_waits_on_an_original_nsqd():
    handled, times = Handled(), []

    def handle(message: nsqsmart.Message) -> None:
        times.append(monotonic())
        handled(message)

    with Cluster(dialect="original") as alone, nsqsmart.Producer(alone.url) as producer:
        producer.publish("delayed", b"warm")
        with nsqsmart.Consumer("delayed", "c", handle, address=alone.url):
            # A consumer that is still about to subscribe would be late enough anyway.
            eventually(lambda: handled.bodies() == [b"warm"])
            began = monotonic()
            producer.publish("delayed", b"later", delay=0.3)
            eventually(lambda: handled.bodies() == [b"warm", b"later"])
        entry = alone.log.of("DPUB")[-1]
    assert (entry.command, entry.topic) == ("DPUB", "delayed")
    # A millisecond less: the server counts in whole ones.
    assert times[1] - began >= 0.299


def test_no_delay_on_a_redesigned_nsqd_and_nothing_is_sent(cluster, producer):
    before = len(list(cluster.log))
    with pytest.raises(NotSupported, match="no deferred publishing") as caught:
        producer.publish("t", b"x", delay=1)
    assert caught.value.outcome is Outcome.NOT_SENT
    assert not [entry for entry in list(cluster.log)[before:] if "PUB" in entry.command]


@pytest.mark.parametrize(
    ("delay", "error"), [(-1, ConfigError), (1e9, ConfigError), ("1", TypeError), (True, TypeError)]
)
def test_delays_that_cannot_be_are_refused(old, delay, error):
    with pytest.raises(error, match="delay"):
        old.publish("delayed", b"x", delay=delay)


def test_json_is_compact_and_in_utf8(original, old):
    old.publish_json("json", {"name": "żółw", "n": [1, None]})
    (found,) = stored(original, "json")
    assert found.body == '{"name":"żółw","n":[1,null]}'.encode()
    assert json.loads(found.body) == {"name": "żółw", "n": [1, None]}


@pytest.mark.parametrize("value", [float("inf"), "recursive"])
def test_what_json_cannot_say_is_refused(old, value):
    if value == "recursive":
        value = []
        value.append(value)
    with pytest.raises(ConfigError, match="cannot be written as JSON"):
        old.publish_json("json", value)
    with pytest.raises(TypeError, match="object is not JSON serializable|not JSON"):
        old.publish_json("json", object())


def test_a_batch_cannot_be_ordered_on_an_original_nsq(old):
    with pytest.raises(OrderingNotSupported):
        old.publish_many("t", [b"x"], key="k")
