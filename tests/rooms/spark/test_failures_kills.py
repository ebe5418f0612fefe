"""kill -9 at named points, under a real Spark: nothing is lost, and nothing comes twice.

The judge is the server: what it was told is finished has to be in the sink.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'nsqsmart[spark]'")

from nsqsmart.embedded import Cluster
from nsqsmart.embedded.broker.channel import BrokerChannel
from tests.helpers import SOAK, eventually
from tests.rooms.spark.submitted import Driver, java_or_skip

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

Publish = Callable[[int], list[bytes]]
MESSAGES = 1000
ALL = ["original", "redesigned"]
# What a task does differs between the dialects; what Spark does around it is the same for both.
around_a_task = pytest.mark.parametrize("cluster", ALL if SOAK else ALL[1:], indirect=True)
IN_A_TASK = ["before the slot", "before FIN", "after FIN", "before the end"]


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies of all that the servers were told is finished, and have carried out."""
    bodies: list[bytes] = []
    finish_many = BrokerChannel.finish_many

    def note(self: Any, consumer: Any, keys: list[bytes]) -> list[tuple[int, str]]:
        held = [consumer.in_flight.get(key) for key in keys]
        failed = finish_many(self, consumer, keys)
        refused = {position for position, _ in failed}
        bodies.extend(
            entry[0].body
            for number, entry in enumerate(held)
            if number not in refused and entry is not None
        )
        return failed

    monkeypatch.setattr(BrokerChannel, "finish_many", note)
    return bodies


@pytest.fixture
def driver(cluster: Cluster, tmp_path: Path) -> Driver:
    java_or_skip()
    return Driver(cluster.url, tmp_path)


def check(driver: Driver, sent: list[bytes], finished: list[bytes]) -> None:
    """Finished, and not in the sink: nothing. In the sink: everything, once."""
    rows = driver.rows()
    assert set(finished) - set(rows) == set()
    assert rows == sorted(sent)
    eventually(lambda: set(finished) == set(sent))


def test_python_workers_are_killed(driver: Driver, publish: Publish, finished: list[bytes]) -> None:
    sent = publish(MESSAGES)
    points = [(step, nth, "worker") for step in IN_A_TASK for nth in (1, 2)]
    assert driver.run(*points) == 0, driver.output()
    assert all(map(driver.was_reached, range(len(points) - 1)))
    check(driver, sent, finished)


@around_a_task
@pytest.mark.parametrize("steps", [IN_A_TASK[:2], IN_A_TASK[2:]])
def test_executors_are_killed(
    driver: Driver, publish: Publish, finished: list[bytes], steps: list[str]
) -> None:
    sent = publish(MESSAGES)
    driver.on_two_executors()
    points = [(step, 1, "both") for step in steps]
    assert driver.run(*points) == 0, driver.output()
    assert all(map(driver.was_reached, range(len(points))))
    check(driver, sent, finished)


def test_the_driver_is_killed_in_a_task(
    cluster: Cluster, driver: Driver, publish: Publish, finished: list[bytes]
) -> None:
    """In the last of these the worker lives on without its JVM, and finishes what it has stored."""
    sent = publish(MESSAGES)
    points = [
        ("before the slot", 2, "both"),
        ("before FIN", 2, "both"),
        ("after FIN", 2, "both"),
        ("before the end", 1, "both"),
        ("before FIN", 2, "jvm"),
    ]
    if not SOAK:
        # Each life is a start of Spark: FIN for both dialects, what is around it for one of them.
        points = points[1:4] if str(cluster.dialect) == "original" else points[:3] + points[4:]
    for number, point in enumerate(points):
        assert driver.run(point) != 0
        assert driver.was_reached(number), driver.output()
    driver.finish()
    check(driver, sent, finished)


@around_a_task
def test_the_driver_is_killed_between_batches(
    driver: Driver, publish: Publish, finished: list[bytes]
) -> None:
    """Before a plan is written, before Spark logs it (``offsets/N``), behind ``commits/N``."""
    sent = publish(MESSAGES)
    points = [(each, 1, "both") for each in ("before plan 2", "before offset 2", "after commit 2")]
    for number, point in enumerate(points):
        assert driver.run(point) != 0
        assert driver.was_reached(number), driver.output()
    driver.finish()
    check(driver, sent, finished)


@around_a_task
def test_the_driver_is_killed_between_the_sink_and_its_commit(
    driver: Driver, publish: Publish, finished: list[bytes]
) -> None:
    """Before ``commits/N``: the batch comes again, and is the same."""
    sent = publish(MESSAGES)
    driver.sink, driver.kill_at = "batches-killed", 1
    assert driver.run() != 0
    commits = driver.folder / "checkpoint" / "commits"
    assert sorted(each.name for each in commits.iterdir() if each.name.isdigit()) == ["0"]
    before = driver.rows()
    driver.finish()
    assert set(before) <= set(driver.rows())
    check(driver, sent, finished)
