"""``copy``: what arrives, in which order, and what is finished when."""

from __future__ import annotations

import json
import signal
from types import SimpleNamespace

import pytest

from nsqsmart import Admin, Producer
from nsqsmart.cli.commands.copy import Copier, Filter, KeptFields
from nsqsmart.cli.common.ending import Ending
from nsqsmart.cli.common.progress import ProgressBar
from nsqsmart.embedded import Cluster
from nsqsmart.terminal import exit_code
from tests.helpers import eventually


def make(cluster, topic, **options):
    cluster.create_topic(topic, **options)
    cluster.create_channel(topic, "nsq_to_nsq")


def unfinished(cluster, topic):
    stats = Admin(cluster.url).stats(topic, "nsq_to_nsq")
    return sum(channel.unfinished for each in stats.topics for channel in each.channels)


def fill(cluster, topic, count, **arguments):
    with Producer(cluster.url) as producer:
        producer.publish_many(topic, [b"%d" % n for n in range(count)], **arguments)


def stored(cluster, topic):
    return [each.body for each in cluster.stored(topic)]


def test_to_another_topic(cluster, nsqsmart):
    make(cluster, "orders")
    make(cluster, "copies")
    fill(cluster, "orders", 50)
    arguments = ("copy", "orders", "copies", "-n", "50", "--url", cluster.url)
    assert nsqsmart.records(*arguments) == [{"copied": 50, "left_out": 0}]
    assert sorted(stored(cluster, "copies")) == sorted(b"%d" % n for n in range(50))
    eventually(lambda: unfinished(cluster, "orders") == 0)


def test_to_another_cluster_with_go_flags(cluster, nsqsmart):
    with Cluster(dialect="original") as other:
        make(cluster, "orders")
        fill(cluster, "orders", 5)
        code, _, err = nsqsmart(
            "copy", "-topic=orders", "-lookupd-http-address", cluster.lookupds[0].name,
            "-destination-nsqd-tcp-address", other.nsqds[0].name, "-n", "5",
            "-consumer-opt", "max_in_flight,3", "-producer-opt=snappy",
        )  # fmt: skip
        assert (code, err) == (0, "")
        assert sorted(stored(other, "orders")) == [b"%d" % n for n in range(5)]


def test_ordered_keeps_partitions_and_order(nsqsmart):
    with Cluster(nsqds=2) as cluster:
        for topic in ("orders", "copies"):
            make(cluster, topic, partitions=3, ordered=True)
        with Producer(cluster.url) as producer:
            for number in range(60):
                producer.publish("orders", b"%d" % number, partition=number % 3)
        code, _, err = nsqsmart(
            "copy", "orders", "copies", "--ordered", "-n", "60", "--url", cluster.url
        )
        assert (code, err) == (0, "")
        for partition in range(3):
            want = [each.body for each in cluster.stored("orders", partition)]
            assert [each.body for each in cluster.stored("copies", partition)] == want


def test_ordered_through_a_move_of_the_destinations_leader(nsqsmart):
    with Cluster(nsqds=2) as cluster:
        for topic in ("orders", "copies"):
            make(cluster, topic, partitions=2, replicas=2, ordered=True)
        count = 400
        with Producer(cluster.url) as producer:
            for number in range(count):
                producer.publish("orders", b"%d" % number, partition=number % 2)
        program = nsqsmart.start(
            "copy", "orders", "copies", "--ordered", "--url", cluster.url, "-n", count
        )
        eventually(lambda: len(cluster.stored("copies")) > 20)
        cluster.move_leader("copies", 0)
        assert program.wait(30) == 0, program.stderr.read()
        for partition in range(2):
            seen = dict.fromkeys(each.body for each in cluster.stored("copies", partition))
            want = [each.body for each in cluster.stored("orders", partition)]
            assert list(seen) == want


@pytest.mark.parametrize(
    ("partitions", "said"),
    [(3, "'orders' has 2 partitions and 'copies' 3"), (0, "no lookup knows")],
)
def test_ordered_needs_as_many_partitions(nsqsmart, partitions, said):
    with Cluster() as cluster:
        make(cluster, "orders", partitions=2, ordered=True)
        if partitions:
            make(cluster, "copies", partitions=partitions, ordered=True)
        code, _, err = nsqsmart("copy", "orders", "copies", "--ordered", "--url", cluster.url)
    assert code == 1
    assert said in err


def test_ordered_on_an_original_cluster_is_refused(nsqsmart):
    with Cluster(dialect="original") as cluster:
        make(cluster, "orders")
        make(cluster, "copies")
        code, _, err = nsqsmart("copy", "orders", "copies", "--ordered", "--url", cluster.url)
    assert code == 1
    assert "redesigned" in err


