"""What ``copy`` does with a message: choose, publish, and finish it when that was answered."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from nsqsmart import Message, Pending, Producer, PublishError
from nsqsmart.cli.ending import Ending, keep
from nsqsmart.cli.progress import Bar
from nsqsmart.errors import ConfigError, MessageRejected

log = logging.getLogger("nsqsmart.cli")


class Kept(NamedTuple):
    """What of a message is published with its body."""

    partition: bool = False
    trace_id: bool = False
    headers: bool = False

    def arguments(self, message: Message) -> dict[str, Any]:
        """For :meth:`nsqsmart.Producer.publish_async`."""
        found: dict[str, Any] = {}
        if self.partition:
            found["partition"] = message.partition
        if self.trace_id and message.trace_id:
            found["trace_id"] = message.trace_id
        if self.headers:
            # Names of the server's own are its own to write.
            own = {name: value for name, value in message.headers.items() if name[:2] != "##"}
            found |= {"headers": own or None, "tag": message.tag}
        return found


class Filter(NamedTuple):
    """Which JSON objects pass, and what of them; everything does without a *field*, *fields*."""

    field: str | None = None
    value: str | None = None
    fields: tuple[str, ...] = ()

    def apply(self, body: bytes) -> bytes | None:
        """What is to be published, None for nothing."""
        if self.field is None and not self.fields:
            return body
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict) or not self._passes(document):
            return None
        if not self.fields:
            return body
        chosen = {name: document[name] for name in self.fields if name in document}
        # As Go writes a map: sorted, and without blanks.
        return json.dumps(
            chosen, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        ).encode()

    def _passes(self, document: dict[str, Any]) -> bool:
        if self.field is None:
            return True
        if self.field not in document:
            return False
        found = document[self.field]
        if self.value is None or found == self.value:
            return True
        if isinstance(found, str | bool) or not isinstance(found, int | float):
            return False
        try:
            return float(found) == float(self.value)
        except ValueError:
            return False


class Copier:
    """Copies batches; counts what it did. Shared by the consumers of all topics."""

    def __init__(
        self,
        producer: Producer,
        kept: Kept,
        chooses: Filter,
        ending: Ending,
        bar: Bar,
        most: int | None,
    ) -> None:
        self._producer = producer
        self._kept = kept
        self._filter = chooses
        self._ending = ending
        self._bar = bar
        self._most = most
        self._lock = threading.Lock()  # guards the four below
        self._begun = 0
        self._beyond: list[tuple[str, Message]] = []
        self.copied = 0
        self.left_out = 0

    def handler(self, topic: str) -> Callable[[list[Message]], None]:
        """What gets batches for *topic*."""

        def copy(messages: list[Message]) -> None:
            self._ending.begin()
            if self._most is not None:
                # Which of them are beyond -n is seen below, and may change when others fail.
                keep(messages)
            chosen = self._choose([(topic, message) for message in messages])
            while chosen:
                pending = [(each, self._publish(to, each)) for to, each in chosen]
                for message, sent in pending:
                    self._settle(message, sent)
                # In the place of those that failed.
                chosen = self._choose([])

        return copy

    def _choose(self, more: list[tuple[str, Message]]) -> list[tuple[str, Message]]:
        """Which of *more*, and of those kept before, are to be copied now; the others are kept."""
        if self._most is None:
            return more
        with self._lock:
            waiting = [(to, each) for to, each in self._beyond + more if not each.expired]
            left = self._most - self._begun
            chosen, self._beyond = waiting[:left], waiting[left:]
            self._begun += len(chosen)
        return chosen

    def _publish(self, topic: str, message: Message) -> Pending | PublishError | None:
        """On its way, refused, or left out."""
        body = self._filter.apply(message.body)
        if body is None:
            return None
        try:
            return self._producer.publish_async(topic, body, **self._kept.arguments(message))
        except PublishError as error:
            return error
        except (ConfigError, TypeError) as error:
            # Others write headers and tags that a Producer does not. Out of here it would be the
            # whole batch that failed, and what was sent of it would be sent again and again.
            place = f"topic {message.topic!r}, partition {message.partition}"
            return MessageRejected(f"message {message.internal_id} of {place}: {error}")

    def _settle(self, message: Message, sent: Pending | PublishError | None) -> None:
        try:
            if isinstance(sent, PublishError):
                raise sent
            if sent is not None:
                sent.result()
        except PublishError as error:
            self._fail(message, error)
            return
        message.finish()
        with self._lock:
            self.copied += sent is not None
            self.left_out += sent is None
            done = self.copied + self.left_out == self._most
        self._bar.advance(1)
        if done:
            self._ending.end()

    def _fail(self, message: Message, error: PublishError) -> None:
        with self._lock:
            self._begun -= 1
        if not error.retryable:
            # It would come back for ever, and hold up all of an ordered partition.
            self._ending.end(error)
            keep([message])
            return
        log.warning("not copied, it comes again: %s", error)
        message.requeue()
