"""Clocks that jump, programs that change what every module shares, loggers that misbehave."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from time import monotonic

import pytest

import nsqsmart
from nsqsmart.client.consuming import workers as dispatcher
from nsqsmart.client.messages import message as message_module
from nsqsmart.embedded import Cluster, faults
from tests.helpers import eventually
from tests.integration.consuming import Handled, numbered, publish
from tests.scripts import programs


@pytest.fixture
def cluster():
    with Cluster() as made:
        made.create_topic("t", partitions=2)
        made.create_channel("t", "c")
        yield made


@pytest.fixture
def program(cluster):
    with programs(cluster.url) as begin:
        yield begin


def consume(cluster: Cluster, handler, **options):
    return nsqsmart.Consumer("t", "c", handler, address=cluster.url, **options)


# ------------------------------------------------------------------------------------------- clocks


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_wall_clock_that_jumps_changes_nothing(cluster, monkeypatch, jump):
    """Deadlines, backoffs and time-outs are counted on the monotonic clock alone."""
    cluster.faults.add(faults.on("PUB", times=2).move_leader())
    wall, wall_ns = time.time, time.time_ns
    handled = Handled()
    with consume(cluster, handled) as consumer, nsqsmart.Producer(cluster.url) as producer:
        monkeypatch.setattr(time, "time", lambda: wall() + jump)
        monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + int(jump * 1e9))
        begun = monotonic()
        for body in numbered(20):
            producer.publish("t", body, key=body.decode(), timeout=10)
        assert monotonic() - begun < 10
        eventually(lambda: handled.counts() == Counter(numbered(20)))
        assert consumer.stats().failed == 0


def test_after_a_suspend_what_has_expired_is_not_handled(cluster, monkeypatch):
    """The machine slept for ten minutes: the server has given the messages to others."""
    gate, entered = threading.Event(), threading.Event()
    slept = [0.0]
    for module in (dispatcher, message_module):
        monkeypatch.setattr(module, "monotonic", lambda: monotonic() + slept[0])

    def handler(message: nsqsmart.Message) -> None:
        entered.set()
        gate.wait(30)
        handled(message)

    handled = Handled()
    publish(cluster, *numbered(20))
    with consume(cluster, handler, workers=1, rdy_mode="level") as consumer:
        assert entered.wait(10)
        eventually(lambda: sum(each.in_flight for each in consumer._runtime.snapshot()) == 20)
        slept[0] = 600.0
        gate.set()
        # One was in a handler when the clock stood still; no other one is begun.
        eventually(lambda: consumer.stats().timed_out >= 19)
    assert len(handled.messages) == 1


# ---------------------------------------------------------------------------- what modules share


def test_a_default_timeout_of_sockets_and_a_broken_sleep_change_nothing(cluster, program):
    """An application may set both for itself; each wait here is longer than that timeout."""
    cluster.faults.add(faults.on("PUB").delay(0.3))
    script = program(
        """
        import socket
        socket.setdefaulttimeout(0.05)
        time.sleep = None
        with nsqsmart.Producer(url) as producer:
            producer.publish("t", b"x", timeout=10)
        with nsqsmart.Consumer("t", "c", address=url) as consumer:
            (message,) = consumer.poll(timeout=10)
            message.finish()
            print(consumer.poll(timeout=0.3))
        """
    )
    assert script.ends() == (0, "[]\n", "")


def test_a_client_that_a_global_or_a_cycle_keeps_ends_in_silence(program):
    """At the end of the interpreter modules are gone: nothing may lean on them."""
    script = program(
        """
        class Node:
            def __del__(self):
                self.client.close()

        node = Node()
        node.client = producer = nsqsmart.Producer(url)
        node.self = node
        producer.publish("t", b"x", timeout=10)
        consumer = nsqsmart.Consumer("t", "c", print, address=url).start()
        consumer.me = consumer_of = {"consumer": consumer}
        consumer_of["self"] = consumer_of
        import importlib
        importlib.reload(nsqsmart)
        """
    )
    code, _, err = script.ends()
    assert (code, err) == (0, "")


def test_a_thousand_topics_leave_no_thousand_connections(cluster):
    names = [f"topic{number}" for number in range(300)]
    for name in names:
        cluster.create_topic(name)
        cluster.create_channel(name, "c")
    with nsqsmart.Producer(cluster.url) as producer:
        for name in names:
            producer.publish(name, b"x", timeout=10)
        assert sum(each["pool_size"] for each in producer.stats()["pools"].values()) <= 4


# ------------------------------------------------------------------------------------------ logging


class Publishing(logging.Handler):
    """A handler of the log that sends each record as a message."""

    def __init__(self, producer: nsqsmart.Producer) -> None:
        super().__init__()
        self.producer = producer
        self.sent = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.producer.publish("t", record.getMessage().encode(), timeout=10)
        self.sent += 1


@pytest.fixture
def attached():
    """Attaches handlers to the library's logger, for as long as the test takes."""
    logger, added = logging.getLogger("nsqsmart"), []
    level = logger.level
    logger.setLevel(logging.INFO)

    def attach(handler: logging.Handler) -> logging.Handler:
        logger.addHandler(handler)
        added.append(handler)
        return handler

    yield attach
    logger.setLevel(level)
    for handler in added:
        logger.removeHandler(handler)


def test_a_log_handler_may_publish_with_the_client_that_logs(cluster, attached):
    """No lock of the client is held while it logs, so nothing waits for itself."""
    with nsqsmart.Producer(cluster.url) as producer:
        handler = attached(Publishing(producer))
        with consume(cluster, lambda message: None) as consumer:
            eventually(lambda: handler.sent >= 2)  # subscribed to two partitions
            for subscription in consumer._runtime.snapshot():
                subscription.hang_up()
            eventually(lambda: handler.sent >= 4)


def test_a_handler_may_publish_while_the_producer_is_at_its_limit(cluster):
    """The thread that reads is not the one that handles: nothing waits in a circle."""
    done = Handled()
    with nsqsmart.Producer(cluster.url, async_max_messages=2) as producer:
        cluster.create_topic("out")
        cluster.create_channel("out", "c")

        def handler(message: nsqsmart.Message) -> None:
            producer.publish_async("out", message.body, timeout=10).result(10)
            done(message)

        with consume(cluster, handler, workers=8):
            publish(cluster, *numbered(100))
            eventually(lambda: done.counts() == Counter(numbered(100)), timeout=20)


def test_modules_replaced_before_the_import_are_taken_as_they_are(program):
    """As gevent does it; that is not supported, but it must end, one way or the other."""
    script = program(
        """
        import socket
        real = socket.socket
        class Patched(real):
            pass
        socket.socket = Patched
        with nsqsmart.Producer(url) as producer:
            print(producer.publish("t", b"x", timeout=10).attempts)
        """
    )
    assert script.ends() == (0, "1\n", "")
