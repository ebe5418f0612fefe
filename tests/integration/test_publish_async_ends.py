"""publish_async: every message ends by its own deadline, whatever befalls the others."""

from __future__ import annotations

import asyncio
import threading

import pytest

import nsqsmart
from nsqsmart.client.pipelining.keyed_batches import KeyedBatches
from nsqsmart.embedded import Cluster
from nsqsmart.errors import ClientClosed, Outcome, PublishFailed, PublishTimeout
from nsqsmart.net import pipeline as pipeline_module
from tests.conftest import our_threads
from tests.helpers import eventually
from tests.peers import Peer, Talk

PATIENCE = 5
KINDS = pytest.mark.parametrize("options", [{}, {"key": "k"}], ids=["plain", "keyed"])


@pytest.fixture
def cluster():
    with Cluster(nsqds=1, lookupds=1) as made:
        made.create_topic("t")
        made.create_channel("t", "c")
        yield made


@pytest.fixture
def producer(cluster):
    with nsqsmart.Producer(cluster.url, close_timeout=0) as made:
        made.publish("t", b"warm")
        yield made


@KINDS
def test_who_waits_behind_a_patient_one_ends_at_his_own_deadline(cluster, producer, options):
    cluster.hang(cluster.nsqds[0])
    patient = producer.publish_async("t", b"patient", timeout=60, **options)
    # A thread retries it, for as long as its deadline allows.
    eventually(lambda: patient.reason or not producer._runtime.get()._async._overdue._waiting)
    impatient = producer.publish_async("t", b"impatient", timeout=0.3, **options)
    with pytest.raises(PublishTimeout) as caught:
        impatient.result(PATIENCE)
    assert caught.value.outcome in {Outcome.NOT_SENT, Outcome.UNCERTAIN}
    assert not patient.done()


def test_what_ended_while_it_waited_is_not_sent(cluster, producer):
    cluster.hang(cluster.nsqds[0])
    patient = producer.publish_async("t", b"patient", key="k", timeout=60)
    orderings = producer._runtime.get()._async._keyed_batches
    eventually(lambda: orderings._waiting and not any(orderings._waiting.values()))
    impatient = producer.publish_async("t", b"impatient", key="k", timeout=0.1)
    with pytest.raises(PublishTimeout, match="waited for earlier messages") as caught:
        impatient.result(PATIENCE)
    assert caught.value.outcome is Outcome.NOT_SENT
    cluster.wake(cluster.nsqds[0])
    assert patient.result(PATIENCE)
    assert producer.publish_async("t", b"next", key="k").result(PATIENCE)
    assert b"impatient" not in {each.body for each in cluster.stored("t")}


def test_a_handshake_that_hangs_ends_nobody_late():
    def script(talk: Talk) -> None:
        talk.stall()

    options = {"handshake_timeout": 60, "close_timeout": 0}
    with Peer(script) as peer, nsqsmart.Producer(peer.url, **options) as producer:
        pending = producer.publish_async("t", b"x", timeout=0.3)
        with pytest.raises(PublishTimeout) as caught:
            pending.result(PATIENCE)
    assert caught.value.outcome is Outcome.NOT_SENT


@KINDS
@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError])
def test_a_callback_that_raises_harms_nobody(producer, options, error, caplog):
    def fail(_pending: nsqsmart.Pending) -> None:
        raise error("a callback")

    asked = threading.Event()
    first = producer.publish_async("t", b"x", **options)
    first.add_done_callback(fail)
    first.add_done_callback(lambda _: asked.set())
    assert asked.wait(PATIENCE)
    for _ in range(3):
        assert producer.publish_async("t", b"y", **options).result(PATIENCE)
    assert producer.flush(PATIENCE)
    assert "callback" in caplog.text


def test_a_defect_ends_the_messages_it_meets_and_no_others(producer, monkeypatch, caplog):
    def fail(*_: object) -> None:
        raise ValueError("a defect")

    with monkeypatch.context() as broken:
        broken.setattr(KeyedBatches, "_publish", fail)
        with pytest.raises(PublishFailed, match="a defect") as caught:
            producer.publish_async("t", b"x", key="k").result(PATIENCE)
        assert caught.value.outcome is Outcome.UNCERTAIN
    assert producer.publish_async("t", b"y", key="k").result(PATIENCE)
    assert "a defect" in caplog.text


def test_where_no_thread_can_start_the_message_goes_another_way(producer, monkeypatch):
    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    producer._runtime.get().asynchronous()
    with monkeypatch.context() as tight:
        tight.setattr(pipeline_module, "spawn", none_left)
        assert producer.publish_async("t", b"x").result(PATIENCE)
    assert producer.publish_async("t", b"y").result(PATIENCE)
    assert producer.flush(PATIENCE)


def test_who_publishes_while_it_closes_is_settled_or_refused(cluster):
    for turn in range(20):
        producer = nsqsmart.Producer(cluster.url)
        found: list[nsqsmart.Pending] = []
        going = threading.Barrier(5)

        def publish(options: dict, producer=producer, found=found, going=going) -> None:
            going.wait()
            try:
                while True:
                    found.append(producer.publish_async("t", b"x", timeout=30, **options))
            except (ClientClosed, PublishFailed):
                pass

        threads = [
            threading.Thread(target=publish, args=[{"key": str(each)} if each % 2 else {}])
            for each in range(4)
        ]
        for thread in threads:
            thread.start()
        going.wait()
        eventually(lambda found=found, turn=turn: len(found) > turn)
        closer = threading.Thread(target=producer.close, args=[0.02])
        closer.start()
        for thread in [*threads, closer]:
            thread.join(30)
            assert not thread.is_alive()
        eventually(lambda found=found: all(each.done() for each in found))
        eventually(lambda: not [each for each in our_threads() if "publish" in each.name])


def test_nothing_begins_behind_the_end(cluster):
    producer = nsqsmart.Producer(cluster.url)
    producer.publish("t", b"x")
    runtime = producer._runtime.get()
    producer.close()
    with pytest.raises(ClientClosed):
        runtime.asynchronous()
