"""Giving up on a message: it is stored elsewhere before the server forgets it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import fields
from time import monotonic
from typing import Protocol

from nsqsmart.client.messages.message import Message
from nsqsmart.client.messages.results import check_plain, did_not_run
from nsqsmart.client.shared.log_fields import message_fields
from nsqsmart.client.shared.receipt import Receipt
from nsqsmart.config import ClientConfig, ConsumerConfig
from nsqsmart.errors import ClientClosed, ConfigError
from nsqsmart.names import check_topic

log = logging.getLogger("nsqsmart")

_NEVER = 1 << 62
_SHARE = 0.9  # of the time that is left for an answer
_SHORTEST = 0.1


class DeadLetterProducer(Protocol):
    """A Producer, as far as dead letters need one."""

    def publish(self, topic: str, body: bytes, *, timeout: float) -> Receipt:
        """Store *body*; raises unless the server says OK."""

    def close(self, timeout: float) -> None:
        """End its sockets."""


def check_dead_letters(config: ConsumerConfig, topic: str) -> None:
    """Raise ConfigError or TypeError where given-up messages of *topic* would be lost."""
    if config.on_giving_up is not None:
        check_plain("on_giving_up", config.on_giving_up)
    if config.dead_letter_topic is None:
        return
    check_topic(config.dead_letter_topic)
    if config.dead_letter_topic == topic:
        raise ConfigError(
            f"dead_letter_topic is {topic!r}, the topic itself: what was given up would come again"
        )


class DeadLetters:
    """Passes messages on to ``on_giving_up`` or ``dead_letter_topic``, then finishes them.

    *make_producer* makes the producer of the dead letters on first use, for the address of the
    consumer, with the options that it is given.
    """

    def __init__(
        self, config: ConsumerConfig, make_producer: Callable[..., DeadLetterProducer]
    ) -> None:
        self._config = config
        self._make_producer = make_producer
        self._lock = threading.Lock()  # guards the three below
        self._producer: DeadLetterProducer | None = None
        self._closed = False
        self.given_up = 0
        self.most_attempts = config.max_attempts or _NEVER

    def give_up(self, message: Message) -> bool:
        """Whether *message* was passed on and finished; else it is requeued."""
        try:
            where = self._pass_on(message)
        except Exception as error:
            log.exception(
                "%r could not be given up: it is requeued", message, extra=message_fields(message)
            )
            if message._life is not None:
                message._life.error = type(error).__name__
            if not message.answered:
                message.requeue()
            return False
        if message._life is not None:
            message._life.note("gave_up")
        log.warning("%r is given up: %s", message, where, extra=message_fields(message))
        with self._lock:
            self.given_up += 1
        return message.finished if message.answered else message.finish()

    def close(self, deadline: float) -> None:
        """End the producer, if there is one."""
        with self._lock:
            self._closed = True
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=max(0.0, deadline - monotonic()))

    def _pass_on(self, message: Message) -> str:
        """Pass *message* on; raises the error if it was not taken or stored."""
        send, topic = self._config.on_giving_up, self._config.dead_letter_topic
        if send is not None:
            result = send(message)
            if result is False or did_not_run(result):
                raise RuntimeError(f"on_giving_up returned {type(result).__name__}: not taken")
            return "on_giving_up has it"
        if topic is None:
            return "it is not stored elsewhere"
        left = _SHARE * (message.deadline - monotonic())
        timeout = max(_SHORTEST, left)
        receipt = self._get_producer().publish(topic, message.body, timeout=timeout)
        return f"stored in {receipt.topic!r} by {receipt.nsqd}"

    def _get_producer(self) -> DeadLetterProducer:
        if self._producer is None and not self._closed:
            shared = {each.name: getattr(self._config, each.name) for each in fields(ClientConfig)}
            made = self._make_producer(**shared)
            with self._lock:
                used = self._producer is None and not self._closed
                if used:
                    self._producer = made
            if not used:  # another thread's is used, or it was closed
                made.close(timeout=0)
        if (producer := self._producer) is None:
            raise ClientClosed("the Consumer was closed")
        return producer
