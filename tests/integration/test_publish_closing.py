"""close() while other threads publish: calls that can finish do, the others end soon."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import pytest

import nsqsmart
from nsqsmart.client.producer import runtime as machinery_module
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import ClientClosed, Outcome, PublishError, PublishFailed
from nsqsmart.net import waiters as tokens
from tests.helpers import eventually
from tests.integration.publishing import bodies, check_free, in_time, shared
from tests.peers import Peer, Talk

LONG = 40.0
"""Seconds that no call here may need."""


@contextmanager
def made(dialect: str) -> Iterator[Cluster]:
    with Cluster(dialect=dialect, nsqds=1, lookupds=1) as cluster:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        yield cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with made("redesigned") as cluster:
        yield cluster


@pytest.fixture(params=["original", "redesigned"])
def either(request) -> Iterator[Cluster]:
    with made(request.param) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _only_who_is_woken_looks(monkeypatch) -> None:
    monkeypatch.setattr(tokens, "LOOK_AGAIN", LONG)


class Calls:
    """Publishes on threads of their own; what became of each."""

    def __init__(self, producer: nsqsmart.Producer) -> None:
        self._producer = producer
        self._threads: list[threading.Thread] = []
        self.stored: list[bytes] = []
        self.failed: dict[bytes, PublishError] = {}

    def begin(self, body: bytes, **arguments: object) -> None:
        def work() -> None:
            try:
                self._producer.publish("t", body, timeout=LONG, **arguments)
            except PublishError as error:
                self.failed[body] = error
            else:
                self.stored.append(body)

        self._threads.append(threading.Thread(target=work))
        self._threads[-1].start()

    def end(self) -> None:
        """All of them are over soon."""
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive()


def pub_came(cluster: Cluster) -> Callable[[], object]:
    return lambda: cluster.log.of("PUB")


def ended_by_close(error: PublishError, outcome: Outcome) -> None:
    assert type(error) is PublishFailed
    assert isinstance(error.__cause__, ClientClosed)
    assert error.outcome is outcome


@contextmanager
def closed_in_the_middle(url: str, **options: object) -> Iterator[tuple[nsqsmart.Producer, Calls]]:
    """What the block begins is under way when the producer is closed without patience."""
    producer = nsqsmart.Producer(url, **options)
    calls = Calls(producer)
    try:
        yield producer, calls
        with in_time(0):
            producer.close(timeout=0)
    finally:
        producer.close(timeout=0)
        calls.end()
    assert not calls.stored


# ------------------------------------------------------------------------------ without patience


def test_before_anything_is_sent():
    with Peer(Talk.stall) as deaf:
        with closed_in_the_middle(deaf.url, handshake_timeout=LONG) as (_, calls):
            calls.begin(b"x")
            eventually(lambda: deaf.accepted)
        ended_by_close(calls.failed[b"x"], Outcome.NOT_SENT)


def test_in_the_middle_of_a_lookup():
    with Peer(Talk.stall) as deaf:
        url = "nsq+lookupd://{}:{}".format(*deaf.address)
        with closed_in_the_middle(url, lookupd_request_timeout=LONG) as (_, calls):
            calls.begin(b"x")
            eventually(lambda: deaf.accepted)
        ended_by_close(calls.failed[b"x"], Outcome.NOT_SENT)


def test_while_it_waits_for_anothers_lookup():
    with Peer(Talk.stall) as deaf:
        url = "nsq+lookupd://{}:{}".format(*deaf.address)
        with closed_in_the_middle(url, lookupd_request_timeout=LONG) as (producer, calls):
            for body in (b"x", b"y", b"z"):
                calls.begin(body)
            entries = shared(producer).directory._entries
            eventually(lambda: "t" in entries and len(entries["t"].waiting) == 2)
            eventually(lambda: deaf.accepted)
        for error in calls.failed.values():
            ended_by_close(error, Outcome.NOT_SENT)
        assert deaf.accepted == 1


def test_while_it_waits_to_look_up_again(cluster):
    """Lookups of a topic keep their distance."""
    cluster.set_writable("t", 0, False)
    with closed_in_the_middle(cluster.url, lookupd_min_refresh_interval=LONG) as (producer, calls):
        calls.begin(b"x")
        entries = shared(producer).directory._entries
        eventually(lambda: "t" in entries and entries["t"].waiting)
    ended_by_close(calls.failed[b"x"], Outcome.NOT_SENT)


def test_in_the_middle_of_the_write():
    read = threading.Event()

    def sip(talk: Talk) -> None:
        talk.greet()
        talk.line()
        read.set()
        talk.stall()

    with Peer(sip) as peer:
        with closed_in_the_middle(peer.url) as (_, calls):
            calls.begin(b"x" * 20_000_000)
            assert read.wait(5)
        ended_by_close(*calls.failed.values(), Outcome.UNCERTAIN)


def test_while_it_waits_for_the_answer(either):
    either.faults.add(faults.on("PUB").stall())
    with closed_in_the_middle(either.url) as (_, calls):
        calls.begin(b"x")
        eventually(pub_came(either))
    ended_by_close(calls.failed[b"x"], Outcome.UNCERTAIN)


def test_while_it_waits_for_the_answer_to_a_keyed_message(cluster):
    cluster.faults.add(faults.on("PUB").stall())
    with closed_in_the_middle(cluster.url) as (_, calls):
        calls.begin(b"x", key="k")
        eventually(pub_came(cluster))
    ended_by_close(calls.failed[b"x"], Outcome.UNCERTAIN)


def test_while_it_waits_for_a_connection(either):
    either.faults.add(faults.on("PUB").stall())
    with closed_in_the_middle(either.url, pool_size=1) as (producer, calls):
        calls.begin(b"first")
        eventually(pub_came(either))
        calls.begin(b"second")
        (place,) = shared(producer).pool._hosts.values()
        eventually(lambda: place.line)
    ended_by_close(calls.failed[b"first"], Outcome.UNCERTAIN)
    ended_by_close(calls.failed[b"second"], Outcome.NOT_SENT)


def test_while_it_waits_for_its_turn(cluster):
    cluster.faults.add(faults.on("PUB").stall())
    with closed_in_the_middle(cluster.url) as (producer, calls):
        calls.begin(b"first", key="k")
        eventually(pub_came(cluster))
        calls.begin(b"second", key="k")
        eventually(lambda: [len(each) for each in shared(producer).turns._queues.values()] == [2])
    ended_by_close(calls.failed[b"first"], Outcome.UNCERTAIN)
    ended_by_close(calls.failed[b"second"], Outcome.NOT_SENT)


@pytest.mark.parametrize(
    ("code", "outcome"),
    [("E_PUB_FAILED", Outcome.UNCERTAIN), ("E_TOPIC_NOT_EXIST", Outcome.REJECTED)],
)
def test_while_it_pauses_between_two_attempts(cluster, monkeypatch, code, outcome):
    monkeypatch.setattr("random.uniform", lambda _low, high: high)
    cluster.faults.add(faults.on("PUB").reply(code))
    pauses = {"retry_pause": LONG, "max_retry_pause": LONG}
    with closed_in_the_middle(cluster.url, **pauses) as (producer, calls):
        calls.begin(b"x", key="k")
        eventually(pub_came(cluster))
        eventually(lambda: not shared(producer).pool._is_lending())
    ended_by_close(calls.failed[b"x"], outcome)


def test_while_an_unkeyed_message_pauses(either, monkeypatch):
    monkeypatch.setattr("random.uniform", lambda _low, high: high)
    either.faults.add(faults.on("PUB").reply("E_PUB_FAILED"))
    pauses = {"retry_pause": LONG, "max_retry_pause": LONG}
    with closed_in_the_middle(either.url, **pauses) as (producer, calls):
        calls.begin(b"x")
        eventually(pub_came(either))
        eventually(lambda: not shared(producer).pool._is_lending())
    ended_by_close(calls.failed[b"x"], Outcome.UNCERTAIN)


def test_while_it_waits_at_a_fence(cluster):
    cluster.faults.add(faults.on("PUB").store_then_close())
    with closed_in_the_middle(cluster.url, uncertain_fence=LONG / 2) as (producer, calls):
        with pytest.raises(PublishError):
            producer.publish("t", b"lost", key="k")
        calls.begin(b"x", key="k")
        eventually(lambda: shared(producer).turns._queues)
    ended_by_close(calls.failed[b"x"], Outcome.NOT_SENT)


# --------------------------------------------------------------------------------- with patience


def close_lets_finish(
    producer: nsqsmart.Producer, calls: Calls, go_on: Callable[[], object]
) -> None:
    """close() waits for the calls, which end well once *go_on* has been called."""
    closing = threading.Thread(target=producer.close, kwargs={"timeout": LONG})
    closing.start()
    eventually(lambda: producer._closed)
    assert closing.is_alive()
    go_on()
    calls.end()
    closing.join(5)
    assert not closing.is_alive()
    assert not calls.failed


def test_who_is_between_two_attempts_may_finish(cluster):
    cluster.set_writable("t", 0, False)
    producer = nsqsmart.Producer(cluster.url, lookupd_min_refresh_interval=0.05)
    calls = Calls(producer)
    for number in range(3):
        calls.begin(b"%d" % number)
    eventually(lambda: len(cluster.log.of("GET /lookup")) > 3)
    close_lets_finish(producer, calls, lambda: cluster.set_writable("t", 0, True))
    assert bodies(cluster) == {b"0": 1, b"1": 1, b"2": 1}


@pytest.mark.parametrize("key", ["k", None], ids=["turns", "connections"])
def test_who_waits_may_finish(cluster, key):
    delays = [cluster.faults.add(faults.on("PUB", nth=n).delay(0.1)) for n in range(1, 6)]
    producer = nsqsmart.Producer(cluster.url, pool_size=1)
    calls = Calls(producer)
    for number in range(5):
        calls.begin(b"%d" % number, key=key)
    eventually(pub_came(cluster))
    close_lets_finish(producer, calls, lambda: None)
    assert sum(bodies(cluster).values()) == len(delays)


def test_it_waits_no_longer_than_it_may(either):
    either.faults.add(faults.on("PUB").stall())
    producer = nsqsmart.Producer(either.url)
    calls = Calls(producer)
    calls.begin(b"x")
    eventually(pub_came(either))
    started = monotonic()
    with in_time(0.3):
        producer.close(timeout=0.3)
    assert monotonic() - started >= 0.3
    calls.end()
    ended_by_close(calls.failed[b"x"], Outcome.UNCERTAIN)


def test_a_producer_that_is_closed_while_it_is_first_used(cluster, monkeypatch):
    """close() finds nothing to close yet: what is made meanwhile must not live on."""
    real = machinery_module.Directory
    producer = nsqsmart.Producer(cluster.url)

    def slow(*args: object) -> object:
        producer.close()
        return real(*args)

    monkeypatch.setattr(machinery_module, "Directory", slow)
    with pytest.raises(ClientClosed):
        producer.publish("t", b"x", timeout=5)
    assert not bodies(cluster)
    assert producer._runtime.get() is None


# ------------------------------------------------------------------------------------------ loans


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_thread_that_exits_with_a_loan_leaves_its_slot(cluster, monkeypatch):
    monkeypatch.setattr(tokens, "LOOK_AGAIN", 0.05)
    with nsqsmart.Producer(cluster.url, pool_size=1) as producer:
        producer.publish("t", b"warm")
        pool = shared(producer).pool
        (address,) = pool._hosts
        lent = threading.Event()

        def borrow() -> None:
            loan = pool.take(address, monotonic() + 5)
            lent.set()
            assert waiting.wait(5)
            del loan

        waiting = threading.Event()
        thread = threading.Thread(target=borrow)
        thread.start()
        assert lent.wait(5)
        calls = Calls(producer)
        calls.begin(b"x")
        eventually(lambda: pool._hosts[address].line)
        waiting.set()
        thread.join()
        calls.end()
        assert calls.stored == [b"x"]
        check_free(producer)


def test_a_thread_that_is_told_to_exit_in_an_exchange(cluster):
    """What sys.exit() in a signal handler, or an exception of another thread, does to a loan."""
    cluster.faults.add(faults.on("PUB").stall())

    with nsqsmart.Producer(cluster.url, pool_size=1) as producer:
        producer.publish_many("t", [b"warm"])
        (place,) = shared(producer).pool._hosts.values()
        (connection,) = place.idle

        def work() -> None:
            with pytest.raises(SystemExit):
                producer.publish("t", b"x", key="k", timeout=LONG)
            told.append(1)

        told: list[int] = []

        thread = threading.Thread(target=work)
        thread.start()
        eventually(pub_came(cluster))
        set_error = ctypes.pythonapi.PyThreadState_SetAsyncExc
        assert set_error(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)) == 1
        # It is delivered when the thread runs again: now its connection ends.
        connection.hang_up()
        thread.join(5)
        assert told
        del connection
        assert producer.publish("t", b"y", key="k", timeout=5).attempts == 1
        check_free(producer)
