"""What clients tell their metrics, call by call, on embedded clusters."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from time import monotonic

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster, faults
from nsqsmart.metrics import CLOSED, INSTRUMENTS, SETTLED, Metrics
from tests.helpers import eventually
from tests.integration.consuming import publish


class Recorder(Metrics):
    """Keeps everything."""

    def __init__(self):
        self.calls = defaultdict(list)
        self.sources = []

    def published(self, *facts):
        self.calls["published"].append(facts)

    def retried(self, *facts):
        self.calls["retried"].append(facts)

    def leaders_changed(self, *facts):
        self.calls["leaders_changed"].append(facts)

    def pool_waited(self, *facts):
        self.calls["pool_waited"].append(facts)

    def connection_closed(self, *facts):
        self.calls["connection_closed"].append(facts)

    def looked_up(self, *facts, ok):
        self.calls["looked_up"].append((*facts, ok))

    def delivered(self, *facts):
        self.calls["delivered"].append(facts)

    def handled(self, *facts):
        self.calls["handled"].append(facts)

    def watch(self, source):
        self.sources.append(source)

    def unwatch(self, source):
        self.sources.remove(source)

    def figures(self):
        found = {}
        for source in self.sources:
            for name, labels, value in source.figures():
                assert len(labels) == len(INSTRUMENTS[name].labels), (name, labels)
                found[name, *labels] = value
        return found


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def cluster():
    with Cluster(nsqds=2) as made:
        made.create_topic("t", partitions=2, replicas=2)
        made.create_channel("t", "c")
        yield made


def start(cluster, recorder, handler=None, **options):
    return nsqsmart.Consumer("t", "c", handler, address=cluster.url, metrics=recorder, **options)


def test_each_way_to_publish_is_told_once(cluster, recorder):
    with nsqsmart.Producer(cluster.url, metrics=recorder) as producer:
        producer.publish("t", b"12345")
        producer.publish("t", b"123", key="k", trace=True)
        producer.publish_many("t", [b"1", b"22"])
        producer.publish_many("t", [b"1", b"22"], key="k")
        producer.publish_async("t", b"1234").result(10)
        # Who waits for the result may go on before it is told.
        assert producer.flush(10)
        producer.publish_async("t", b"12", key="k").result(10)
        assert producer.flush(10)
    told = [facts[:4] for facts in recorder.calls["published"]]
    assert told == [
        ("t", "ok", 1, 5),
        ("t", "ok", 1, 3),
        ("t", "ok", 2, 3),
        ("t", "ok", 2, 3),
        ("t", "ok", 1, 4),
        ("t", "ok", 1, 2),
    ]
    assert all(0 < facts[4] < 10 for facts in recorder.calls["published"])
    assert recorder.calls["retried"] == []


def test_a_call_that_fails_is_told_once_with_its_retries(cluster, recorder):
    with nsqsmart.Producer(cluster.url, metrics=recorder) as producer:
        producer.publish("t", b"warm")
        cluster.faults.add(faults.on("PUB", times=2).reply("E_PUB_FAILED"))
        producer.publish("t", b"x")
        cluster.faults.add(faults.on("PUB", times=2).reset())
        assert producer.publish_async("t", b"y").result(20).attempts > 1
        # Who waits for the result may go on before it is told.
        assert producer.flush(10)
        cluster.faults.add(faults.on("PUB").reply("E_BAD_MESSAGE"))
        with pytest.raises(nsqsmart.PublishError):
            producer.publish("t", b"bad")
        with pytest.raises(nsqsmart.PublishError):
            producer.publish("unknown", b"x", timeout=3)
    results = [facts[:2] for facts in recorder.calls["published"]]
    assert results == [("t", "ok")] * 3 + [("t", "error"), ("unknown", "error")]
    reasons = Counter(recorder.calls["retried"])
    assert reasons.pop(("t", "E_PUB_FAILED")) == 2
    assert reasons.pop(("t", "closed")) == 2
    assert set(reasons) == {("unknown", "no_leader")}


def test_a_leader_that_moves_is_seen(cluster, recorder):
    with nsqsmart.Producer(
        cluster.url, metrics=recorder, lookupd_min_refresh_interval=0.01
    ) as producer:
        producer.publish("t", b"x", partition=0)
        assert recorder.calls["leaders_changed"] == []
        cluster.move_leader("t", 0)
        producer.publish("t", b"x", partition=0)
        assert sum(count for _, count in recorder.calls["leaders_changed"]) >= 1
    codes = {reason for _, reason in recorder.calls["retried"]}
    assert codes & {"E_FAILED_ON_NOT_LEADER", "E_FAILED_ON_NOT_WRITABLE", "no_leader"}


def test_missing_leaders_and_connections_are_figures(recorder):
    with (
        Cluster(nsqds=2) as cluster,
        nsqsmart.Producer(cluster.url, metrics=recorder, lookupd_poll_interval=0.05) as producer,
    ):
        cluster.create_topic("t", partitions=2)
        cluster.create_channel("t", "c")
        producer.publish("t", b"x", partition=0)
        node = cluster.leader("t", 0).name
        assert recorder.figures() == {
            ("partitions_missing", "t"): 0,
            ("pool_connections", node, "idle"): 1,
            ("pool_connections", node, "used"): 0,
        }
        cluster.kill(cluster.leader("t", 1))

        def missing():
            with pytest.raises(nsqsmart.PublishError):
                producer.publish("t", b"x", partition=1, timeout=0.2)
            return recorder.figures()["partitions_missing", "t"]

        assert eventually(missing) == 1
    assert recorder.sources == []


def test_lookups_are_told_with_those_that_fail(cluster, recorder):
    (lookupd,) = cluster.lookupds
    with nsqsmart.Producer(
        cluster.url, metrics=recorder, lookupd_poll_interval=0.01, lookupd_poll_jitter=0
    ) as producer:
        producer.publish("t", b"x")
        assert {ok for *_, ok in recorder.calls["looked_up"]} == {True}
        cluster.kill(lookupd)
        eventually(
            lambda: producer.publish("t", b"x") and recorder.calls["looked_up"][-1][2] is False
        )
    assert {name for name, *_ in recorder.calls["looked_up"]} == {lookupd.name}


def test_connections_say_why_they_ended(cluster, recorder):
    with nsqsmart.Producer(cluster.url, metrics=recorder, pool_idle_timeout=0.05) as producer:
        producer.publish("t", b"x", partition=1)
        cluster.faults.add(faults.on("PUB").store_then_reset())
        with pytest.raises(nsqsmart.PublishError):
            producer.publish("t", b"x", partition=0)
        eventually(lambda: producer.publish("t", b"x", partition=0) and told(recorder, "idle"))
    reasons = {reason for _, reason in recorder.calls["connection_closed"]}
    assert reasons >= {"error", "idle", "closed"}
    assert reasons <= set(CLOSED)


def told(recorder, reason):
    return any(why == reason for _, why in recorder.calls["connection_closed"])


def test_waiting_for_a_connection_is_told(cluster, recorder):
    with nsqsmart.Producer(cluster.url, metrics=recorder, pool_size=1) as producer:
        producer.publish("t", b"x", partition=0)
        assert recorder.calls["pool_waited"] == []
        pool = producer._running().publishing.pool
        ((address, place),) = pool._hosts.items()
        loan = pool.take(address, monotonic() + 10)
        waiting = threading.Thread(
            target=producer.publish, args=("t", b"x"), kwargs={"partition": 0}
        )
        waiting.start()
        eventually(lambda: place.line)
        pool.give_back(loan)
        waiting.join(20)
    assert all(0 < seconds < 20 for (seconds,) in recorder.calls["pool_waited"])
    assert recorder.calls["pool_waited"]


def test_handlers_are_measured_with_age_and_attempts(cluster, recorder):
    publish(cluster, b"1", b"bad", b"2")

    def handle(message):
        if message.body == b"bad" and message.attempts == 1:
            raise nsqsmart.Requeue(0, backoff=False)

    with start(cluster, recorder, handle) as consumer:
        eventually(lambda: len(recorder.calls["handled"]) == 4)
        eventually(lambda: consumer.stats().finished == 3)
        figures = recorder.figures()
        assert figures["messages_received_total", "t", "c"] == 4
        assert figures["in_flight", "t", "c"] == 0
        assert figures["starved", "t", "c"] == figures["backoff_seconds", "t", "c"] == 0
        settled = {
            outcome: figures["messages_settled_total", "t", "c", outcome] for outcome in SETTLED
        }
        assert settled == dict.fromkeys(SETTLED, 0) | {"finished": 3, "requeued": 1}
    assert recorder.sources == []
    assert sorted(attempts for *_, attempts in recorder.calls["delivered"]) == [1, 1, 1, 2]
    assert all(0 <= age < 20 for _, _, age, _ in recorder.calls["delivered"])
    assert {facts[:2] for facts in recorder.calls["handled"]} == {("t", "c")}
    assert "closed" in {reason for _, reason in recorder.calls["connection_closed"]}


def test_batches_and_pulled_messages_are_measured(cluster, recorder):
    publish(cluster, b"1", b"2", b"3", partition=0)
    done = []
    batches = {"batch_handler": done.extend, "batch_max_messages": 3, "batch_max_delay": 5}
    with start(cluster, recorder, **batches):
        eventually(lambda: len(done) == 3)
        eventually(lambda: recorder.calls["handled"])
    assert len(recorder.calls["handled"]) <= 3
    assert len(recorder.calls["delivered"]) == 3
    publish(cluster, b"4", b"5")
    with start(cluster, recorder) as consumer:
        for message in consumer.poll(1, 10):
            message.finish()
        with next(iter(consumer)):
            pass
    assert len(recorder.calls["delivered"]) == 5


def test_a_consumer_that_backs_off_says_how_long(cluster, recorder):
    publish(cluster, b"1")

    def fail(message):
        raise ValueError

    with start(cluster, recorder, fail, backoff_multiplier=60):
        left = eventually(lambda: recorder.figures()["backoff_seconds", "t", "c"])
    assert 50 < left <= 60


def test_an_ordered_topic_has_its_violations_from_the_beginning(recorder):
    with Cluster() as cluster:
        cluster.create_topic("t", ordered=True)
        cluster.create_channel("t", "c")
        with start(cluster, recorder, lambda message: None):
            figures = recorder.figures()
    assert figures["order_violations_total", "t", "c", "0"] == 0
    assert figures["blocked_partitions", "t", "c"] == 0


def test_metrics_that_raise_do_not_fail_a_publish(cluster, caplog):
    class Broken(Metrics):
        def published(self, *facts):
            raise ZeroDivisionError

    with nsqsmart.Producer(cluster.url, metrics=Broken()) as producer:
        producer.publish("t", b"x")
        producer.publish("t", b"x")
    assert len(cluster.stored("t")) == 2
    assert sum("metrics" in record.getMessage() for record in caplog.records) == 1
