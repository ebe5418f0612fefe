"""The history sees what is lost, invented, doubled and out of order."""

from __future__ import annotations

import threading

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import MessageRejected, Outcome, PublishFailed
from nsqsmart.testing.history import History, Inversion, inversions


def played(*, consumed, sent="abcd", key="k"):
    """*sent* is acknowledged in order, *consumed* comes."""
    history = History()
    for item in sent:
        history.sent(item, key)
        history.acknowledged(item)
    for item in consumed:
        history.consumed(item)
    return history


def test_a_history_as_promised():
    history = played(consumed="abcd")
    history.check(most_duplicates=0)
    assert str(history) == (
        "4 acknowledged, 4 deliveries: 0 lost, 0 copies, 0 never sent, 0 out of order"
    )
    assert (history.published, history.deliveries, history.lost()) == (4, 4, [])


@pytest.mark.parametrize(
    ("consumed", "complaint"),
    [
        ("ad", "2 lost: b, c"),
        ("abcdx", "1 never sent: x"),
        ("bacd", "1 out of order: 'k': 'a' after 'b'"),
        ("dcba", "3 out of order: 'k': 'c' after 'd', 'k': 'b' after 'd', 'k': 'a' after 'd'"),
        ("abacdd", "2 copies, more than 1"),
    ],
)
def test_what_was_not_promised_is_named(consumed, complaint):
    with pytest.raises(AssertionError, match=complaint):
        played(consumed=consumed).check(most_duplicates=1)


def test_copies_may_come_late_and_any_number_of_them():
    history = played(consumed="aabcabdab")
    history.check()
    assert history.duplicates() == {"a": 4, "b": 3}


def test_without_a_key_there_is_no_order():
    played(consumed="dbca", key=None).check()
    with pytest.raises(AssertionError):
        played(consumed="dbca").check()
    played(consumed="dbca").check(ordered=False)


def test_what_was_refused_for_certain_must_not_come():
    history = History()
    for item in "ab":
        history.sent(item)
    history.refused("a")
    history.consumed("b")
    history.check()
    history.consumed("a")
    assert history.phantoms() == ["a"]
    history.sent("a")
    assert history.phantoms() == []


def test_what_was_never_acknowledged_is_not_lost():
    history = History()
    history.sent("a")
    history.check()
    assert history.wait(0)


def test_waiting_ends_with_the_last_one():
    history = History()
    history.acknowledged("a")
    assert not history.wait(0.01)
    other = threading.Timer(0.05, lambda: history.consumed("a"))
    other.start()
    assert history.wait(10)
    other.join()


def test_inversions_of_several_keys():
    told = [("x", 1), ("y", 5), ("x", 3), ("x", 1), ("x", 2), ("y", 4)]
    assert inversions(told) == [Inversion("x", 2, 3), Inversion("y", 4, 5)]


@pytest.fixture
def cluster():
    with Cluster() as made:
        made.create_topic("t", partitions=2, ordered=True, multi_part=True)
        made.create_channel("t", "c")
        yield made


def test_a_producer_and_a_consumer_are_noted(cluster):
    history = History()
    handled = []
    with (
        nsqsmart.Producer(cluster.url) as producer,
        nsqsmart.Consumer(
            "t", "c", history.handler(lambda m: handled.append(m.body)), address=cluster.url
        ),
    ):
        for number in range(20):
            history.publish(producer, "t", b"%d" % number, key=f"key-{number % 3}")
        assert history.wait(10)
    history.check(most_duplicates=0)
    assert len(handled) == history.published == 20


def test_failures_are_noted_by_their_outcome(cluster):
    history = History()
    with nsqsmart.Producer(cluster.url) as producer:
        producer.publish("t", b"warm")
        cluster.faults.add(faults.on("PUB").reply("E_BAD_MESSAGE"))
        with pytest.raises(MessageRejected):
            history.publish(producer, "t", b"refused", key="k")
        cluster.faults.add(faults.on("PUB").store_then_reset())
        with pytest.raises(PublishFailed) as caught:
            history.publish(producer, "t", b"uncertain", key="k")
        assert caught.value.outcome is Outcome.UNCERTAIN
    assert history.published == 0
    for body in (b"refused", b"uncertain"):
        history.consumed(body)
    assert history.phantoms() == [b"refused"]
