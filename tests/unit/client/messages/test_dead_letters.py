"""A given-up message is stored elsewhere before it is finished."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest

from nsqsmart.client.messages.dead_letters import DeadLetters, check_dead_letters
from nsqsmart.client.shared.receipt import Receipt
from nsqsmart.config import ConsumerConfig, ProducerConfig
from nsqsmart.errors import ClientClosed, ConfigError
from tests.unit.client.doubles import FakeRuntime, Life, Source, message_of, raising


class Producer:
    """Notes what it is asked to publish; *error* is raised instead."""

    made: ClassVar[list[Producer]] = []

    def __init__(self, **options: object) -> None:
        self.config = ProducerConfig(**options)
        self.published: list[tuple[str, bytes, float]] = []
        self.closed: list[float] = []
        self.error: Exception | None = None
        Producer.made.append(self)

    def publish(self, topic: str, body: bytes, *, timeout: float) -> Receipt:
        if self.error:
            raise self.error
        self.published.append((topic, body, timeout))
        return Receipt(topic, None, "a:4150", 1)

    def close(self, timeout: float) -> None:
        self.closed.append(timeout)


@pytest.fixture
def producers(monkeypatch) -> list[Producer]:
    monkeypatch.setattr(Producer, "made", [])
    return Producer.made


def begin(**options):
    """One message, and what gives it up."""
    runtime = FakeRuntime(Producer, **options)
    source = Source(runtime=runtime)
    return message_of(source), source, runtime.dead_letters


def test_the_callback_has_it_before_it_is_finished(caplog):
    seen: list[bool] = []
    message, source, dead_letters = begin(
        on_giving_up=lambda message: seen.append(message.answered)
    )
    message._life = Life()
    assert message.skip()
    assert (seen, source.sent, dead_letters.given_up) == ([False], [("FIN",)], 1)
    assert message._life.events == ["gave_up"]
    assert "is given up" in caplog.text


async def coroutine(message) -> None: ...


@pytest.mark.parametrize(
    "callback", [raising(ValueError("oops")), lambda message: False, coroutine]
)
def test_a_callback_that_fails_has_it_requeued_and_said_aloud(callback, caplog):
    message, source, dead_letters = begin(on_giving_up=callback)
    message._life = Life()
    assert message.skip() is False
    assert (source.sent, dead_letters.given_up) == ([("REQ", None, True)], 0)
    assert "could not be given up" in caplog.text
    assert message._life.events == []
    assert message._life.error in {"ValueError", "RuntimeError"}


def test_a_callback_may_answer_for_itself():
    message, source, _ = begin(on_giving_up=lambda message: message.finish())
    assert message.skip() is True
    assert source.sent == [("FIN",)]

    def fail_behind(message) -> None:
        message.requeue(7)
        raise ValueError("afterwards")

    message, source, _ = begin(on_giving_up=fail_behind)
    assert message.skip() is False
    assert source.sent == [("REQ", 7, True)]


def test_nobody_to_have_it_is_fine_where_somebody_skips(caplog):
    message, source, _ = begin()
    assert message.skip()
    assert source.sent == [("FIN",)]
    assert "it is not stored elsewhere" in caplog.text


def test_dead_letters_are_published_within_the_messages_own_time(producers):
    runtime = FakeRuntime(Producer, dead_letter_topic="dead", dial_timeout=1.5, tls_v1=True)
    source = Source(runtime=runtime)
    for _ in range(2):
        assert message_of(source).skip()
    (producer,) = producers
    assert (producer.config.dial_timeout, producer.config.tls_v1) == (1.5, True)
    assert [each[:2] for each in producer.published] == [("dead", b"x")] * 2
    assert all(50 < each[2] < 60 for each in producer.published)
    runtime.dead_letters.close(0.0)
    assert producer.closed == [0.0]


def test_what_cannot_be_published_is_not_finished(producers, caplog):
    runtime = FakeRuntime(Producer, dead_letter_topic="dead")
    source = Source(runtime=runtime)
    message_of(source).skip()
    producers[0].error = ClientClosed("no")
    assert message_of(source).skip() is False
    runtime.dead_letters.close(0.0)
    assert message_of(source).skip() is False
    assert source.sent == [("FIN",), ("REQ", None, True), ("REQ", None, True)]
    assert caplog.text.count("could not be given up") == 2
    assert len(producers) == 1


def test_what_cannot_work_is_refused_when_the_consumer_is_made():
    with pytest.raises(TypeError, match="on_giving_up is an async function"):
        check_dead_letters(ConsumerConfig(on_giving_up=coroutine), "t")
    with pytest.raises(ConfigError, match="'t', the topic itself"):
        check_dead_letters(ConsumerConfig(dead_letter_topic="t"), "t")
    with pytest.raises(ConfigError, match="dead letters"):
        check_dead_letters(ConsumerConfig(dead_letter_topic="dead letters"), "t")
    check_dead_letters(ConsumerConfig(dead_letter_topic="dead"), "t")


def test_without_a_limit_nothing_is_given_up():
    assert DeadLetters(ConsumerConfig(), Producer).most_attempts > 65535


def test_of_two_producers_made_at_once_one_is_used_and_the_other_closed(producers, monkeypatch):
    _, _, dead_letters = begin(dead_letter_topic="dead")
    together, make = threading.Barrier(2), dead_letters._make_producer
    monkeypatch.setattr(
        dead_letters, "_make_producer", lambda **options: (together.wait(10), make(**options))[1]
    )
    with ThreadPoolExecutor(2) as pool:
        used = {pool.submit(dead_letters._get_producer) for _ in range(2)}
    assert {each.result() for each in used} == {each for each in producers if not each.closed}
    assert sorted(len(each.closed) for each in producers) == [0, 1]
