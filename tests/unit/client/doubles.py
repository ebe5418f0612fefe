"""Test doubles of a consumer and its subscription, around the code that handles messages."""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import copy
from time import monotonic

from nsqsmart.client.messages.checked_out import CheckedOut
from nsqsmart.client.messages.dead_letters import DeadLetters
from nsqsmart.client.messages.message import Message, ReadBatch
from nsqsmart.config import ConsumerConfig
from nsqsmart.names import Address
from nsqsmart.policy.answers.lookup import Node
from nsqsmart.policy.topology import Target

ADDRESS = Address("a", 4150)


class FakeRuntime:
    """Stands for the consumer."""

    def __init__(
        self, make_producer: Callable[..., object] | None = None, **options: object
    ) -> None:
        self.draining = False
        self.watching = False
        self.starved = False
        self.results: list[bool] = []
        self.judged: list[Message] = []
        self.fatal: list[BaseException] = []
        self.checked_out = CheckedOut(self._on_success)
        self.dead_letters = DeadLetters(ConsumerConfig(**options), make_producer)

    def is_starved(self) -> bool:
        return self.starved

    def _on_success(self, message: Message) -> None:
        if self.watching:
            self.on_result(message, ok=True)

    def on_result(self, message: Message, *, ok: bool) -> None:
        self.results.append(ok)
        self.judged.append(message)

    def on_fatal(self, error: BaseException) -> None:
        self.fatal.append(error)


class Source:
    """Stands for a subscription; *late* refuses every answer."""

    topic, channel = "t", "c"
    target = Target.at(Node(ADDRESS, ADDRESS), 3)
    msg_timeout = 60.0
    max_msg_timeout = 900.0

    def __init__(self, ordering: object = None, runtime: FakeRuntime | None = None) -> None:
        self.heard_at = monotonic()
        self.process = os.getpid()
        self.ordering = ordering
        self.runtime = runtime
        self.late = False
        self.live = True
        self.forgotten: list[Message] = []
        self.sent: list[tuple[object, ...]] = []
        self.on_send: Callable[[], object] = lambda: None

    def _take(self, *answer: object) -> bool:
        self.on_send()
        if not self.late:
            self.sent.append(answer)
        return not self.late

    def finish(self, message: Message) -> bool:
        return self._take("FIN")

    def ack(self, message_id: bytes) -> bool:
        return self._take("FIN")

    def requeue(self, message: Message, delay: float | None, *, backoff: bool) -> bool:
        if backoff and self.runtime:
            self.runtime.on_result(message, ok=False)
        return self._take("REQ", delay, backoff)

    def touch(self, message: Message) -> bool:
        return self._take("TOUCH")

    def send_requeue(self, message: Message, delay: float) -> None:
        self.sent.append(("REQ now", delay))

    def hold(self, message: Message) -> CheckedOut:
        self.runtime.checked_out.take(message)
        return self.runtime.checked_out

    def give_up(self, message: Message) -> bool:
        return self.runtime.dead_letters.give_up(message)

    def stray(self, message: Message) -> None:
        self.forgotten.append(message)

    def forget(self, message: Message) -> None:
        self.forgotten.append(message)


class FakeOrdering:
    """Notes of whether each message that ended was finished."""

    def __init__(self) -> None:
        self.ended: list[bool] = []

    def done(self, message: Message, *, finished: bool) -> None:
        self.ended.append(finished)


class Life:
    """Notes of what would be logged, and with which error."""

    def __init__(self) -> None:
        self.error: str | None = None
        self.events: list[str] = []

    def note(self, event: str) -> None:
        self.events.append(event)


def expire(message: Message) -> None:
    """Its time is up; that of what came with it is not."""
    message._read_batch = copy(message._read_batch)
    message._read_batch.deadline -= 61


def message_of(source: Source, attempts: int = 1) -> Message:
    ack = None if source.ordering else source.ack
    return Message(ReadBatch(source, ack), 1, attempts, bytes(16), b"x")


def raising(error: BaseException) -> Callable[[object], None]:
    """A handler that fails."""

    def handler(_given: object) -> None:
        raise error

    return handler
