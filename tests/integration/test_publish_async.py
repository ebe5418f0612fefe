"""publish_async: order, bounds, and one honest outcome for every message."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

import nsqsmart
from nsqsmart.client.shared.errors import NotSupported, OrderingNotSupported, TopicNotExist
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import (
    ClientClosed,
    MessageRejected,
    Outcome,
    PublishError,
    PublishFailed,
    PublishTimeout,
)
from nsqsmart.wire.frames import OK_FRAME
from tests.conftest import our_threads
from tests.helpers import eventually
from tests.integration.consuming import numbered
from tests.peers import Peer, Talk


@pytest.fixture
def cluster():
    with Cluster(nsqds=3, lookupds=1) as made:
        for topic, extended in (("t", False), ("ext", True)):
            made.create_topic(topic, partitions=3, replicas=2, extend_support=extended)
            made.create_channel(topic, "c")
        yield made


@pytest.fixture
def original():
    with Cluster(dialect="original", nsqds=2, lookupds=1) as made:
        yield made


@pytest.fixture
def producer(cluster):
    with nsqsmart.Producer(cluster.url) as made:
        yield made


def stored(cluster, topic="t") -> Counter[bytes]:
    return Counter(each.body for each in cluster.stored(topic))


def results(pendings) -> list[nsqsmart.Receipt | PublishError]:
    """What came of each."""
    found = []
    for pending in pendings:
        try:
            found.append(pending.result())
        except PublishError as error:
            found.append(error)
    return found


def client_threads() -> set[threading.Thread]:
    return {thread for thread in our_threads() if "embedded" not in thread.name}


def first_copies(cluster, topic="t") -> dict[int, list[bytes]]:
    """Each body once, in the order of its partition."""
    found: dict[int, dict[bytes, None]] = defaultdict(dict)
    for each in cluster.stored(topic):
        found[each.partition][each.body] = None
    return {partition: list(bodies) for partition, bodies in found.items()}


def assert_in_order(cluster, keys: int, count: int) -> None:
    """The first copies of ``key:number`` stand in the order of their numbers."""
    for bodies in first_copies(cluster).values():
        numbers = defaultdict(list)
        for body in bodies:
            key, _, number = body.partition(b":")
            numbers[key].append(int(number))
        assert all(found == sorted(found) for found in numbers.values())
    assert sum(map(len, first_copies(cluster).values())) == keys * count


# --------------------------------------------------------------------------------- when all is well


@pytest.mark.parametrize("dialect", ["cluster", "original"])
def test_everything_is_stored_once_and_every_receipt_says_where(dialect, request):
    servers = request.getfixturevalue(dialect)
    bodies = numbered(2000)
    with nsqsmart.Producer(servers.url) as producer:
        pendings = [producer.publish_async("t", body) for body in bodies]
        assert producer.flush(20)
        receipts = results(pendings)
    assert stored(servers) == Counter(bodies)
    assert {receipt.attempts for receipt in receipts} == {1}
    places = Counter((receipt.nsqd, receipt.partition or 0) for receipt in receipts)
    assert len(places) == (3 if dialect == "cluster" else 2)
    assert places == Counter((each.nsqd, each.partition) for each in servers.stored("t"))


def test_commands_do_not_wait_for_each_others_answers(cluster, producer):
    producer.publish("t", b"warm", partition=0)
    cluster.faults.add(faults.on("PUB", nth=1).delay(0.2))
    before = len(cluster.log.of("PUB"))
    pendings = [producer.publish_async("t", body) for body in numbered(300)]
    assert producer.flush(20)
    assert all(pending.done() for pending in pendings)
    assert len({entry.nsqd for entry in cluster.log.of("PUB")[before:]}) == 3


def test_many_threads_may_publish_at_once(cluster, producer):
    with ThreadPoolExecutor(8) as threads:
        pendings = [
            pending
            for made in threads.map(
                lambda thread: [
                    producer.publish_async("t", b"%d-%d" % (thread, number))
                    for number in range(200)
                ],
                range(8),
            )
            for pending in made
        ]
    assert producer.flush(20)
    assert Counter(type(each) for each in results(pendings)) == {nsqsmart.Receipt: 1600}
    assert len(stored(cluster)) == 1600


def test_keyed_messages_leave_in_batches_and_in_order(cluster, producer):
    pendings = [
        producer.publish_async("t", b"%d:%d" % (key, number), key=key)
        for number in range(200)
        for key in range(6)
    ]
    assert producer.flush(20)
    assert {receipt.attempts for receipt in results(pendings)} == {1}
    assert_in_order(cluster, 6, 200)
    assert len(cluster.log.of("MPUB")) + len(cluster.log.of("PUB")) < 300


def test_a_traced_message_knows_its_place(cluster, producer):
    unkeyed = producer.publish_async("t", b"traced", trace_id=7).result()
    keyed = [producer.publish_async("t", b"keyed%d" % n, key="k", trace=True) for n in range(50)]
    places = {each.body: each for each in cluster.stored("t")}
    assert (unkeyed.trace_id, unkeyed.internal_id) == (7, places[b"traced"].internal_id)
    producer.flush(20)
    places = {each.body: each for each in cluster.stored("t")}
    placed = 0
    for number, pending in enumerate(keyed):
        found = places[b"keyed%d" % number]
        receipt = pending.result()
        assert (receipt.internal_id, receipt.trace_id) == (found.internal_id, found.trace_id)
        if receipt.offset is not None:
            placed += 1
            assert receipt.offset == found.offset
    # An answer tells the place of the first message of its command; the unkeyed one had its own.
    commands = len(cluster.log.of("PUB_TRACE")) + len(cluster.log.of("MPUB_TRACE"))
    assert placed == commands - 1


def test_headers_and_delays_go_this_way_too(cluster, producer, original):
    for number in range(20):
        producer.publish_async("ext", b"%d" % number, headers={"n": number})
        producer.publish_async("ext", b"k%d" % number, headers={"n": number}, key="k")
    assert producer.flush(20)
    assert len(stored(cluster, "ext")) == 40
    with pytest.raises(NotSupported):
        producer.publish_async("t", b"x", headers={"a": 1}).result()
    with nsqsmart.Producer(original.url) as old:
        assert old.publish_async("delayed", b"x", delay=0.01).result().attempts == 1
        assert len(original.log.of("DPUB")) == 1


def test_callbacks_are_called_once_each(producer):
    told = []
    pending = producer.publish_async("t", b"x")
    pending.add_done_callback(told.append)
    pending.add_done_callback(lambda _: 1 / 0)
    pending.result()
    pending.add_done_callback(told.append)
    eventually(lambda: told == [pending, pending])


def test_no_thread_before_the_first_one_and_none_after_close(cluster):
    before = client_threads()
    with nsqsmart.Producer(cluster.url) as producer:
        producer.publish("t", b"x")
        assert client_threads() == before
        producer.publish_async("t", b"x").result()
        assert client_threads() > before
    assert client_threads() == before


@pytest.mark.parametrize("option", ["snappy", "deflate"])
def test_compressed(cluster, option):
    with nsqsmart.Producer(cluster.url, **{option: True}) as producer:
        for number in range(500):
            producer.publish_async("t", b"%d" % number * 50)
        assert producer.flush(20)
    assert len(stored(cluster)) == 500


# ------------------------------------------------------------------------------- when it is not


@pytest.mark.parametrize("keyed", [True, False])
def test_a_leader_that_moves_loses_nothing(cluster, producer, keyed):
    pendings = []
    for number in range(300):
        if number in (100, 200):
            cluster.move_leader("t", 0)
        for key in range(3):
            body = b"%d:%d" % (key, number)
            pendings.append(producer.publish_async("t", body, key=key if keyed else None))
    assert producer.flush(30)
    assert {type(each) for each in results(pendings)} == {nsqsmart.Receipt}
    if keyed:
        assert_in_order(cluster, 3, 300)
    else:
        assert len(stored(cluster)) == 900


def test_an_nsqd_that_dies_with_much_unanswered(cluster):
    """Acknowledged messages are stored; the others went elsewhere or report the truth."""
    with nsqsmart.Producer(cluster.url, publish_timeout=20) as producer:
        results(producer.publish_async("t", b"warm") for _ in range(30))
        leader = cluster.leader("t", 0)
        # It answers none of those that it gets.
        cluster.hang(leader)
        pendings = [producer.publish_async("t", body) for body in numbered(500)]
        cluster.kill(leader)
        pendings += [producer.publish_async("t", b"more-%d" % number) for number in range(500)]
        assert producer.flush(30)
        found = results(pendings)
    assert {type(each) for each in found} == {nsqsmart.Receipt}
    assert sum(receipt.attempts > 1 for receipt in found) > 0


def test_who_is_refused_does_not_harm_the_others(original):
    with nsqsmart.Producer(original.url) as producer:
        bodies = [b"%d" % number for number in range(100)]
        bodies[50] = b"x" * 2_000_000
        pendings = [producer.publish_async("t", body) for body in bodies]
        assert producer.flush(20)
        found = results(pendings)
    assert isinstance(found[50], MessageRejected)
    assert found[50].outcome is Outcome.REJECTED
    assert sum(isinstance(each, nsqsmart.Receipt) for each in found) == 99
    assert set(stored(original)) == {body for body in bodies if len(body) < 100}


def test_who_is_refused_in_a_keyed_batch_does_not_harm_the_others(cluster, producer):
    bodies = [b"%d" % number for number in range(40)]
    bodies[20] = b"x" * 2_000_000
    pendings = [producer.publish_async("t", body, key="k") for body in bodies]
    assert producer.flush(20)
    found = results(pendings)
    assert isinstance(found[20], MessageRejected)
    assert sum(isinstance(each, nsqsmart.Receipt) for each in found) == 39
    (in_order,) = first_copies(cluster).values()
    assert in_order == [body for body in bodies if len(body) < 100]


def test_a_topic_that_nobody_knows_fails_every_message(producer):
    pendings = [producer.publish_async("misspelt", body) for body in numbered(50)]
    pendings += [producer.publish_async("misspelt", b"keyed", key="k")]
    assert {type(each) for each in results(pendings)} == {TopicNotExist}


def test_the_first_messages_make_the_topic_of_an_original_cluster(original):
    with nsqsmart.Producer(original.url) as producer:
        pendings = [producer.publish_async("new", body) for body in numbered(50)]
        assert {type(each) for each in results(pendings)} == {nsqsmart.Receipt}
        with pytest.raises(OrderingNotSupported):
            producer.publish_async("new", b"x", key="k").result()
    assert len(stored(original, "new")) == 50


def test_an_unanswered_message_goes_elsewhere(original):
    with nsqsmart.Producer(original.url, response_timeout=1.5) as producer:
        producer.publish("t", b"warm")
        producer.publish("t", b"warm")
        original.faults.add(faults.on("PUB", nsqd=original.nsqds[0]).stall())
        pendings = [producer.publish_async("t", body) for body in numbered(20)]
        found = results(pendings)
    assert {type(each) for each in found} == {nsqsmart.Receipt}
    assert {each.attempts for each in found} == {1, 2}


def test_a_deadline_ends_it():
    received = bytearray()

    def script(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        talk.ok()
        while data := talk.sock.recv(4096):
            received.extend(data)

    bodies = [b"body %d" % number for number in range(6)]
    with Peer(script) as peer, nsqsmart.Producer(peer.url) as producer:
        producer.publish_async("t", b"first", timeout=10).result(10)
        pendings = [producer.publish_async("t", body, timeout=0.5) for body in bodies]
        with pytest.raises(TimeoutError, match="stays on its way"):
            pendings[0].result(0.01)
        found = results(pendings)
    assert {type(each) for each in found} == {PublishTimeout}
    uncertain = [
        body for body, each in zip(bodies, found, strict=True) if each.outcome != "not_sent"
    ]
    assert {each.outcome for each in found} <= {Outcome.UNCERTAIN, Outcome.NOT_SENT}
    # Only messages that waited for the missing answer were not sent.
    assert uncertain
    assert {body for body in bodies if body in received} <= set(uncertain)


def test_answers_nobody_asked_for_end_the_connection():
    def script(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        # In one segment: one that comes behind the next command cannot be told from its answer.
        talk.send(OK_FRAME * 2)
        talk.stall()

    def honest(talk: Talk) -> None:
        talk.greet()
        while True:
            talk.publish()
            talk.ok()

    with Peer(script, honest) as peer, nsqsmart.Producer(peer.url) as producer:
        first = producer.publish_async("t", b"a").result(5)
        assert [producer.publish_async("t", b"b").result(5).attempts for _ in range(3)][-1] == 1
    assert first.attempts == 1


def test_heartbeats_are_answered_between_the_answers():
    said = []

    def script(talk: Talk) -> None:
        talk.greet()
        talk.publish()
        talk.send(b"\x00\x00\x00\x0f\x00\x00\x00\x00_heartbeat_")
        said.append(talk.line())
        talk.ok()
        talk.stall()

    with Peer(script) as peer, nsqsmart.Producer(peer.url) as producer:
        assert producer.publish_async("t", b"a").result(5).attempts == 1
    assert said == [b"NOP"]


# ----------------------------------------------------------------------------------------- bounds


@pytest.fixture
def stalled(cluster):
    for _ in range(30):
        cluster.faults.add(faults.on("PUB").stall())
        cluster.faults.add(faults.on("MPUB").stall())
    return cluster


@pytest.mark.parametrize("bound", [{"async_max_messages": 3}, {"async_max_bytes": 1024}])
def test_who_finds_no_room_is_refused_where_that_is_wanted(stalled, bound):
    options = {"on_full": "raise", "close_timeout": 0, **bound}
    with nsqsmart.Producer(stalled.url, **options) as producer:
        for _ in range(3):
            producer.publish_async("t", b"x" * 340)
        with pytest.raises(PublishFailed, match="in flight") as caught:
            producer.publish_async("t", b"x" * 340)
        assert caught.value.outcome is Outcome.NOT_SENT
        assert caught.value.code == "QueueFull"


def test_or_waits_until_its_deadline(stalled):
    with nsqsmart.Producer(stalled.url, async_max_messages=1, close_timeout=0) as producer:
        producer.publish_async("t", b"x")
        with pytest.raises(PublishTimeout) as caught:
            producer.publish_async("t", b"y", timeout=0.05)
        assert caught.value.outcome is Outcome.NOT_SENT
        assert not producer.flush(0.01)


def test_close_settles_everything(stalled):
    producer = nsqsmart.Producer(stalled.url)
    pendings = [producer.publish_async("t", body) for body in numbered(20)]
    pendings += [producer.publish_async("t", body, key=1) for body in numbered(20)]
    eventually(lambda: len(stalled.log.of("PUB")) >= 3)
    producer.close(0.1)
    assert all(pending.done() for pending in pendings)
    found = results(pendings)
    assert {type(each) for each in found} == {PublishFailed}
    assert Outcome.UNCERTAIN in {each.outcome for each in found}
    assert {type(each.__cause__) for each in found} <= {ClientClosed}
    with pytest.raises(ClientClosed):
        producer.publish_async("t", b"x")


def test_close_waits_for_what_is_on_its_way(cluster):
    producer = nsqsmart.Producer(cluster.url)
    producer.publish("t", b"warm")
    cluster.faults.add(faults.on("PUB").delay(0.2))
    pendings = [producer.publish_async("t", body) for body in numbered(100)]
    producer.close()
    assert {type(each) for each in results(pendings)} == {nsqsmart.Receipt}
