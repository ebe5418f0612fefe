"""Letters are sent in order, together where they may be, and every one is accounted for."""

from __future__ import annotations

from time import monotonic

import pytest

from nsqsmart import PublishError
from nsqsmart.contrib.shared import sending
from nsqsmart.contrib.shared.sending import Dispatch, Letter
from nsqsmart.errors import DiscoveryError, MessageRejected, PublishTimeout


class Producer:
    """Notes commands; fails for bodies in *failing*, and where *partitions* has no topic."""

    def __init__(self, failing=None, partitions=None) -> None:
        self.failing = failing or {}
        self.partitions = {"t": 2} if partitions is None else partitions
        self.sent: list[tuple[object, list[bytes]]] = []
        self.asked = 0
        self.timeouts: list[float] = []

    def partition_of(self, topic, key, *, timeout):
        self.asked += 1
        if topic not in self.partitions:
            raise DiscoveryError("no lookup answers")
        count = self.partitions[topic]
        return None if count is None else int(key) % count

    def publish(self, topic, body, **arguments):
        self.publish_many(topic, [body], **arguments)

    def publish_many(self, topic, bodies, *, split=False, timeout, **arguments):
        self.timeouts.append(timeout)
        for body in bodies:
            if body in self.failing:
                raise self.failing[body]
        place = arguments.get("partition", arguments.get("key"))
        self.sent.append((place, list(bodies)))


class Leaderless(Producer):
    """Spends all the time it is given on bodies in *failing*; *clock* tells it."""

    def __init__(self, *failing: bytes) -> None:
        super().__init__(dict.fromkeys(failing, PublishTimeout("no leader")))
        self.now = 1000.0

    def clock(self) -> float:
        return self.now

    def publish_many(self, topic, bodies, *, timeout, **arguments):
        if self.failing.keys() & set(bodies):
            self.now += timeout
        super().publish_many(topic, bodies, timeout=timeout, **arguments)


@pytest.fixture
def leaderless(monkeypatch):
    producer = Leaderless(b"a", b"c")
    monkeypatch.setattr(sending, "monotonic", producer.clock)
    return producer


def letters(*given: tuple[str | None, bytes], topic="t", **arguments) -> list[Letter]:
    return [Letter.write(topic, body, "default", key=key, **arguments) for key, body in given]


def dispatch(producer, written, seconds=10.0) -> Dispatch:
    made = Dispatch(producer, written, monotonic() + seconds)
    made.run()
    return made


def failed(made: Dispatch) -> list[bytes]:
    assert made.waiting == {}
    return [each.letter.body for each in made.failures]


def test_one_command_for_each_partition_in_order():
    producer = Producer()
    written = letters(
        ("0", b"a"), ("1", b"b"), ("2", b"c"), (None, b"d"), ("3", b"e"), (None, b"f")
    )
    assert failed(dispatch(producer, written)) == []
    assert producer.sent == [(0, [b"a", b"c"]), (1, [b"b", b"e"]), (None, [b"d", b"f"])]


def test_one_key_is_named_and_not_its_partition():
    producer = Producer()
    dispatch(producer, letters(("4", b"a"), ("4", b"b")))
    assert producer.sent == [("4", [b"a", b"b"])]


def test_where_there_are_no_partitions_keys_stay_apart():
    producer = Producer(partitions={"t": None})
    dispatch(producer, letters(("0", b"a"), ("2", b"b"), ("0", b"c")))
    assert producer.sent == [("0", [b"a", b"c"]), ("2", [b"b"])]


def test_a_failure_ends_its_partition_and_no_other():
    error = PublishTimeout("too late")
    producer = Producer({b"a": error})
    written = letters(("0", b"a"), ("1", b"b")) + letters(("0", b"c"), trace=True)
    made = dispatch(producer, written)
    assert failed(made) == [b"a", b"c"]
    assert {each.error for each in made.failures} == {error}
    assert producer.sent == [("1", [b"b"])]


