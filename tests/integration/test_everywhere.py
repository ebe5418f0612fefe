"""What must hold on every server: embedded and real, original and redesigned (tests/sites.py)."""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import count

import pytest

import nsqsmart
from nsqsmart.errors import OrderingNotSupported, TopicNotExist
from tests.helpers import eventually
from tests.integration.consuming import Handled
from tests.sites import CHANNEL, Led, Site, Start, running_sites, sites

# Real redesigned clusters take their time to make a topic.
pytestmark = pytest.mark.timeout(300)
_numbers = count(1)


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> Iterator[Start]:
    """Each site once, when the first test needs it."""
    with running_sites(tmp_path_factory.mktemp) as find:
        yield find


@pytest.fixture(scope="module", params=sites("original", "redesigned"))
def site(request, start) -> Site:
    return start(request.param)


@pytest.fixture(scope="module", params=sites("original"))
def original(request, start) -> Site:
    return start(request.param)


@pytest.fixture(scope="module", params=sites("redesigned"))
def redesigned(request, start) -> Led:
    return start(request.param)


def make_topic(site: Site, *, partitions=2, replicas=1, ordered=False) -> str:
    """A topic; where one takes a minute, the one that an earlier test has left empty."""
    kind = (partitions, replicas, ordered)
    if kind in site.reusable:
        return site.reusable[kind]
    name = f"everywhere{next(_numbers)}"
    site.make_topic(name, partitions=partitions, replicas=replicas, ordered=ordered)
    if site.slow:
        site.reusable[kind] = name
    return name


def consume(site: Site, topic: str, handler, **options):
    return nsqsmart.Consumer(topic, CHANNEL, handler, address=site.url, **options)


def test_what_is_published_is_handled_once(site):
    topic, handled = make_topic(site), Handled()
    bodies = [b"%d" % number for number in range(300)]
    with consume(site, topic, handled) as consumer, nsqsmart.Producer(site.url) as producer:
        for body in bodies:
            producer.publish(topic, body, timeout=20)
        eventually(lambda: consumer.stats().finished == 300, timeout=20)
    assert handled.counts() == Counter(bodies)


@pytest.mark.parametrize("compression", ["snappy", "deflate"])
def test_the_same_compressed(site, compression):
    topic, handled = make_topic(site), Handled()
    options = {compression: True}
    with (
        consume(site, topic, handled, **options) as consumer,
        nsqsmart.Producer(site.url, **options) as producer,
    ):
        for size in (1, 100, 900_000):
            producer.publish(topic, b"x" * size, timeout=20)
        eventually(lambda: consumer.stats().finished == 3, timeout=20)
    assert sorted(map(len, handled.bodies())) == [1, 100, 900_000]


def test_a_message_that_failed_comes_again_with_one_more_attempt(site):
    topic, attempts = make_topic(site), []

    def handle(message: nsqsmart.Message) -> None:
        attempts.append(message.attempts)
        if len(attempts) < 3:
            raise nsqsmart.Requeue(delay=0, backoff=False)

    with consume(site, topic, handle) as consumer, nsqsmart.Producer(site.url) as producer:
        producer.publish(topic, b"x", timeout=20)
        eventually(lambda: consumer.stats().finished == 1, timeout=20)
    assert attempts == [1, 2, 3]


def test_a_delayed_message_waits_and_comes(site):
    topic, times = make_topic(site), []

    def handle(message: nsqsmart.Message) -> None:
        times.append(message.received_at)
        if len(times) == 1:
            raise nsqsmart.Requeue(delay=1, backoff=False)

    with consume(site, topic, handle) as consumer, nsqsmart.Producer(site.url) as producer:
        producer.publish(topic, b"x", timeout=20)
        eventually(lambda: consumer.stats().finished == 1, timeout=30)
    assert times[1] - times[0] >= 0.9


