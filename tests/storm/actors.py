"""Who publishes and who consumes in a storm; the same in this process and in one of its own."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator
from itertools import count
from time import monotonic
from typing import Any, Protocol

import nsqsmart
from nsqsmart.errors import PublishError
from tests.integration.load import keys_of
from tests.sites import CHANNEL
from tests.storm.checker import STORED
from tests.storm.notes import Notes

ORDERED, PLAIN = "storm-ordered", "storm-plain"
_STATE_EVERY = 0.25
# Every so many-th message has so many seconds.
_HASTY, _HASTE = 8, 0.3
_TO_END = 30.0

Spec = dict[str, Any]
"""What an actor is told, fit for JSON: role, name, url, topics, partitions (of each), options,
pace and limit (seconds).
"""


class Actor(Protocol):
    """Works from when it is made until it is stopped."""

    def stop(self) -> None:
        """End in order."""


class Producing:
    """Publishes numbered messages: of a few keys, without a key, and by publish_async.

    What fails is not tried again: the next message has the next number.
    """

    def __init__(self, spec: Spec, notes: Notes) -> None:
        self._name, self._pace, self._limit = spec["name"], spec["pace"], spec["limit"]
        self._notes = notes
        self._stop = threading.Event()
        self._producer = nsqsmart.Producer(spec["url"], **spec["options"])
        streams: list[Callable[[], None]] = [self._unkeyed, self._asynchronous]
        if ORDERED in spec["topics"]:
            # One for each partition, whatever the name.
            partitions = spec["partitions"]
            keys = [keys_of(each, partitions, self._name)[0] for each in range(partitions)]
            streams += [self._keyed(key) for key in keys]
        run = self._watched
        self._threads = [threading.Thread(target=run(each), daemon=True) for each in streams]
        for thread in self._threads:
            thread.start()

    def _watched(self, stream: Callable[[], None]) -> Callable[[], None]:
        """What a call may not raise is told."""

        def run() -> None:
            try:
                stream()
            except Exception as error:
                self._notes.note("error", who=self._name, error=repr(error))
                raise

        return run

    def _bodies(self, topic: str, stream: str, key: str | None) -> Iterator[tuple[str, float]]:
        """Each with its timeout, which now and then is too short for a fault."""
        for number in count():
            if self._stop.wait(self._pace):
                return
            # The end mark: no body is the beginning of another.
            body = f"{self._name}/{stream}/{number};"
            limit = self._limit if number % _HASTY else _HASTE
            self._notes.note("sent", id=body, topic=topic, key=key, limit=limit)
            yield body, limit

    def _keyed(self, key: str) -> Callable[[], None]:
        def run() -> None:
            for body, limit in self._bodies(ORDERED, key, key):
                self._call(body, ORDERED, timeout=limit, key=key)

        return run

    def _unkeyed(self) -> None:
        for body, limit in self._bodies(PLAIN, "plain", None):
            self._call(body, PLAIN, timeout=limit)

    def _call(self, body: str, topic: str, **more: Any) -> None:
        began = monotonic()
        try:
            told = self._producer.publish(topic, body.encode(), **more)
        except PublishError as error:
            self._failed(body, error, began)
        else:
            self._stored(body, told, began)

    def _asynchronous(self) -> None:
        for body, limit in self._bodies(PLAIN, "async", None):
            self._submit(body, limit)

    def _submit(self, body: str, limit: float) -> None:
        began = monotonic()

        def settled(pending: nsqsmart.Pending) -> None:
            try:
                told = pending.result(0)
            except PublishError as error:
                self._failed(body, error, began)
            else:
                self._stored(body, told, began)

        try:
            pending = self._producer.publish_async(PLAIN, body.encode(), timeout=limit)
        except PublishError as error:
            self._failed(body, error, began)
        else:
            pending.add_done_callback(settled)

    def _stored(self, body: str, told: nsqsmart.Receipt, began: float) -> None:
        self._notes.note("done", id=body, outcome=STORED, nsqd=told.nsqd, began=began)

    def _failed(self, body: str, error: PublishError, began: float) -> None:
        outcome = str(error.outcome)
        self._notes.note("done", id=body, outcome=outcome, nsqd="", began=began, error=str(error))

    def stop(self) -> None:
        """No more messages; returns when all are settled."""
        self._stop.set()
        for thread in self._threads:
            thread.join(self._limit + _TO_END)
        self._producer.flush(self._limit)
        self._producer.close()


class Consuming:
    """Consumes every topic; some messages fail once, some take a while."""

    def __init__(self, spec: Spec, notes: Notes) -> None:
        self._name, self._notes = spec["name"], notes
        self._stop = threading.Event()
        self._seen: set[bytes] = set()
        self._consumers = {
            topic: nsqsmart.Consumer(
                topic, CHANNEL, self._handler(topic), address=spec["url"], **spec["options"]
            )
            for topic in spec["topics"]
        }
        for consumer in self._consumers.values():
            consumer.start()
        self._teller = threading.Thread(target=self._tell, daemon=True)
        self._teller.start()

    def _handler(self, topic: str) -> Callable[[nsqsmart.Message], None]:
        def handle(message: nsqsmart.Message) -> None:
            place = message.nsqd if message.partition is None else str(message.partition)
            where = {"nsqd": message.nsqd, "place": place, "message": message.id.hex()}
            who = f"{self._name} {topic}"
            self._notes.note("got", who=who, topic=topic, id=message.body.decode(), **where)
            lot = zlib.crc32(message.body) % 100
            first = message.body not in self._seen
            self._seen.add(message.body)
            if lot < 2 and first:
                raise nsqsmart.Requeue(0, backoff=False)
            if lot < 8:
                self._stop.wait(0.02 * lot)
            done = message.finish()
            self._notes.note("finished", who=who, ok=done, **where)

        return handle

    def _tell(self) -> None:
        while not self._stop.wait(_STATE_EVERY):
            for topic, consumer in self._consumers.items():
                runtime = consumer._runtime
                live = [each.target for each in runtime.snapshot() if each.live] if runtime else []
                places = [t.name if t.partition is None else str(t.partition) for t in live]
                self._notes.note("state", who=f"{self._name} {topic}", topic=topic, places=places)

    def stop(self) -> None:
        """Drain and end."""
        self._stop.set()
        self._teller.join(_TO_END)
        for topic, consumer in self._consumers.items():
            consumer.close(_TO_END)
            self._notes.note("gone", who=f"{self._name} {topic}")


ROLES: dict[str, Callable[[Spec, Notes], Actor]] = {"producer": Producing, "consumer": Consuming}
