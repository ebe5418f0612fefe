"""What log records carry besides their text: fields whose names begin with ``nsq_``."""

from __future__ import annotations

import logging

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster, faults
from nsqsmart.wire.frames import ERROR, encode_frame
from tests.helpers import eventually
from tests.integration.consuming import publish
from tests.peers import Peer, Talk


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


def test_a_refusal_that_will_not_pass_is_an_error_and_logged_rarely(cluster, caplog):
    with nsqsmart.Consumer("t", "c", print, address=cluster.url) as consumer:
        refusal = faults.on("SUB", times=3).reply("E_SUB_FAILED")
        cluster.faults.add(refusal)
        consumer._runtime.snapshot()[0].hang_up()
        eventually(lambda: "E_SUB_FAILED" in str(consumer.health().reasons))
        assert consumer.health().state == "failing"
        eventually(lambda: consumer.health().state == "ready")
        assert refusal.spent
    lines = [each for each in caplog.records if "cannot subscribe" in each.getMessage()]
    assert [each.levelno for each in lines if each.levelno >= logging.INFO] == [logging.ERROR]
    assert "E_SUB_FAILED" in lines[0].getMessage()


def test_a_topic_that_no_lookup_knows_is_told_once(cluster, caplog):
    options = {"lookupd_min_refresh_interval": 0.01, "lookupd_poll_interval": 0.01}
    with nsqsmart.Consumer("late", "c", print, address=cluster.url, **options) as consumer:
        directory = consumer._runtime.directory
        eventually(lambda: directory.topologies()["late"].generation >= 2)
        cluster.create_topic("late")
        cluster.create_channel("late", "c")
        eventually(lambda: consumer.health().state == "ready")
    lines = [each for each in caplog.records if "no nsqlookupd knows" in each.getMessage()]
    assert [each.levelno for each in lines] == [logging.WARNING]
    assert facts(lines[0]) == {"nsq_topic": "late"}


def test_a_lookup_that_fails_names_its_topic(cluster, records):
    with nsqsmart.Producer(
        cluster.url, lookupd_poll_interval=0.01, lookupd_poll_jitter=0
    ) as producer:
        producer.publish("t", b"x")
        cluster.kill(cluster.lookupds[0])
        eventually(lambda: producer.publish("t", b"x") and records("lookup of topic"))
    assert records("lookup of topic") == {"nsq_topic": "t"}


def test_a_server_forges_no_line(caplog):
    """Neither by the words of its errors nor by what its lookup says instead of HTTP."""
    evil = b"\n2026 CRITICAL root pwned\x1b[31m\r\0"

    def nsqd(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        talk.send(encode_frame(ERROR, b"E_" + evil))
        talk.stall()

    with Peer(nsqd) as peer, nsqsmart.Producer(peer.url, publish_attempts=1) as producer:
        for publish in (producer.publish, lambda *given: producer.publish_async(*given).result()):
            with pytest.raises(nsqsmart.PublishError) as caught:
                publish("t", b"x")
            assert str(caught.value).isprintable()
            assert str(caught.value.__cause__).isprintable()
            assert all(attempt.code.isprintable() for attempt in caught.value.attempts)
    with Peer(lambda talk: talk.send(evil + b"\n\n")) as lookup:
        url = "nsq+lookupd://{}:{}".format(*lookup.address)
        with nsqsmart.Producer(url) as producer, pytest.raises(nsqsmart.PublishError) as caught:
            producer.publish("t", b"x", timeout=0.5)
    assert str(caught.value).isprintable()
    said = [record.getMessage() for record in caplog.records]
    assert said
    assert all(each.isprintable() for each in said)
