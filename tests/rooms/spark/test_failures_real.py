"""The same with real servers: the judge is what the sink holds, for they show no FINs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'nsqsmart[spark]'")

import nsqsmart
from tests.helpers import eventually
from tests.rooms.spark.conftest import TOPIC
from tests.rooms.spark.submitted import Driver, java_or_skip
from tests.sites import CHANNEL, RedesignedSite, Site, real_site

pytestmark = [pytest.mark.spark, pytest.mark.real, pytest.mark.long, pytest.mark.timeout(1500)]

MESSAGES = 2000
REAL_SECONDS = 120


def make(dialect: str, folder: Path) -> Iterator[Site]:
    java_or_skip()
    (folder / "site").mkdir()
    with real_site(dialect, folder / "site") as site:
        site.make_topic(TOPIC, partitions=2, replicas=2, ordered=False)
        yield site


@pytest.fixture
def original(tmp_path: Path) -> Iterator[Site]:
    yield from make("original", tmp_path)


@pytest.fixture
def redesigned(tmp_path: Path) -> Iterator[Site]:
    yield from make("redesigned", tmp_path)


def publish(site: Site, count: int = MESSAGES) -> list[bytes]:
    bodies = [b"%08d" % number for number in range(count)]
    with nsqsmart.Producer(site.url) as producer:
        for first in range(0, count, 100):
            producer.publish_many(TOPIC, bodies[first : first + 100])
    return bodies


def driver_of(site: Site, folder: Path, **options: object) -> Driver:
    # Real servers show what they hold a moment late.
    return Driver(
        site.url,
        folder,
        **{"channel": CHANNEL, "idleTimeoutMs": "500", "maxMessagesPerTrigger": "500", **options},
    )


def test_kills_on_an_original_nsqd(original: Site, tmp_path: Path) -> None:
    sent = publish(original)
    driver = driver_of(original, tmp_path)
    points = [
        ("before the slot", 2, "both"),
        ("before FIN", 2, "both"),
        ("after FIN", 2, "both"),
        ("before offset 3", 1, "both"),
        ("after commit 3", 1, "both"),
    ]
    for number, point in enumerate(points):
        assert driver.run(point) != 0
        assert driver.was_reached(number), driver.output()
    driver.finish()
    assert driver.rows() == sent


def test_a_stream_is_copied_on_an_original_nsqd(original: Site, tmp_path: Path) -> None:
    sent = publish(original)
    check_copy(original, driver_of(original, tmp_path), sent)


def check_copy(site: Site, driver: Driver, sent: list[bytes]) -> None:
    """The sink publishes all that the source reads."""
    site.make_topic("copied", partitions=2, replicas=2, ordered=False)
    driver.sink = "nsq"
    driver.finish()
    found: Counter[bytes] = Counter()
    with nsqsmart.Consumer("copied", CHANNEL, address=site.url) as consumer:

        def all_there() -> bool:
            for message in consumer.poll(max_messages=1000, timeout=1):
                found[message.body] += 1
                message.finish()
            return len(found) == len(sent)

        eventually(all_there, timeout=60)
    assert sorted(found) == sent
    assert set(found.values()) == {1}


def while_running(driver: Driver, then: Callable[[], None], *points: tuple[str, int, str]) -> None:
    """Do *then* once the first point was reached; the run has to come to its end."""
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(driver.run(*points)))
    thread.start()
    try:
        eventually(driver.was_reached, timeout=300, every=0.1)
        then()
    finally:
        thread.join()
    assert codes == [0], driver.output()


@pytest.mark.parametrize("mode", ["spool", "offsets"])
def test_a_leader_is_killed_on_a_redesigned_cluster(
    redesigned: RedesignedSite, tmp_path: Path, mode: str
) -> None:
    """Nothing is lost; what a new leader delivers again comes under the id it had."""
    sent = publish(redesigned)
    driver = driver_of(redesigned, tmp_path, readMode=mode, startingOffsets="stored")
    node = redesigned.leaders(TOPIC)[0]
    point = "before FIN" if mode == "spool" else "in a range"
    while_running(driver, lambda: redesigned.kill(node), (point, 3, "none"))
    redesigned.restart(node)
    eventually(lambda: len(redesigned.leaders(TOPIC)) == 2, timeout=REAL_SECONDS, every=0.5)
    for _ in range(3):  # what was out of reach comes in later runs
        if set(driver.rows()) == set(sent):
            break
        driver.finish()
    assert set(driver.rows()) == set(sent)
    assert len(set(driver.column("message_id"))) == len(sent)


def test_a_stream_is_copied_on_a_redesigned_cluster(
    redesigned: RedesignedSite, tmp_path: Path
) -> None:
    sent = publish(redesigned)
    check_copy(redesigned, driver_of(redesigned, tmp_path), sent)
