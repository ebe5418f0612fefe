"""The recording producer takes and refuses what the real one does, and never connects."""

from __future__ import annotations

import inspect

import pytest

import nsqsmart
from nsqsmart.errors import ClientClosed, ConfigError, NotSupported, OrderingNotSupported
from nsqsmart.testing.recording import Outbox, Published, RecordingProducer, assert_published


def test_everything_given_is_remembered_in_order() -> None:
    producer = RecordingProducer(alias="audit")
    receipt = producer.publish("orders", b"1", key="c", trace_id=7, headers={"a": 1}, tag="t")
    producer.publish("orders", bytearray(b"2"), delay=1.5)
    producer.publish_json("log", {"a": "é"})
    assert producer.publish_many("orders", [b"3", b"4"], partition=2).count == 2
    assert producer.publish_async("orders", b"5").result(0).topic == "orders"
    assert (receipt.topic, receipt.trace_id, receipt.nsqd) == ("orders", 7, "recorded:0")
    assert producer.outbox == [
        Published("orders", b"1", "c", None, {"a": 1}, "t", 7, "audit"),
        Published("orders", b"2", delay=1.5, alias="audit"),
        Published("log", '{"a":"é"}'.encode(), alias="audit"),
        Published("orders", b"3", alias="audit", partition=2),
        Published("orders", b"4", alias="audit", partition=2),
        Published("orders", b"5", alias="audit"),
    ]
    assert producer.outbox.bodies("log") == ['{"a":"é"}'.encode()]
    assert producer.outbox[2].json() == {"a": "é"}


WRONG = [
    ("publish", ("bad topic", b"x"), {}),
    ("publish", ("orders", "text"), {}),
    ("publish", ("orders", b""), {}),
    ("publish", ("orders", b"x"), {"key": True}),
    ("publish", ("orders", b"x"), {"key": "a", "partition": 1}),
    ("publish", ("orders", b"x"), {"partition": -1}),
    ("publish", ("orders", b"x"), {"trace_id": 1 << 64}),
    ("publish", ("orders", b"x"), {"trace_id": "7"}),
    ("publish", ("orders", b"x"), {"headers": {"##x": 1}}),
    ("publish", ("orders", b"x"), {"headers": [1]}),
    ("publish", ("orders", b"x"), {"tag": ""}),
    ("publish", ("orders", b"x"), {"delay": -1}),
    ("publish", ("orders", b"x"), {"timeout": "1"}),
    ("publish", ("orders", b"x"), {"keyy": "a"}),
    ("publish_json", ("orders", float("nan")), {}),
    ("publish_json", ("orders", object()), {}),
    ("publish_many", ("orders", []), {}),
    ("publish_many", ("orders", [b"x", ""]), {}),
    ("publish_many", ("orders", b"x"), {}),
    ("publish_many", ("orders", [b"x"]), {"key": 1.5}),
    ("publish_async", ("orders", ""), {}),
]


@pytest.mark.parametrize(("method", "given", "named"), WRONG)
def test_it_refuses_what_a_producer_refuses_in_the_same_words(method, given, named) -> None:
    recording = RecordingProducer()
    said = []
    # No server listens there: what passes the checks fails with a PublishError instead.
    with nsqsmart.Producer("nsq://127.0.0.1:1", publish_timeout=0.1) as real:
        for producer in (real, recording):
            with pytest.raises((TypeError, ConfigError)) as caught:
                getattr(producer, method)(*given, **named)
            said.append((type(caught.value), str(caught.value).replace("Recording", "")))
    assert said[0] == said[1]
    assert recording.outbox == []


def test_it_has_the_methods_of_a_producer_and_reaches_nobody() -> None:
    producer = RecordingProducer()
    assert repr(producer) == "<RecordingProducer default, 0 published>"
    assert producer.ping() == {}
    assert producer.stats() == {}
    assert producer.flush(0)
    producer.warm("orders")
    assert producer.health().state == "idle"
    with pytest.raises(RuntimeError, match="no connection"):
        nsqsmart.Producer.publish(producer, "orders", b"x")


def test_after_close_it_refuses() -> None:
    with RecordingProducer() as producer:
        producer.publish("orders", b"x")
    with pytest.raises(ClientClosed):
        producer.publish("orders", b"x")
    with pytest.raises(ClientClosed):
        producer.ping()
    assert len(producer.outbox) == 1


def test_several_can_share_an_outbox() -> None:
    outbox = Outbox()
    RecordingProducer(outbox, alias="a").publish("orders", b"1")
    RecordingProducer(outbox, alias="b").publish("orders", b"2")
    assert [each.alias for each in outbox] == ["a", "b"]


def test_a_traced_one_has_an_id() -> None:
    producer = RecordingProducer()
    receipt = producer.publish("orders", b"1", trace=True)
    assert receipt.trace_id
    assert producer.outbox[0].trace_id == receipt.trace_id


