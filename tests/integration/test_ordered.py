"""Ordered topics: a partition's messages one by one, in order, whatever fails meanwhile."""

from __future__ import annotations

import threading
from collections import defaultdict

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster
from nsqsmart.errors import ConfigError, OrderingNotSupported
from tests.helpers import eventually
from tests.integration.consuming import Handled, all_finished, numbered, publish
from tests.peers import Peer, lookup_of, message_frame, subscribed

KEYS = [f"customer-{number}" for number in range(12)]


@pytest.fixture
def cluster():
    with Cluster(nsqds=3, lookupds=1) as made:
        made.create_topic("t", partitions=3, ordered=True)
        made.create_channel("t", "c")
        yield made


@pytest.fixture
def hasty():
    """Delivers again after 0.5 s."""
    with Cluster(msg_timeout=0.5) as made:
        made.create_topic("t", ordered=True)
        made.create_channel("t", "c")
        yield made


def consume(cluster: Cluster, handler, **options):
    return nsqsmart.Consumer("t", "c", handler, address=cluster.url, **options)


def publish_keyed(cluster: Cluster, count: int) -> None:
    """*count* numbered messages of every key, by one thread a key."""
    with nsqsmart.Producer(cluster.url) as producer:

        def send(key: str) -> None:
            for number in range(count):
                producer.publish("t", f"{key} {number}".encode(), key=key, timeout=20)

        threads = [threading.Thread(target=send, args=(key,)) for key in KEYS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)


def by_key(bodies: list[bytes]) -> dict[str, list[int]]:
    found = defaultdict(list)
    for body in bodies:
        key, _, number = body.decode().partition(" ")
        found[key].append(int(number))
    return found


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_every_key_is_handled_in_order(cluster, workers):
    publish_keyed(cluster, 20)
    handled = Handled()
    with consume(cluster, handled, workers=workers) as consumer:
        eventually(lambda: len(handled.messages) == 20 * len(KEYS))
        all_finished(cluster)
        assert consumer._runtime.order_violations == 0
    assert by_key(handled.bodies()) == {key: list(range(20)) for key in KEYS}
    assert len(cluster.log.of("SUB_ORDERED")) == 3
    assert not cluster.log.of("SUB")
    for message in handled.messages:
        assert message.offset is not None


def test_no_partition_is_ever_handled_by_two_workers_at_once(cluster):
    publish_keyed(cluster, 10)
    busy: set[int] = set()
    wrong: list[int] = []
    handled = Handled()

    def handler(message: nsqsmart.Message) -> None:
        if message.partition in busy:
            wrong.append(message.partition)
        busy.add(message.partition)
        handled(message)
        busy.discard(message.partition)

    with consume(cluster, handler, workers=6):
        eventually(lambda: len(handled.messages) == 10 * len(KEYS))
    assert wrong == []


def test_a_bad_message_holds_its_partition_and_nothing_else(cluster):
    for partition in range(3):
        publish(cluster, *numbered(5, b"%d " % partition), partition=partition)
    mended = threading.Event()
    handled = Handled()

    def handler(message: nsqsmart.Message) -> None:
        if message.body == b"1 2" and not mended.is_set():
            raise ValueError("cannot handle this one yet")
        handled(message)

    with consume(cluster, handler, backoff_multiplier=0.05, max_backoff_duration=0.1):
        eventually(lambda: len(handled.messages) == 12)
        # It came again and again, and nothing passed it.
        eventually(lambda: len(cluster.log.of("REQ")) >= 3)
        assert by_key(handled.bodies()) == {"0": [0, 1, 2, 3, 4], "1": [0, 1], "2": [0, 1, 2, 3, 4]}
        mended.set()
        eventually(lambda: len(handled.messages) == 15)
        all_finished(cluster)
    assert by_key(handled.bodies())["1"] == [0, 1, 2, 3, 4]
    (bad,) = [message for message in handled.messages if message.body == b"1 2"]
    assert bad.attempts >= 4


def test_a_redelivery_waits_while_the_handler_runs(hasty):
    """The server loses patience with a slow handler; its copy must not overtake it."""
    publish(hasty, b"slow", b"next", partition=0)
    inside = threading.Lock()
    overlaps: list[bytes] = []
    handled = Handled()

    def handler(message: nsqsmart.Message) -> None:
        if not inside.acquire(blocking=False):
            overlaps.append(message.body)
            return
        try:
            if not handled.messages:
                # Until the server has sent the copy, and it waits behind this one.
                eventually(lambda: message._subscription.ordering._waiting)
            handled(message)
        finally:
            inside.release()

    with consume(hasty, handler, workers=4):
        eventually(lambda: b"next" in handled.bodies())
        all_finished(hasty)
    assert overlaps == []
    bodies = handled.bodies()
    assert bodies == sorted(bodies, reverse=True)


