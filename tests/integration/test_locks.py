"""Under a lock nothing blocks, logs, takes another, starts a thread or is the user's."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster, faults
from nsqsmart.metrics import Metrics
from tests.helpers import PACKAGE, ROOT, eventually
from tests.integration.consuming import Handled, all_finished, numbered
from tests.integration.consuming import publish as store
from tests.lock_audit import audited


class Told(Metrics):
    """Metrics of an application: each report is a call of its code."""

    def connection_closed(self, *_: object) -> None: ...
    def delivered(self, *_: object) -> None: ...
    def pool_waited(self, *_: object) -> None: ...
    def published(self, *_: object) -> None: ...
    def watch(self, source: object) -> None: ...
    def unwatch(self, source: object) -> None: ...


@pytest.fixture
def cluster():
    with Cluster(nsqds=2) as made:
        for topic in ("t", "dead"):
            made.create_topic(topic, partitions=2, replicas=2)
            made.create_channel(topic, "c")
        yield made


def publish(cluster: Cluster) -> None:
    """Several callers of one connection, with turns, and a topology that is only old."""
    options = {"metrics": Told(), "pool_size": 1, "lookupd_poll_interval": 0.05}
    with nsqsmart.Producer(cluster.url, **options) as producer:

        def some(key: str | None) -> None:
            for _ in range(10):
                producer.publish("t", b"x", key=key)

        threads = [threading.Thread(target=some, args=(key,)) for key in (None, None, "a", "a")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        cluster.faults.add(faults.on("PUB", times=2).reply("E_PUB_FAILED"))
        producer.publish("t", b"x")
        assert producer.health().ok


def publish_async(cluster: Cluster) -> None:
    """Without and with keys, traced, refused, and ended by the connection and by close()."""
    rates = nsqsmart.tracing
    rates.set_source(lambda: {"t": 0.5})
    settled: list[nsqsmart.Pending] = []
    try:
        with nsqsmart.Producer(cluster.url, metrics=Told(), close_timeout=0.1) as producer:
            cluster.faults.add(faults.on("PUB").reply("E_PUB_FAILED"))
            cluster.faults.add(faults.on("PUB", nth=20).reset())
            sent = [producer.publish_async("t", body) for body in numbered(100)]
            sent += [producer.publish_async("t", body, key=1) for body in numbered(20)]
            for each in sent:
                each.add_done_callback(settled.append)
                each.result(10)
            cluster.faults.add(faults.on("PUB", times=faults.ALWAYS).stall())
            for each in [producer.publish_async("t", body) for body in numbered(10)]:
                each.add_done_callback(settled.append)
    finally:
        rates.set_source(None)
    assert len(settled) == 130


def consume(cluster: Cluster) -> None:
    """Workers, failures, the backoff, dead letters, and an end while messages come."""
    store(cluster, *numbered(40))
    handled = Handled()

    def handle(message: nsqsmart.Message) -> None:
        handled(message)
        if message.attempts == 1 and len(handled.messages) % 5 == 0:
            raise ValueError("not yet")

    options: dict[str, Any] = {
        "address": cluster.url,
        "metrics": Told(),
        "max_attempts": 1,
        "dead_letter_topic": "dead",
        "default_requeue_delay": 0.0,
        "backoff_multiplier": 0.01,
    }
    with nsqsmart.Consumer("t", "c", handle, **options) as consumer:
        all_finished(cluster)
        consumer.pause()
        consumer.set_max_in_flight(3)
        consumer.resume()
        store(cluster, b"more")
        eventually(lambda: b"more" in handled.bodies())


def poll(cluster: Cluster) -> None:
    """Messages that the application holds: answered, forgotten, and given back at the end."""
    store(cluster, *numbered(20))
    with nsqsmart.Consumer("t", "c", address=cluster.url, msg_timeout=1, heartbeat_interval=1) as c:
        found: list[nsqsmart.Message] = []
        while len(found) < 20:
            found += c.poll(20, timeout=5)
        for each in found[:10]:
            with each:
                pass
        found[10].requeue()
        eventually(lambda: c.stats().timed_out)


def in_order(cluster: Cluster) -> None:
    """An ordered topic, whose handler fails."""
    cluster.create_topic("ordered", partitions=2, replicas=2, ordered=True)
    cluster.create_channel("ordered", "c")
    for number in range(10):
        store(cluster, b"%d" % number, topic="ordered", key=str(number))
    failed: list[bytes] = []

    def handle(message: nsqsmart.Message) -> None:
        if message.attempts == 1:
            failed.append(message.body)
            raise ValueError("not yet")

    options = {"address": cluster.url, "ordered": True, "backoff_multiplier": 0.01}
    with nsqsmart.Consumer("ordered", "c", handle, **options):
        all_finished(cluster, "ordered")
    assert len(failed) == 10


LOCKS = {
    publish: {
        "publishing/turns",
        "publishing/shared_state",
        "producer/runtime",
        "shared/directory",
    },
    publish_async: {"async_publisher", "in_flight", "keyed_batches", "connections", "net/pipeline"},
    consume: {"consuming/runtime", "rdy_controller", "supervisor", "write_buffer", "dead_letters"},
    poll: {"checked_out", "workers", "net/ticker", "messages/message"},
    in_order: {"ordered_delivery", "subscribing/supervisor"},
}


@pytest.mark.parametrize("scene", LOCKS, ids=lambda scene: scene.__name__)
def test_nothing_is_called_under_a_lock(cluster: Cluster, scene: Callable[[Cluster], None]) -> None:
    with audited() as audit:
        scene(cluster)
    assert not audit.violations, "\n".join(audit.violations)
    # It proves nothing of a lock that was not taken.
    assert {part for part in LOCKS[scene] if any(part in each for each in audit.seen)} == LOCKS[
        scene
    ]


BROKEN = """
def use(threading, log, call, wait):
    lock, other = threading.Lock(), threading.Lock()
    with lock:
        {}
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("with other: pass", "the lock of net/pool.py:3 is taken"),
        ("other.acquire(blocking=False) and other.release()", "the lock of net/pool.py:3 is taken"),
        ("threading.Thread(target=print, args=('',)).start()", "a thread is started"),
        ("log.debug('')", r"logging is called \(Logger.debug\)"),
        ("call()", r"a function of the application is called \(.*call\)"),
        ("wait()", "lock.acquire is called, which may block"),
    ],
)
def test_the_audit_says_what_is_called_and_from_where(line: str, said: str) -> None:
    def call() -> None: ...

    made: dict[str, Any] = {}
    file = str(PACKAGE / "net" / "pool.py")
    exec(compile(BROKEN.format(line), file, "exec"), made)
    wait = threading.Lock().acquire
    with audited() as audit:
        made["use"](threading, logging.getLogger("nsqsmart"), call, wait)
    lock = re.escape("under the lock of net/pool.py:3, taken at net/pool.py:4: ")
    assert any(re.fullmatch(f"{lock}{said}, from net/pool.py:5", each) for each in audit.violations)


def test_the_table_of_locks_has_every_module_that_makes_one() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## Locks")[2]
    listed = set(re.findall(r"^\| `([a-z_/]+\.py)`", text, re.MULTILINE))
    files = [*(PACKAGE / "client").rglob("*.py"), *(PACKAGE / "net").rglob("*.py")]
    making = {
        str(file.relative_to(PACKAGE))
        for file in [*files, PACKAGE / "tracing.py"]
        if re.search(r"threading\.(Lock|Condition)\(", file.read_text())
    }
    assert making <= listed
    assert listed - making == {"client/consuming/batch_workers.py"}  # whose turn is a queue
