"""Named faults of publishing that every server can be brought to: embedded and real ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import nsqsmart
from nsqsmart.errors import MessageRejected, Outcome
from nsqsmart.net.connection import Connection
from tests.helpers import eventually
from tests.integration.publishing import check_free, codes, in_time, shared
from tests.sites import Site, Start, running_sites, sites

# Real redesigned clusters take their time to make a topic.
pytestmark = pytest.mark.timeout(300)
_TOPIC = "faults"
_PATIENCE = 20


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> Iterator[Start]:
    """Each site once, when the first test needs it."""
    with running_sites(tmp_path_factory.mktemp) as find:
        yield find


@pytest.fixture(scope="module", params=sites("original", "redesigned"))
def site(request, start) -> Site:
    made = start(request.param)
    made.make_topic(_TOPIC, partitions=2, replicas=1, ordered=False)
    return made


def test_a_body_that_is_too_large_by_far(site):
    """It is refused and reset with most of it unread; the reason is read all the same."""
    with nsqsmart.Producer(site.url) as producer:
        for _ in range(10):
            with in_time(5), pytest.raises(MessageRejected) as caught:
                producer.publish(_TOPIC, b"x" * 8_000_000, timeout=5)
            assert caught.value.outcome is Outcome.REJECTED
            assert codes(caught.value) == ["E_BAD_MESSAGE"]
            assert producer.publish(_TOPIC, b"x", timeout=_PATIENCE).attempts == 1
        check_free(producer)


def test_a_batch_with_a_message_in_the_middle_that_is_too_large(site):
    with nsqsmart.Producer(site.url) as producer:
        for _ in range(5):
            with in_time(5), pytest.raises(MessageRejected) as caught:
                producer.publish_many(_TOPIC, [b"a", b"x" * 2_000_000, b"NOP\n"], timeout=5)
            assert caught.value.outcome is Outcome.REJECTED
            assert producer.publish(_TOPIC, b"x", timeout=_PATIENCE).attempts == 1
        check_free(producer)


def test_a_heartbeat_waits_on_an_idle_connection(site):
    with nsqsmart.Producer(site.url, heartbeat_interval=1) as producer:
        for _ in range(2):  # nsqds
            producer.publish(_TOPIC, b"x", timeout=_PATIENCE)

        def idle() -> list[Connection]:
            places = shared(producer).pool._hosts.values()
            return [connection for place in places for connection in place.idle]

        before = idle()
        assert before
        for _ in range(3):
            eventually(lambda: all(each._socket.poll(0) for each in before), timeout=10)
            for _ in range(2):
                assert producer.publish(_TOPIC, b"x", timeout=_PATIENCE).attempts == 1
        assert set(map(id, idle())) == set(map(id, before))


def test_a_hundred_threads_share_two_connections_to_each_nsqd(site):
    attempts: list[int] = []
    with nsqsmart.Producer(site.url, pool_size=2) as producer:

        def work() -> None:
            receipts = [producer.publish(_TOPIC, b"x", timeout=_PATIENCE) for _ in range(5)]
            attempts.extend(receipt.attempts for receipt in receipts)

        threads = [threading.Thread(target=work) for _ in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check_free(producer)
        pools = producer.stats()["pools"].values()
        assert all(figures["connections_num"] <= 2 for figures in pools)
    assert attempts == [1] * 500