def test_what_is_refused_fails_alone():
    producer = Producer({b"b": MessageRejected("too large")})
    assert failed(dispatch(producer, letters(("0", b"a"), ("2", b"b"), ("4", b"c")))) == [b"b"]
    assert producer.sent == [("0", [b"a"]), ("4", [b"c"])]


def test_a_failure_among_those_that_are_tried_alone_ends_the_rest():
    failing = {b"b": MessageRejected("too large"), b"c": PublishTimeout("too late")}
    producer = Producer(failing)
    written = letters(("0", b"a"), ("0", b"b"), ("0", b"c"), ("0", b"d"))
    assert failed(dispatch(producer, written)) == [b"b", b"c", b"d"]
    assert producer.sent == [("0", [b"a"])]


def test_what_was_stored_before_a_failure_counts():
    error = PublishError("the second part failed")
    error.accepted = 2
    producer = Producer({b"c": error})
    assert failed(dispatch(producer, letters(*[("0", b"%c" % c) for c in b"abcd"]))) == [b"c", b"d"]


def test_without_time_nothing_is_tried():
    producer = Producer()
    made = dispatch(producer, letters(("0", b"a"), (None, b"b")), seconds=-1)
    assert sorted(failed(made)) == [b"a", b"b"]
    assert producer.sent == []
    assert all(isinstance(each.error, PublishTimeout) for each in made.failures)


def test_the_time_of_a_letter_is_within_that_of_all():
    producer = Producer()
    dispatch(producer, letters((None, b"a"), timeout=0.5) + letters((None, b"b"), timeout=60.0))
    short, long = producer.timeouts
    assert short == 0.5
    assert 5 < long <= 10


def test_a_topic_without_a_leader_leaves_the_others_their_time(leaderless):
    topics = zip("pqrs", (b"a", b"b", b"c", b"d"), strict=True)
    written = [letter for topic, body in topics for letter in letters((None, body), topic=topic)]
    made = Dispatch(leaderless, written, leaderless.now + 12)
    made.run()
    assert failed(made) == [b"a", b"c"]
    assert [bodies for _, bodies in leaderless.sent] == [[b"b"], [b"d"]]
    # What b did not need of its 3 s is for those behind it.
    assert leaderless.timeouts == [3, 3, 4.5, 4.5]


def test_the_time_of_a_letter_is_within_the_share_of_its_lane(leaderless):
    written = letters(("0", b"a"), timeout=0.5) + letters(("1", b"c"), timeout=60.0)
    written += letters((None, b"b"), timeout=60.0)
    made = Dispatch(leaderless, written, leaderless.now + 10.5)
    made.run()
    assert failed(made) == [b"a", b"c"]
    assert leaderless.timeouts == [0.5, 5, 5]


def test_lookups_that_do_not_answer_are_asked_once_for_a_topic():
    producer = Producer(partitions={"t": 2})
    written = letters(("0", b"a"), ("1", b"b"), topic="lost") + letters(("0", b"c"))
    assert failed(dispatch(producer, written)) == [b"a", b"b"]
    assert producer.asked == 2
    assert producer.sent == [("0", [b"c"])]


@pytest.mark.parametrize("alone", [{"delay": 1.0}, {"trace_id": 7}, {"tag": "t"}])
def test_what_a_batch_cannot_say_goes_alone(alone):
    producer = Producer()
    written = letters(("0", b"a")) + letters(("0", b"b"), ("0", b"c"), **alone)
    assert failed(dispatch(producer, written + letters(("0", b"d"), ("2", b"e")))) == []
    assert [bodies for _, bodies in producer.sent] == [[b"a"], [b"b"], [b"c"], [b"d", b"e"]]


def test_headers_that_differ_keep_letters_apart():
    producer = Producer()
    one, other = (letters(("0", b"%d" % n), ("0", b"x"), headers={"n": n}) for n in range(2))
    dispatch(producer, one + other)
    assert [bodies for _, bodies in producer.sent] == [[b"0", b"x"], [b"1", b"x"]]
