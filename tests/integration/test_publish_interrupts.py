"""KeyboardInterrupt and SystemExit at any place of a publish.

The next publish is never answered by the earlier OK, and whatever was taken is free again: the
connection's slot, the turn, the lookup under way. Only the fence stays: the server may still carry
the command out. Positions are drawn from all there are, from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import PublishError
from nsqsmart.net.sockets import Socket
from tests.helpers import SOAK
from tests.integration.publishing import bodies, check_free, shared
from tests.interrupts import count_places, interrupted_at

# The collector closes what an interrupt left behind, and says so.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

PATIENCE = 3
STEP = 1 if SOAK else 3  # between the places of the longest test


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nsqds=1, lookupds=1) as made:
        made.create_topic("t")
        made.create_channel("t", "c")
        yield made


def plain(producer: nsqsmart.Producer, body: bytes) -> None:
    producer.publish("t", body, timeout=PATIENCE)


def keyed(producer: nsqsmart.Producer, body: bytes) -> None:
    producer.publish("t", body, key="k", timeout=PATIENCE)


def traced(producer: nsqsmart.Producer, body: bytes) -> None:
    producer.publish("t", body, key="k", trace_id=1 << 60, timeout=PATIENCE)


def batch(producer: nsqsmart.Producer, body: bytes) -> None:
    producer.publish_many("t", [body, b"and another"], key="k", timeout=PATIENCE)


def looking_up(producer: nsqsmart.Producer, body: bytes) -> None:
    entry = shared(producer).directory._entries["t"]
    entry.stale_at = entry.asked_at = 0.0
    entry.needed = True  # or it would not be this call that looks up
    producer.publish("t", body, key="k", timeout=PATIENCE)


def from_cold(producer: nsqsmart.Producer, body: bytes) -> None:
    publisher = shared(producer)
    for address in list(publisher.pool._hosts):
        publisher.pool.retire(address)
    publisher.directory._entries.pop("t", None)
    producer.publish("t", body, key="k", timeout=PATIENCE)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("call", [plain, keyed, traced, batch, looking_up, from_cold])
def test_an_interrupt_anywhere_leaves_a_producer_that_works(cluster, call, error):
    chance = random.Random(f"{call.__name__} {error.__name__}")
    options = {"pool_size": 1, "lookupd_min_refresh_interval": 0.01}
    with nsqsmart.Producer(cluster.url, **options) as producer:
        traced(producer, b"warm")
        places = count_places(lambda: call(producer, b"counted"))
        for trial in range(1, 51):
            with suppress(error), interrupted_at(chance.randint(1, places), error):
                call(producer, b"%d" % trial)
            started = monotonic()
            found = producer.publish("t", b"next", key="k", trace_id=trial, timeout=PATIENCE)
            assert (found.trace_id, found.attempts) == (trial, 1)
            assert monotonic() - started < PATIENCE
        check_free(producer)
    stored = bodies(cluster)
    assert stored.pop(b"next") == 50
    assert max(stored[b"%d" % trial] for trial in range(1, 51)) <= 1


def test_who_handles_the_interrupt_may_publish_meanwhile(cluster):
    """Its traceback still holds all that the interrupted call had."""
    with nsqsmart.Producer(cluster.url, lookupd_min_refresh_interval=0.01) as producer:
        traced(producer, b"warm")
        for call in (keyed, looking_up, from_cold):
            places = count_places(lambda call=call: call(producer, b"counted"))
            for position in range(1, places + 1, STEP):
                try:
                    with interrupted_at(position):
                        call(producer, b"x")
                except KeyboardInterrupt:
                    producer.publish("t", b"goodbye", key="k", timeout=PATIENCE)
        check_free(producer)


def test_an_interrupt_in_the_middle_of_retries(cluster):
    chance = random.Random(5)
    options = {"pool_size": 1, "lookupd_min_refresh_interval": 0.01, "retry_pause": 0.001}

    def disturbed(producer: nsqsmart.Producer) -> None:
        cluster.faults.clear()
        cluster.faults.add(faults.on("PUB").reply("E_FAILED_ON_NOT_LEADER"))
        cluster.faults.add(faults.on("PUB").store_then_reset())
        with suppress(PublishError):
            keyed(producer, b"x")

    with nsqsmart.Producer(cluster.url, **options) as producer:
        traced(producer, b"warm")
        places = count_places(lambda: disturbed(producer))
        for trial in range(1, 51):
            with suppress(KeyboardInterrupt), interrupted_at(chance.randint(1, places)):
                disturbed(producer)
            cluster.faults.clear()
            found = producer.publish("t", b"next", key="k", trace_id=trial, timeout=PATIENCE)
            assert found.trace_id == trial
        check_free(producer)


@pytest.mark.parametrize("options", [{}, {"key": "k"}, {"trace_id": 1 << 60}])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_anywhere_in_publish_async_harms_no_other_message(cluster, options, error):
    with nsqsmart.Producer(cluster.url, retry_pause=0.001, max_retry_pause=0.01) as producer:
        producer.publish_async("t", b"warm", **options).result()
        places = count_places(lambda: producer.publish_async("t", b"counted", **options))
        sent = {b"warm", b"counted"}
        for position in range(1, places + 1):
            body = b"%d" % position * 1000
            before = producer.publish_async("t", b"before" + body, **options)
            with suppress(error), interrupted_at(position, error):
                producer.publish_async("t", body, **options)
            behind = producer.publish_async("t", b"behind" + body, **options)
            assert before.result(PATIENCE)
            assert behind.result(PATIENCE), position
            assert producer.flush(PATIENCE), position
            assert producer._runtime.get().async_pending == 0
            sent |= {body, b"before" + body, b"behind" + body}
        started = monotonic()
        producer.close()
        assert monotonic() - started < PATIENCE
    stored = bodies(cluster)
    assert set(stored) <= sent
    assert {body for body in sent if body[:1] == b"b"} <= set(stored)


def test_nothing_follows_a_command_that_an_interrupt_cut_off(cluster, monkeypatch):
    """Or the server would take what follows for the rest of the body."""
    real = Socket.write
    cut = []

    def write(sock: Socket, data: bytes) -> None:
        if b"X" * 100 in data and not cut:
            cut.append(data)
            real(sock, data[: len(data) // 2])
            raise KeyboardInterrupt
        real(sock, data)

    with nsqsmart.Producer(cluster.url, retry_pause=0.001) as producer:
        producer.publish_async("t", b"warm").result()
        monkeypatch.setattr(Socket, "write", write)
        with pytest.raises(KeyboardInterrupt):
            producer.publish_async("t", b"X" * 1000)
        behind = [producer.publish_async("t", b"behind %d" % each) for each in range(50)]
        assert all(each.result(PATIENCE) for each in behind)
    assert cut
    # What was cut off may have been sent again, whole, before its caller took it back.
    stored = set(bodies(cluster)) - {b"X" * 1000}
    assert stored == {b"warm", *(b"behind %d" % each for each in range(50))}


def test_an_interrupt_lets_the_fence_stand(cluster, monkeypatch):
    """Whatever was sent and got no answer may still be stored: nothing follows it too early."""
    chance = random.Random(3)
    options = {"uncertain_fence": 30, "response_timeout": 0.03}
    sent: list[bytes] = []
    real = Socket.send

    def send(sock: Socket, data: bytes, deadline: float, now: float | None = None) -> None:
        sent.append(data[:4])
        real(sock, data, deadline, now)

    def unanswered(producer: nsqsmart.Producer) -> None:
        # More than one: on a busy machine one of them may meet a plain PUB that was given up.
        cluster.faults.add(faults.on("PUB", times=5).stall())
        with suppress(PublishError):
            keyed(producer, b"x")

    with nsqsmart.Producer(cluster.url, **options) as producer:
        plain(producer, b"warm")
        publisher = shared(producer)
        assert not publisher.fences
        places = count_places(lambda: unanswered(producer))
        monkeypatch.setattr(Socket, "send", send)
        fenced = 0
        for _ in range(80):
            publisher.fences.clear()
            # Or the next one would look up first, and seldom come to send anything.
            publisher.directory._entries["t"].doubted.clear()
            cluster.faults.clear()
            plain(producer, b"have a connection")
            sent.clear()
            with suppress(KeyboardInterrupt), interrupted_at(chance.randint(1, places)):
                unanswered(producer)
            if b"PUB " in sent:
                fenced += 1
                assert publisher.fences["t", 0] > monotonic() + 25
        assert fenced > 10
        check_free(producer)