def test_headers_tags_and_trace_ids_if_asked_for(redesigned, nsqsmart):
    for topic in ("orders", "copies"):
        make(redesigned, topic, extend_support=True)
    with Producer(redesigned.url) as producer:
        producer.publish("orders", b"x", headers={"a": 1}, tag="t", trace_id=77)
    code, _, err = nsqsmart(
        "copy", "orders", "copies", "-n", "1", "--keep-headers", "--keep-trace-ids",
        "--url", redesigned.url,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert [each.trace_id for each in redesigned.stored("copies")] == [77]
    arguments = ("tail", "copies", "--channel", "nsq_to_nsq", "-n", "1", "--url", redesigned.url)
    (found,) = nsqsmart.records(*arguments)
    assert (found["headers"]["a"], found["trace_id"]) == (1, "77")


def test_a_message_is_finished_only_when_the_destination_has_it(nsqsmart):
    with Cluster() as cluster, Cluster() as other:
        make(cluster, "orders")
        make(other, "orders")
        fill(cluster, "orders", 3)
        (nsqd,) = other.nsqds
        other.hang(nsqd)
        program = nsqsmart.start("copy", "orders", "--url", cluster.url, "--to-url", other.url)

        def delivered():
            (topic,) = Admin(cluster.url).stats("orders", "nsq_to_nsq").topics
            return topic.channels[0].in_flight == 3

        eventually(delivered, every=0.05)
        assert unfinished(cluster, "orders") == 3
        other.wake(nsqd)
        eventually(lambda: unfinished(cluster, "orders") == 0, every=0.05)
        assert sorted(set(stored(other, "orders"))) == [b"0", b"1", b"2"]
        program.send_signal(signal.SIGTERM)
        assert program.wait(20) == 130
        assert b"3 copied" in program.stderr.read()


def test_a_hung_destination_and_two_ctrl_c(nsqsmart):
    with Cluster() as cluster, Cluster() as other:
        make(cluster, "orders")
        make(other, "orders")
        fill(cluster, "orders", 1)
        other.hang(other.nsqds[0])
        program = nsqsmart.start(
            "copy", "orders", "--url", cluster.url, "--to-url", other.url, "--close-timeout", "60"
        )
        eventually(lambda: other.log.of("GET /lookup", "orders"), what="it is being published")
        program.send_signal(signal.SIGINT)
        with pytest.raises(Exception, match="timed out"):
            program.wait(1)
        program.send_signal(signal.SIGINT)
        assert program.wait(20) == 130
        assert unfinished(cluster, "orders") == 1
        other.wake(other.nsqds[0])


def test_what_the_destination_will_never_take_ends_it(nsqsmart):
    with Cluster() as cluster, Cluster(max_msg_size=1000) as other:
        make(cluster, "orders")
        make(other, "orders")
        with Producer(cluster.url) as producer:
            producer.publish("orders", b"x" * 2000)
        code, _, err = nsqsmart("copy", "orders", "--url", cluster.url, "--to-url", other.url)
        assert code == 1
        assert "rejected" in err
        assert unfinished(cluster, "orders") == 1


@pytest.mark.parametrize(
    ("headers", "tag", "said"),
    [({}, "", "tag must be a text"), ({"name": "caf\ud83d"}, None, "cannot be written as JSON")],
)
def test_what_a_producer_refuses_ends_it_and_the_others_are_copied(redesigned, headers, tag, said):
    answers = []

    def message(body, headers, tag=None):
        return SimpleNamespace(
            topic="orders", partition=2, internal_id=77, body=body, headers=headers, tag=tag,
            finish=lambda: answers.append((body, "finished")),
            detach=lambda: answers.append((body, "kept for the end")),
        )  # fmt: skip

    make(redesigned, "copies", extend_support=True)
    with Producer(redesigned.url) as producer, Ending() as ending:
        copier = Copier(
            producer, KeptFields(headers=True), Filter(), ending, ProgressBar("", off=True), None
        )
        batch = [message(b"a", {"a": 1}), message(b"bad", headers, tag), message(b"b", {})]
        copier.handler("copies")(batch)
        assert ending.wait(0)
    assert answers == [(b"a", "finished"), (b"bad", "kept for the end"), (b"b", "finished")]
    assert sorted(stored(redesigned, "copies")) == [b"a", b"b"]
    assert exit_code(ending.reason) == 1
    assert "message 77 of topic 'orders', partition 2: " in str(ending.reason)
    assert said in str(ending.reason)


def test_fields_of_json(nsqsmart):
    with Cluster() as cluster:
        make(cluster, "orders")
        make(cluster, "copies")
        with Producer(cluster.url) as producer:
            for body in (b'{"a": 1, "b": 2, "kind": "x"}', b'{"a": 2, "kind": "y"}', b"no json"):
                producer.publish("orders", body)
        found = nsqsmart.records(
            "copy", "orders", "copies", "-n", "3", "--url", cluster.url, "--require-json-field",
            "kind", "--require-json-value", "x", "--whitelist-json-field", "b",
            "--whitelist-json-field", "a",
        )  # fmt: skip
        assert found == [{"copied": 1, "left_out": 2}]
        assert stored(cluster, "copies") == [b'{"a":1,"b":2}']


@pytest.mark.parametrize(
    ("document", "field", "value", "passes"),
    [
        ({"a": "x"}, "a", None, True),
        ({"a": None}, "a", None, True),
        ({"b": "x"}, "a", None, False),
        ({"a": "x"}, "a", "x", True),
        ({"a": "1"}, "a", "1", True),
        ({"a": 1}, "a", "1", True),
        ({"a": 1.5}, "a", "1.50", True),
        ({"a": 1}, "a", "x", False),
        ({"a": True}, "a", "1", False),
        ({"a": [1]}, "a", "1", False),
        ([1], "a", None, False),
    ],
)
def test_which_objects_pass(document, field, value, passes):
    body = json.dumps(document).encode()
    assert Filter(field, value).apply(body) == (body if passes else None)