def test_while_a_failed_head_is_held_the_server_is_kept_patient(hasty):
    publish(hasty, b"bad", b"next", partition=0)
    handled = Handled()

    def handler(message: nsqsmart.Message) -> None:
        if message.body == b"bad" and not handled.messages:
            handled(message)
            raise nsqsmart.Requeue(1.2)
        handled(message)

    with consume(hasty, handler):
        eventually(lambda: len(handled.messages) == 3)
    # Handled again once, when its pause was over: not when the server's patience was.
    assert handled.bodies() == [b"bad", b"bad", b"next"]
    assert len(hasty.log.of("REQ")) == 1
    assert len(hasty.log.of("TOUCH")) >= 2


def test_in_order_where_nobody_asked_for_it_is_refused(cluster):
    cluster.create_topic("plain", partitions=1)
    cluster.create_channel("plain", "c")
    with pytest.raises(ConfigError, match="force_ordered"):
        nsqsmart.Consumer("plain", "c", print, address=cluster.url, ordered=True).start()
    assert not cluster.log.of("SUB_ORDERED", "plain")
    with Cluster(dialect="original") as original:
        original.create_topic("t")
        with pytest.raises(OrderingNotSupported):
            consume(original, print, ordered=True).start()


def test_out_of_order_where_the_topic_is_ordered_is_refused(cluster):
    with pytest.raises(ConfigError, match="refuse ordered=False"):
        consume(cluster, print, ordered=False).start()
    source = nsqsmart.PullSubscription(cluster.url, "t", "c", partition=0, ordered=False)
    with pytest.raises(ConfigError, match="refuse ordered=False"):
        source.open()


def test_it_can_be_forced(cluster):
    cluster.create_topic("plain", partitions=1)
    cluster.create_channel("plain", "c")
    publish(cluster, *numbered(5), topic="plain", partition=0)
    handled = Handled()
    options = {"ordered": True, "force_ordered": True}
    with nsqsmart.Consumer("plain", "c", handled, address=cluster.url, **options):
        eventually(lambda: len(handled.messages) == 5)
    assert handled.bodies() == numbered(5)
    assert cluster.log.of("SUB_ORDERED", "plain")


def detailed(offset: int, number: int) -> bytes:
    body = offset.to_bytes(8, "big") + (30).to_bytes(4, "big") + b"%d" % offset
    # The first half of the id is the internal id.
    return message_frame(number << 64, body)


@pytest.mark.parametrize("answer", [True, False, ValueError("oops")])
def test_out_of_order_is_told_and_the_partition_is_never_lost(answer):
    """From a server that breaks its promise: a later offset with a smaller internal id."""
    told: list[nsqsmart.Message] = []
    handled = Handled()

    def on_violation(message: nsqsmart.Message) -> bool:
        told.append(message)
        if isinstance(answer, Exception):
            raise answer
        return answer

    nsqd = subscribed(lambda line: None, detailed(100, 7), detailed(200, 6))
    with Peer(nsqd) as server, Peer(lookup_of({0: server.address}, ordered=True)) as lookup:
        url = "nsq+lookupd://{}:{}".format(*lookup.address)
        options = {"on_order_violation": on_violation, "lookupd_min_refresh_interval": 0.01}
        with nsqsmart.Consumer("t", "c", handled, address=url, **options):
            eventually(lambda: told)
            assert (told[0].offset, told[0].internal_id) == (200, 6)
            if answer is True:
                eventually(lambda: handled.bodies() == [b"100", b"200"])
                assert server.accepted == 1
            else:
                eventually(lambda: server.accepted >= 2)
                assert b"200" not in handled.bodies()


def test_order_is_checked_over_a_reconnect():
    """From a server that has passed a message over, and brings it on the next connection."""
    told: list[int] = []
    handled = Handled()

    first = [detailed(100, 1), detailed(130, 2), detailed(190, 4)]
    second = [detailed(130, 2), detailed(160, 3)]
    nsqds = [subscribed(lambda line: None, *each) for each in (first, second)]
    with Peer(*nsqds) as server, Peer(lookup_of({0: server.address}, ordered=True)) as lookup:
        url = "nsq+lookupd://{}:{}".format(*lookup.address)
        options = {
            "on_order_violation": lambda message: told.append(message.offset) or False,
            "lookupd_min_refresh_interval": 0.01,
        }
        with nsqsmart.Consumer("t", "c", handled, address=url, **options) as consumer:
            eventually(lambda: handled.bodies() == [b"100", b"130", b"190"])
            consumer._runtime.snapshot()[0].hang_up()
            eventually(lambda: told and len(handled.bodies()) >= 4)
            assert told == [160]
            assert handled.bodies()[:4] == [b"100", b"130", b"190", b"130"]