def test_headers_that_change_later_were_recorded_as_they_were() -> None:
    producer, headers = RecordingProducer(), {"a": 1}
    producer.publish("orders", b"1", headers=headers)
    headers["a"] = 2
    assert producer.outbox[0].headers == {"a": 1}


def test_check_takes_the_arguments_of_publish() -> None:
    named = list(inspect.signature(nsqsmart.Producer.publish).parameters)[1:]
    assert list(inspect.signature(nsqsmart.Producer.check).parameters) == named
    assert nsqsmart.Producer.check("orders", bytearray(b"x"), key=1, timeout=2) == b"x"
    assert nsqsmart.Producer.check_many("orders", [b"x", b"y"], key=1) == (b"x", b"y")


@pytest.fixture
def outbox() -> Outbox:
    producer = RecordingProducer()
    producer.publish("orders", b'{"id":1,"to":"a"}', key="a")
    producer.publish("orders", b'{"id":2,"to":"b"}', key="b")
    producer.publish("log", b"plain words")
    return producer.outbox


@pytest.mark.parametrize(
    ("topic", "wanted", "count"),
    [
        ("orders", {}, 2),
        ("orders", {"contains": {"id": 1}}, 1),
        ("orders", {"contains": {"id": 2, "to": "b"}, "key": "b"}, 1),
        ("orders", {"contains": '"id"'}, 2),
        ("orders", {"contains": b'"id"', "times": 2}, 2),
        ("orders", {"body": b'{"id":1,"to":"a"}'}, 1),
        ("log", {"contains": "plain"}, 1),
        ("orders", {"key": "c", "times": 0}, 0),
        ("log", {"contains": {"id": 1}, "times": 0}, 0),
        ("orders", {"contains": {"id": 1, "to": "b"}, "times": 0}, 0),
        ("nowhere", {"times": 0}, 0),
    ],
)
def test_a_match_is_returned(outbox, topic, wanted, count) -> None:
    assert len(assert_published(outbox, topic, **wanted)) == count


@pytest.mark.parametrize(
    ("topic", "wanted", "words"),
    [
        ("nowhere", {}, "no message matches topic='nowhere': expected at least 1"),
        ("orders", {"contains": {"id": 9}}, r"contains=\{'id': 9\}: expected at least 1"),
        ("orders", {"contains": {"none": None}}, "no message matches"),
        ("orders", {"key": "a", "times": 2}, "1 message matches .*key='a': expected exactly 2"),
        ("orders", {"times": 0}, "2 messages match topic='orders': expected exactly 0"),
    ],
)
def test_a_failure_tells_what_was_published(outbox, topic, wanted, words) -> None:
    with pytest.raises(AssertionError, match=words) as caught:
        assert_published(outbox, topic, **wanted)
    assert "published were 3:" in str(caught.value)
    assert "default: orders key='b' b'{\"id\":2" in str(caught.value)


def test_a_failure_stays_readable() -> None:
    with pytest.raises(AssertionError, match="nothing was published"):
        assert_published([], "orders")
    many = [Published("orders", b"x" * 1000)] * 25
    with pytest.raises(AssertionError, match="and 5 more") as caught:
        assert_published(many, "log")
    assert len(str(caught.value)) < 5000


@pytest.mark.parametrize(
    ("dialect", "arguments", "error"),
    [
        ("original", {"key": "k"}, OrderingNotSupported),
        ("original", {"partition": 1}, OrderingNotSupported),
        ("original", {"headers": {"a": 1}}, NotSupported),
        ("original", {"tag": "t"}, NotSupported),
        ("original", {"trace": True}, NotSupported),
        ("original", {"trace_id": 0}, NotSupported),
        ("redesigned", {"delay": 1}, NotSupported),
    ],
)
def test_it_refuses_what_servers_of_a_dialect_do(dialect, arguments, error):
    with RecordingProducer(dialect=dialect) as producer:
        with pytest.raises(error):
            producer.publish("orders", b"1", **arguments)
        assert producer.outbox == []
    with RecordingProducer() as producer:
        producer.publish("orders", b"1", **arguments)
        assert len(producer.outbox) == 1


def test_best_effort_takes_a_key_for_original_servers():
    with RecordingProducer(dialect="original", ordering="best-effort") as producer:
        producer.publish_many("orders", [b"1", b"2"], key="k")
        assert [each.key for each in producer.outbox] == ["k", "k"]
        with pytest.raises(OrderingNotSupported):
            producer.publish("orders", b"1", partition=1)


def test_a_dialect_that_there_is_none_of():
    with pytest.raises(ConfigError, match="'original' and 'redesigned'"):
        RecordingProducer(dialect="old")
