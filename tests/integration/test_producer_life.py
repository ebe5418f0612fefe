"""What surrounds publishing: warming up, health, figures, the module's own producer, the end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import nsqsmart
from nsqsmart.client.producer import default as shared_producer
from nsqsmart.client.producer import runtime
from nsqsmart.client.shared import process as event_loops
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import ClientClosed, ConnectError, DiscoveryError
from nsqsmart.metrics import Metrics
from tests.helpers import ROOT, eventually


@pytest.fixture
def cluster():
    with Cluster(nsqds=3, lookupds=1) as made:
        made.create_topic("t", partitions=2)
        made.create_channel("t", "c")
        yield made


def names(nsqds) -> set[str]:
    return {"{}:{}".format(*nsqd.tcp_address) for nsqd in nsqds}


def test_warm_connects_to_where_the_topic_is(cluster):
    with nsqsmart.Producer(cluster.url) as producer:
        assert producer.stats() == {}
        producer.warm("t")
        pools = producer.stats()["pools"]
        assert set(pools) == names(cluster.leader("t", number) for number in range(2))
        assert {pool["pool_available"] for pool in pools.values()} == {1}
        producer.publish("t", b"x")
        assert sum(pool["connections_num"] for pool in producer.stats()["pools"].values()) == 2


def test_the_partition_of_a_key_is_where_its_messages_go(cluster):
    with nsqsmart.Producer(cluster.url) as producer:
        for key in (f"customer-{number}" for number in range(20)):
            partition = producer.partition_of("t", key)
            assert producer.publish("t", b"x", key=key).partition == partition
        assert producer.partition_of("unknown", "customer-1") is None
        with pytest.raises(TypeError):
            producer.partition_of("t", 1.5)
    with Cluster(dialect="original") as original, nsqsmart.Producer(original.url) as producer:
        producer.publish("t", b"x")
        assert producer.partition_of("t", "customer-1") is None


def test_ping_names_who_answers(cluster):
    with nsqsmart.Producer(cluster.url) as producer:
        assert set(producer.ping()) == names(cluster.nsqds)
        cluster.kill(cluster.nsqds[0])
        assert set(producer.ping(5)) == names(cluster.nsqds[1:])
        for lookupd in cluster.lookupds:
            cluster.kill(lookupd)
        with pytest.raises(DiscoveryError):
            producer.ping(1)
    address = cluster.nsqds[0].tcp_address
    lonely = nsqsmart.Producer("nsq://{}:{}".format(*address))
    with lonely, pytest.raises(ConnectError, match="no nsqd answers"):
        lonely.ping(1)


def test_figures_can_be_written_as_json(cluster):
    with nsqsmart.Producer(cluster.url) as producer:
        producer.publish("t", b"x", key="k")
        producer.publish_async("t", b"x").result()
        # Its room is free a moment after its result.
        assert producer.flush(10)
        stats = producer.stats()
        json.dumps(stats)
        topic = stats["topics"]["t"]
        assert (topic["state"], topic["partitions"]) == ("found", 2)
        assert set(topic["nsqds"]) == names(cluster.leader("t", number) for number in range(2))
        assert (stats["avoided"], stats["turns_waiting"], stats["async_pending"]) == ([], 0, 0)


def test_health_is_what_the_last_calls_found(cluster):
    producer = nsqsmart.Producer(cluster.url, publish_timeout=10, lookupd_poll_interval=0.05)
    assert producer.health() == nsqsmart.Health("idle")
    producer.publish("t", b"x")
    assert producer.health() == nsqsmart.Health("ready")
    for lookupd in cluster.lookupds:
        cluster.kill(lookupd)

    def degraded() -> bool:
        producer.publish("t", b"x")
        return producer.health().state == "degraded"

    eventually(degraded)
    assert "no nsqlookupd answered" in producer.health().reasons[0]
    for nsqd in cluster.nsqds:
        cluster.kill(nsqd)
    with pytest.raises(nsqsmart.PublishError):
        producer.publish("t", b"x", timeout=0.5)
    assert not producer.health().ok
    producer.close()
    assert producer.health() == nsqsmart.Health("closed")


def test_connections_to_an_nsqd_that_nobody_lists_any_more_are_ended(cluster):
    with nsqsmart.Producer(cluster.url, lookupd_poll_interval=0.05) as producer:
        producer.publish("t", b"x", partition=0)
        old = "{}:{}".format(*cluster.leader("t", 0).tcp_address)
        new = next(
            nsqd
            for nsqd in cluster.nsqds
            if names([nsqd]).isdisjoint(names(cluster.leader("t", n) for n in range(2)))
        )
        cluster.move_leader("t", 0, to=new)

        def moved() -> bool:
            producer.publish("t", b"x", partition=0)
            return producer.stats()["pools"][old]["pool_size"] == 0

        eventually(moved)


def test_the_module_has_a_producer_of_its_own(cluster, monkeypatch):
    monkeypatch.setenv("NSQSMART_URL", cluster.url)
    monkeypatch.setattr(shared_producer, "_producers", {})
    assert nsqsmart.publish("t", b"x", key="k").partition is not None
    assert nsqsmart.publish("t", b"y").attempts == 1
    (producer,) = shared_producer._producers.values()
    producer.close()


def test_a_call_in_an_event_loop_says_what_to_do(cluster, caplog, monkeypatch):
    monkeypatch.setattr(event_loops, "_said", [])
    caplog.set_level(logging.WARNING)
    with nsqsmart.Producer(cluster.url) as producer:
        producer.publish("t", b"x")

        async def publish() -> None:
            producer.publish("t", b"x")

        asyncio.run(publish())
        producer._known_topics.clear()
        asyncio.run(publish())
        asyncio.run(publish())
    assert sum("asyncio.to_thread" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize(
    "code",
    [
        # No call waited for it, and none closed the producer.
        "p = nsqsmart.Producer(url)\nfor n in range(200): p.publish_async('t', b'%d' % n)",
        "nsqsmart.Producer(url).publish('t', b'x')\n"
        "import atexit\np = nsqsmart.Producer(url)\n"
        "atexit.register(lambda: [p.publish('t', b'%d' % n) for n in range(200)])",
    ],
    ids=["async", "publish in atexit"],
)
def test_what_is_on_its_way_when_the_process_ends_arrives(cluster, code):
    done = run_script(cluster, code)
    assert (done.returncode, done.stderr) == (0, "")
    assert {b"%d" % n for n in range(200)} <= {each.body for each in cluster.stored("t")}


def test_publish_async_in_atexit_works_or_says_that_it_cannot(cluster):
    """Later Pythons than 3.11 start no thread there (decisions#86)."""
    done = run_script(
        cluster,
        "import atexit\np = nsqsmart.Producer(url)\n"
        "atexit.register(lambda: [p.publish_async('t', b'%d' % n) for n in range(200)])",
    )
    stored = {each.body for each in cluster.stored("t")}
    if sys.version_info < (3, 12):
        assert (done.returncode, done.stderr) == (0, "")
        assert {b"%d" % n for n in range(200)} <= stored
    else:
        assert "RuntimeError: can't create new thread at interpreter shutdown" in done.stderr
        assert stored == set()


def run_script(cluster: Cluster, code: str) -> subprocess.CompletedProcess[str]:
    """Run *code* in a process of its own, where ``url`` is that of *cluster*."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys, nsqsmart\nurl = sys.argv[1]\n{code}\n", cluster.url],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_end_of_a_process_does_not_wait_for_ever(cluster):
    for lookupd in cluster.lookupds:
        cluster.kill(lookupd)
    script = (
        "import sys, logging, nsqsmart\nlogging.disable()\n"
        "nsqsmart.Producer(sys.argv[1]).publish_async('t', b'x')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, cluster.url],
        cwd=ROOT,
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_threads_that_begin_at_once_are_one_source_of_figures(cluster, monkeypatch):
    """Of what each of them makes one is kept; the others would be read for ever."""
    watched = []

    class Meter(Metrics):
        def watch(self, source: object) -> None:
            watched.append(source)

        def unwatch(self, source: object) -> None:
            watched.remove(source)

    with nsqsmart.Producer(cluster.url, metrics=Meter()) as producer:
        together = threading.Barrier(6)
        make = runtime.ConnectionPool

        def slowly(*args: object) -> object:
            together.wait(10)
            return make(*args)

        monkeypatch.setattr(runtime, "ConnectionPool", slowly)
        threads = [threading.Thread(target=producer.warm) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert watched == [producer._runtime.get()]
    assert watched == []


def test_a_producer_that_is_closed_while_it_is_made_known_is_forgotten_after_that(cluster):
    calls = []

    class Meter(Metrics):
        def watch(self, _source: object) -> None:
            closing = threading.Thread(target=producer.close)
            closing.start()
            closing.join(10)
            calls.append("watched")

        def unwatch(self, _source: object) -> None:
            calls.append("unwatched")

    producer = nsqsmart.Producer(cluster.url, metrics=Meter())
    with pytest.raises(ClientClosed):
        producer.warm()
    assert calls == ["watched", "unwatched"]


def test_of_threads_that_begin_publish_async_at_once_one_has_made_what_all_use(
    cluster, monkeypatch
):
    with nsqsmart.Producer(cluster.url) as producer:
        together, made, make = threading.Barrier(4), [], runtime.AsyncPublisher

        def slowly(*args: object) -> object:
            together.wait(10)
            made.append(make(*args))
            return made[-1]

        monkeypatch.setattr(runtime, "AsyncPublisher", slowly)
        with ThreadPoolExecutor(4) as pool:
            sent = pool.map(lambda _: producer.publish_async("t", b"x"), range(4))
            assert all(each.result(10) for each in sent)
        used = producer._runtime.get()._async
        assert [each for each in made if not each._closed] == [used]


def test_a_producer_whose_every_call_fails_says_so_until_one_succeeds(caplog):
    """It said ready, failing, ready, and nothing to the log."""
    with Cluster(nsqds=1, lookupds=1) as cluster:
        for topic in ("t", "u"):
            cluster.create_topic(topic)
            cluster.create_channel(topic, "c")
        options = {"publish_timeout": 1.5, "lookupd_min_refresh_interval": 0.1}
        with nsqsmart.Producer(cluster.url, **options) as producer:
            producer.publish("t", b"x")
            cluster.faults.add(faults.on("PUB", times=faults.ALWAYS).reply("E_PUB_FAILED full"))
            for publish in (producer.publish, lambda *of: producer.publish_async(*of).result()):
                with pytest.raises(nsqsmart.PublishError):
                    publish("t", b"x")
                assert producer.health().state == "failing"
                assert "topic t for" in producer.health().reasons[0]
                assert "E_PUB_FAILED" in producer.health().reasons[0]
            told = [each.getMessage() for each in caplog.records if "topic t" in each.getMessage()]
            assert len([each for each in told if "is tried again" in each]) == 1
            cluster.faults.clear()
            producer.publish("u", b"x")
            assert producer.health().state == "degraded"
            producer.publish("t", b"x")
            assert producer.health() == nsqsmart.Health("ready")
    assert "topic t works again" in caplog.text


def test_a_message_that_is_refused_for_itself_is_no_trouble():
    with Cluster(dialect="original") as cluster, nsqsmart.Producer(cluster.url) as producer:
        producer.publish("new", b"x")
        # No lookup knows the topic yet, perhaps.
        assert producer.health() == nsqsmart.Health("ready")
        cluster.faults.add(faults.on("PUB").reply("E_BAD_MESSAGE"))
        with pytest.raises(nsqsmart.errors.MessageRejected):
            producer.publish("new", b"x")
        assert producer.health() == nsqsmart.Health("ready")


def test_a_lookup_that_is_away_is_told_of_once(caplog):
    with nsqsmart.Producer("nsq+lookupd://127.0.0.1:1", lookupd_min_refresh_interval=0.01) as one:
        with pytest.raises(nsqsmart.PublishError) as caught:
            one.publish("t", b"x", timeout=0.5)
        assert len(caught.value.attempts) > 2
    assert len([each for each in caplog.records if "lookup of topic" in each.getMessage()]) == 1
