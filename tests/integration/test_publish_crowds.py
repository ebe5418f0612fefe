"""Many threads on one producer: what one finds out serves all, and no thread is forgotten."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import Outcome, PublishError, PublishTimeout
from tests.helpers import eventually
from tests.integration.publishing import SLACK, bodies, check_free, in_time, shared
from tests.programs import Programs, free_ports, get

THREADS = 40
PATIENCE = 15.0


class Crowd:
    """Threads that publish numbered messages until they are told to stop."""

    def __init__(self, producer: nsqsmart.Producer, *, keyed: bool) -> None:
        self._producer = producer
        self._keyed = keyed
        self._stop = threading.Event()
        self.stored: list[tuple[bytes, nsqsmart.Receipt]] = []
        self.failed: list[PublishError] = []
        self.longest = 0.0
        self._threads = [
            threading.Thread(target=self._work, args=(number,)) for number in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, number: int) -> None:
        turn = 0
        while not self._stop.wait(0.005):
            turn += 1
            body = b"%d %d" % (number, turn)
            began = monotonic()
            try:
                key = number if self._keyed else None
                receipt = self._producer.publish("t", body, key=key, timeout=PATIENCE)
            except PublishError as error:
                self.failed.append(error)
            else:
                self.stored.append((body, receipt))
            self.longest = max(self.longest, monotonic() - began)

    def goes_on(self) -> None:
        """All threads, and for a while."""
        seen = len(self.stored)

        def all_of_them() -> bool:
            new = Counter(body.split()[0] for body, _ in self.stored[seen:])
            return len(new) == THREADS and min(new.values()) >= 3

        eventually(all_of_them, PATIENCE)

    def ends(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE + SLACK)
            assert not thread.is_alive()


@pytest.mark.parametrize(
    ("dialect", "keyed"),
    [("original", False), ("redesigned", False), ("redesigned", True)],
    ids=["original", "redesigned", "redesigned, keyed"],
)
def test_an_nsqd_is_killed_while_forty_threads_publish(dialect, keyed):
    with Cluster(
        dialect=dialect, nsqds=3, lookupds=1, election_delay=0.2, replication_timeout=0.1
    ) as cluster:
        if dialect == "original":
            cluster.create_topic("t")
        else:
            cluster.create_topic("t", partitions=2, replicas=3, multi_part=True)
        cluster.create_channel("t", "c")
        victim = cluster.nsqds[0] if dialect == "original" else cluster.leader("t", 0)
        with nsqsmart.Producer(cluster.url, lookupd_min_refresh_interval=0.1) as producer:
            crowd = Crowd(producer, keyed=keyed)
            try:
                crowd.goes_on()
                cluster.kill(victim)
                crowd.goes_on()
            finally:
                crowd.ends()
            check_free(producer)
        # One unanswered a partition is all there can be of keyed ones.
        assert len(crowd.failed) <= (2 if keyed else 0)
        assert {error.outcome for error in crowd.failed} <= {Outcome.UNCERTAIN}
        assert not any(error.answered for error in crowd.failed)
        assert crowd.longest < PATIENCE + SLACK
        # An original nsqd has lost what was in its memory; a redesigned one has followers.
        kept = bodies(cluster)
        lost = [body for body, receipt in crowd.stored if body not in kept]
        assert dialect == "original" or not lost


def nsqd_program(*, real: bool) -> list[str]:
    if not real:
        return [sys.executable, "-m", "nsqsmart.embedded", "nsqd"]
    folder = os.environ.get("NSQSMART_TEST_NSQ_BIN")
    if not folder:
        pytest.skip("NSQSMART_TEST_NSQ_BIN does not name a folder with nsqd")
    return [f"{folder}/nsqd"]


@pytest.mark.parametrize(
    "real", [False, pytest.param(True, marks=pytest.mark.real)], ids=["embedded", "real original"]
)
def test_a_process_is_killed_while_forty_threads_publish(tmp_path: Path, real):
    """The kernel ends its connections, not we."""
    programs = Programs(tmp_path)
    ports = free_ports(4)
    try:
        for name, tcp, http in (("a", *ports[:2]), ("b", *ports[2:])):
            programs.start(
                name,
                *nsqd_program(real=real),
                f"--tcp-address=127.0.0.1:{tcp}",
                f"--http-address=127.0.0.1:{http}",
                "--data-path={home}",
            )
            eventually(lambda http=http: get(http, "/ping")[0] == 200, 20)
        url = f"nsq://127.0.0.1:{ports[0]},127.0.0.1:{ports[2]}"
        with nsqsmart.Producer(url) as producer:
            crowd = Crowd(producer, keyed=False)
            try:
                crowd.goes_on()
                programs.kill("a")
                crowd.goes_on()
            finally:
                crowd.ends()
            check_free(producer)
        assert not crowd.failed
        assert {receipt.nsqd for _, receipt in crowd.stored[-THREADS:]} == {f"127.0.0.1:{ports[2]}"}
    finally:
        programs.end()


# -------------------------------------------------------------------------- what one finds for all


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nsqds=2, lookupds=1) as made:
        made.create_topic("t", replicas=2)
        made.create_channel("t", "c")
        yield made


def together(count: int, work: Callable[[int], object]) -> None:
    """Have it done by so many threads at once."""
    start = threading.Barrier(count)

    def run(number: int) -> None:
        start.wait()
        work(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("key", [None, "k"], ids=["unkeyed", "keyed"])
def test_forty_threads_that_fail_at_once_make_one_lookup_and_all_get_its_picture(cluster, key):
    options = {
        "serialize": False,
        "pool_size": THREADS,
        # A call that needed a second one would fail.
        "lookupd_min_refresh_interval": 60,
    }
    with nsqsmart.Producer(cluster.url, **options) as producer:
        producer.publish("t", b"warm")
        # The first lookup was just now.
        shared(producer).directory._entries["t"].asked_at -= 60
        leader = cluster.move_leader("t", 0)
        asked = len(cluster.log.of("GET /lookup"))
        receipts: list[nsqsmart.Receipt] = []
        together(
            THREADS,
            lambda number: receipts.append(
                producer.publish("t", b"%d" % number, key=key, timeout=10)
            ),
        )
        check_free(producer)
    assert [receipt.nsqd for receipt in receipts] == [leader.name] * THREADS
    assert len(cluster.log.of("GET /lookup")) == asked + 1
    assert bodies(cluster) == {b"warm": 1} | {b"%d" % number: 1 for number in range(THREADS)}


def test_forty_threads_that_lose_a_node_at_once_make_one_lookup():
    """On an original cluster they go elsewhere without waiting for it."""
    options = {"pool_size": THREADS, "lookupd_min_refresh_interval": 60}
    with Cluster(dialect="original", nsqds=2, lookupds=1) as cluster:
        cluster.create_topic("t")
        with nsqsmart.Producer(cluster.url, **options) as producer:
            producer.publish("t", b"warm")
            producer.publish("t", b"warm")
            shared(producer).directory._entries["t"].asked_at -= 60
            asked = len(cluster.log.of("GET /lookup"))
            cluster.kill(cluster.nsqds[0])
            receipts: list[nsqsmart.Receipt] = []
            with in_time(1):
                together(
                    THREADS,
                    lambda number: receipts.append(
                        producer.publish("t", b"%d" % number, timeout=10)
                    ),
                )
            check_free(producer)
        assert {receipt.nsqd for receipt in receipts} == {cluster.nsqds[1].name}
        assert max(receipt.attempts for receipt in receipts) == 2
        assert len(cluster.log.of("GET /lookup")) == asked + 1


def test_forty_threads_find_a_topic_by_one_lookup(cluster):
    with nsqsmart.Producer(cluster.url) as producer:
        together(THREADS, lambda number: producer.publish("t", b"%d" % number, timeout=10))
        check_free(producer)
    assert len(cluster.log.of("GET /lookup")) == 1
    assert len(bodies(cluster)) == THREADS


# --------------------------------------------------------------------------- few connections


@pytest.fixture(params=["original", "redesigned"])
def either(request) -> Iterator[Cluster]:
    with Cluster(dialect=request.param) as made:
        made.create_topic("t")
        made.create_channel("t", "c")
        yield made


def test_a_hundred_threads_share_four_connections(either):
    with nsqsmart.Producer(either.url, pool_size=4) as producer:

        def work(number: int) -> None:
            for turn in range(3):
                producer.publish("t", b"%d %d" % (number, turn), timeout=PATIENCE)

        together(100, work)
        check_free(producer)
        (figures,) = producer.stats()["pools"].values()
    assert len(bodies(either)) == 300
    assert len(either.log.of("IDENTIFY")) <= 4
    assert (figures["requests_num"], figures["requests_errors"]) == (300, 0)


def test_a_hundred_threads_and_four_connections_that_nobody_answers(either):
    """Four have sent something; the others say what they waited for, and sent nothing."""
    either.faults.add(faults.on("PUB", times=4).stall())
    failed: list[PublishError] = []
    with nsqsmart.Producer(either.url, pool_size=4) as producer:

        def fail(timeout: float) -> None:
            with pytest.raises(PublishTimeout) as caught:
                producer.publish("t", b"x", timeout=timeout)
            failed.append(caught.value)

        # They keep the connections until the others are over, however slowly those begin; a call
        # that waited longer than it may would get one in the end.
        first = [threading.Thread(target=fail, args=(4,)) for _ in range(4)]
        for thread in first:
            thread.start()
        eventually(lambda: len(either.log.of("PUB")) == 4)
        together(96, lambda _: fail(1))
        waited = failed[:]
        for thread in first:
            thread.join()
        check_free(producer)
        producer.publish("t", b"next", timeout=5)
    assert [error.outcome for error in waited] == [Outcome.NOT_SENT] * 96
    assert all("raise pool_size" in str(error) for error in waited)
    assert [error.outcome for error in failed[96:]] == [Outcome.UNCERTAIN] * 4
    assert bodies(either) == {b"next": 1}