def test_messages_of_a_key_are_handled_in_order(redesigned):
    topic, seen = make_topic(redesigned, partitions=3, ordered=True), defaultdict(list)

    def handle(message: nsqsmart.Message) -> None:
        key, _, number = message.body.partition(b":")
        seen[key].append(int(number))

    with (
        consume(redesigned, topic, handle) as consumer,
        nsqsmart.Producer(redesigned.url) as producer,
    ):
        for number in range(200):
            key = f"key{number % 7}"
            producer.publish(topic, f"{key}:{number}".encode(), key=key, timeout=20)
        eventually(lambda: consumer.stats().finished >= 200, timeout=60)
    for numbers in seen.values():
        # The first message of an ordered channel may come twice on a real server
        # (protocol#ordered-cluster).
        assert list(dict.fromkeys(numbers)) == sorted(set(numbers))
    assert sum(len(set(numbers)) for numbers in seen.values()) == 200


def test_a_receipt_names_the_message_that_is_consumed(redesigned):
    topic, handled = make_topic(redesigned), Handled()
    with (
        consume(redesigned, topic, handled, positions=True) as consumer,
        nsqsmart.Producer(redesigned.url, trace=True) as producer,
    ):
        receipts = [producer.publish(topic, b"%d" % n, key=n, timeout=20) for n in range(20)]
        eventually(lambda: consumer.stats().finished == 20, timeout=20)
    found = {(m.partition, m.internal_id, m.trace_id, m.offset, m.size) for m in handled.messages}
    assert found == {(r.partition, r.internal_id, r.trace_id, r.offset, r.size) for r in receipts}


def test_the_trace_log_joins_what_was_published_with_what_was_consumed(redesigned, caplog):
    caplog.set_level(logging.INFO, "nsqsmart.trace")
    topic = make_topic(redesigned)
    nsqsmart.tracing.enable(topic, rate=0.5)
    try:
        with (
            consume(redesigned, topic, Handled(), positions=True) as consumer,
            nsqsmart.Producer(redesigned.url) as producer,
        ):
            receipts = [
                producer.publish(topic, b"%d" % n, trace=n % 2 == 0, timeout=20) for n in range(20)
            ]
            eventually(lambda: consumer.stats().finished == 20, timeout=20)
    finally:
        nsqsmart.tracing.set_source(None)
    traced = {
        (r.partition, str(r.trace_id), str(r.internal_id), str(r.offset), r.size)
        for r in receipts
        if r.trace_id is not None
    }
    assert len(traced) == 10
    names = ("partition", "nsq_trace_id", "nsq_internal_id", "nsq_disk_offset", "nsq_disk_size")
    lines = [json.loads(each.getMessage()) for each in list(caplog.records) if "{" in each.msg]
    for event in ("received", "started", "finished"):
        found = [tuple(line[name] for name in names) for line in lines if line["event"] == event]
        assert sorted(found) == sorted(traced)


def test_a_misspelt_topic_is_an_error_on_a_redesigned_cluster(redesigned):
    with nsqsmart.Producer(redesigned.url) as producer, pytest.raises(TopicNotExist):
        producer.publish("misspelt", b"x")


def test_a_new_topic_is_made_by_its_first_message_on_an_original_one(original):
    with nsqsmart.Producer(original.url) as producer:
        assert producer.publish(f"new{next(_numbers)}", b"x", timeout=20).partition is None
        with pytest.raises(OrderingNotSupported):
            producer.publish("new", b"x", key="k")


@pytest.mark.long
def test_a_killed_leader_loses_nothing(redesigned):
    topic, handled = make_topic(redesigned, partitions=1, replicas=3), Handled()
    bodies = [b"%d" % number for number in range(600)]
    leader = redesigned.leaders(topic)[0]
    with (
        consume(redesigned, topic, handled) as consumer,
        nsqsmart.Producer(redesigned.url, retry_unanswered=True) as producer,
    ):
        for number, body in enumerate(bodies):
            if number == 200:
                redesigned.kill(leader)
            producer.publish(topic, body, key="k", timeout=90)
        eventually(lambda: set(handled.bodies()) == set(bodies), timeout=60)
        assert consumer.stats().finished >= 1
    redesigned.restart(leader)  # the cluster is for the other tests too
