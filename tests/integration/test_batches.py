"""Batches from real servers: their size, their one answer, and their one message of a partition."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster
from tests.helpers import eventually
from tests.integration.consuming import all_finished, numbered, publish, unfinished


@pytest.fixture(params=["original", "redesigned"])
def cluster(request):
    with Cluster(dialect=request.param, nsqds=2, lookupds=1) as made:
        made.create_topic("t", **({"partitions": 2} if request.param == "redesigned" else {}))
        made.create_channel("t", "c")
        yield made


@pytest.fixture
def ordered():
    with Cluster(nsqds=2, lookupds=1) as made:
        made.create_topic("t", partitions=3, ordered=True)
        made.create_channel("t", "c")
        yield made


def consume(cluster: Cluster, batch_handler, **options):
    return nsqsmart.Consumer("t", "c", batch_handler=batch_handler, address=cluster.url, **options)


class Batches:
    """A batch handler that notes the bodies of every batch."""

    def __init__(self) -> None:
        self.seen: list[list[bytes]] = []

    def __call__(self, batch: list[nsqsmart.Message]) -> None:
        self.seen.append([message.body for message in batch])

    def counts(self) -> Counter[bytes]:
        return Counter(body for batch in list(self.seen) for body in batch)


def test_every_message_is_in_one_batch_and_finished(cluster):
    publish(cluster, *numbered(100))
    batches = Batches()
    with consume(cluster, batches, batch_max_messages=20, batch_max_delay=5) as consumer:
        # The server may have heard of the last one before its worker has counted it.
        eventually(lambda: consumer.stats().finished == 100)
    all_finished(cluster)
    assert batches.counts() == Counter(numbered(100))
    assert [len(batch) for batch in batches.seen] == [20] * 5


def test_a_smaller_one_comes_when_its_time_is_up(cluster):
    publish(cluster, *numbered(5))
    batches = Batches()
    with consume(cluster, batches, batch_max_delay=0.3):
        all_finished(cluster)
    assert [len(batch) for batch in batches.seen] == [5]


def test_it_comes_at_once_when_the_servers_wait_for_answers(cluster):
    publish(cluster, *numbered(12))
    batches = Batches()
    # No batch waits a minute for what the server does not send. One of each is all there can
    # be: of two, one may be the last, and more of its kind would be waited for.
    with consume(cluster, batches, batch_max_delay=60, max_in_flight=2, workers=1):
        all_finished(cluster)
    assert batches.counts() == Counter(numbered(12))
    assert max(len(batch) for batch in batches.seen) <= 2


def test_raising_requeues_what_is_not_answered_and_backs_off_once(cluster):
    publish(cluster, *numbered(10))
    batches: list[list[bytes]] = []

    def handler(batch: list[nsqsmart.Message]) -> None:
        batches.append([message.body for message in batch])
        if len(batches) == 1:
            for message in batch[:4]:
                message.finish()
            raise ValueError("the other six")

    options = {"batch_max_messages": 10, "batch_max_delay": 5, "default_requeue_delay": 0}
    options |= {"backoff_multiplier": 0.2, "rdy_redistribute_interval": 0.05}
    with consume(cluster, handler, **options) as consumer:
        eventually(lambda: len(batches) == 1)
        # One failure: the first pause, not the tenth.
        eventually(lambda: consumer._runtime.rdy_controller._flow.state.name == "BACKING_OFF")
        assert consumer._runtime.rdy_controller._flow._level == 0
        all_finished(cluster)
    report = consumer.stats()
    assert (report.finished, report.requeued, report.failed) == (10, 6, 6)
    assert len(cluster.log.of("REQ")) == 6
    assert sorted(body for batch in batches[1:] for body in batch) == sorted(batches[0][4:])


def test_in_order_a_batch_has_one_message_of_a_partition(ordered):
    for partition in range(3):
        publish(ordered, *numbered(20, b"%d " % partition), partition=partition)
    seen: dict[int, list[bytes]] = defaultdict(list)
    doubled: list[list[int]] = []
    busy: set[int] = set()

    def handler(batch: list[nsqsmart.Message]) -> None:
        partitions = [message.partition for message in batch]
        if len(set(partitions)) < len(partitions) or busy & set(partitions):
            doubled.append(partitions)
        busy.update(partitions)
        for message in batch:
            seen[message.partition].append(message.body)
        busy.difference_update(partitions)

    # It never waits its minute: a partition is starved by one message.
    with consume(ordered, handler, workers=3, batch_max_delay=60):
        all_finished(ordered)
    assert doubled == []
    for partition in range(3):
        assert seen[partition] == numbered(20, b"%d " % partition)


def test_in_order_a_failing_batch_holds_its_partitions(ordered):
    publish(ordered, b"a0", b"a1", partition=0)
    publish(ordered, b"b0", b"b1", partition=1)
    failed: list[bytes] = []
    done: list[bytes] = []

    def handler(batch: list[nsqsmart.Message]) -> None:
        bodies = [message.body for message in batch]
        if len(failed) < 6 and not {b"a1", b"b1"} & set(bodies):
            failed.extend(bodies)
            raise ValueError("not yet")
        done.extend(bodies)

    with consume(ordered, handler, backoff_multiplier=0.02, max_backoff_duration=0.05):
        all_finished(ordered)
    assert sorted(done) == [b"a0", b"a1", b"b0", b"b1"]
    assert done.index(b"a0") < done.index(b"a1")
    assert done.index(b"b0") < done.index(b"b1")


def test_closing_lets_a_batch_finish_and_gives_the_rest_back(cluster):
    publish(cluster, *numbered(10))
    entered, leave = threading.Event(), threading.Event()
    batches = Batches()

    def handler(batch: list[nsqsmart.Message]) -> None:
        batches(batch)
        entered.set()
        assert leave.wait(10)

    options = {"batch_max_messages": 4, "batch_max_delay": 5, "workers": 1}
    consumer = consume(cluster, handler, **options).start()
    assert entered.wait(10)
    reports: list[nsqsmart.CloseReport] = []
    thread = threading.Thread(target=lambda: reports.append(consumer.close()))
    thread.start()
    eventually(lambda: cluster.log.of("CLS"))
    leave.set()
    thread.join(10)
    assert reports[0].clean
    assert reports[0].finished == 4
    # What was sent before the end of the connections is still on its way.
    eventually(lambda: unfinished(cluster) == 6)
    assert len(batches.seen) == 1
