"""What the tests of the Consumer share: notes of what was handled, and the servers' own view."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections import Counter, defaultdict
from typing import Any

import pytest

import nsqsmart
from nsqsmart.client.consuming.runtime import RunningConsumer
from nsqsmart.embedded import Cluster
from nsqsmart.net.write_buffer import WriteBuffer
from tests.helpers import eventually


class Handled:
    """A handler that notes every message, in the order in which it saw them."""

    def __init__(self) -> None:
        self.messages: list[nsqsmart.Message] = []
        self.threads: set[str] = set()

    def __call__(self, message: nsqsmart.Message) -> None:
        self.threads.add(threading.current_thread().name)
        self.messages.append(message)

    def bodies(self) -> list[bytes]:
        return [message.body for message in list(self.messages)]

    def counts(self) -> Counter[bytes]:
        return Counter(self.bodies())


def publish(cluster: Cluster, *bodies: bytes, topic: str = "t", **arguments: Any) -> None:
    """Every body as one message, one after another."""
    with nsqsmart.Producer(cluster.url) as producer:
        for body in bodies:
            producer.publish(topic, body, timeout=10, **arguments)


def numbered(count: int, prefix: bytes = b"") -> list[bytes]:
    return [prefix + b"%d" % number for number in range(count)]


def channels(cluster: Cluster, topic: str = "t", channel: str = "c") -> list[dict[str, Any]]:
    """What every running nsqd says of the channel."""
    found = []
    for nsqd in cluster.nsqds:
        if not nsqd.listening:
            continue
        url = "http://{}:{}/stats?format=json".format(*nsqd.http_address)
        with urllib.request.urlopen(url, timeout=5) as answer:
            document = json.loads(answer.read())
        for each in document.get("data", document)["topics"]:
            if each["topic_name"] == topic:
                found += [one for one in each["channels"] if one["channel_name"] == channel]
    return found


def unfinished(cluster: Cluster, topic: str = "t", channel: str = "c") -> int:
    """Messages that wait, are in flight or deferred."""
    keys = ("depth", "in_flight_count", "deferred_count")
    return sum(one[key] for one in channels(cluster, topic, channel) for key in keys)


def all_finished(cluster: Cluster, topic: str = "t", channel: str = "c") -> None:
    """Wait until the servers hold nothing for the channel any more."""
    eventually(lambda: unfinished(cluster, topic, channel) == 0, what="an empty channel")


class RdyWatch:
    """What RDY every connection was told last, and whether all had more than they may together."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.told: list[int] = []
        self.excess: list[tuple[int, list[int]]] = []
        self._lock = threading.Lock()
        self._outboxes: dict[RunningConsumer, set[WriteBuffer]] = defaultdict(set)
        collect = WriteBuffer._collect

        def watching(write_buffer: WriteBuffer) -> bytes:
            before = write_buffer.rdy_sent
            data = collect(write_buffer)
            if write_buffer.rdy_sent != before:
                self._note(write_buffer, raised=write_buffer.rdy_sent > before)
            return data

        patch.setattr(WriteBuffer, "_collect", watching)

    def _note(self, write_buffer: WriteBuffer, *, raised: bool) -> None:
        runtime = write_buffer._on_dirty.__self__
        with self._lock:
            mine = self._outboxes[runtime]
            mine -= {each for each in mine if each.broken}
            mine.add(write_buffer)
            self.told.append(write_buffer.rdy_sent)
            levels = [each.rdy_sent for each in mine]
            # A lower bound counts from the next raise on.
            most = runtime.rdy_controller._limits.max_in_flight
            if raised and sum(levels) > most:
                self.excess.append((most, levels))
