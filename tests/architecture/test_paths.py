"""How many files of the library one publish, and one message, go through.

A reader has to open them to follow it. docs/architecture.md names them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import nsqsmart
from nsqsmart import tracing
from nsqsmart.embedded import Cluster
from tests.helpers import PACKAGE, eventually

MOST = 10


class Files:
    """A profile function that notes which files of the package are called into."""

    def __init__(self, *threads: str) -> None:
        self.seen: set[str] = set()
        self.on = False
        self._threads = threads

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self.on or event != "call":
            return
        path = Path(frame.f_code.co_filename)
        name = threading.current_thread().name
        if path.is_relative_to(PACKAGE) and name.startswith(self._threads):
            self.seen.add(str(path.relative_to(PACKAGE)))


@pytest.fixture
def profiled(monkeypatch) -> Callable[..., Files]:
    """Has every thread that starts from now on, and this one, call it."""
    before = sys.getprofile()
    monkeypatch.setattr(tracing.switch, "silent", True)

    def begin(*threads: str) -> Files:
        files = Files(*threads)
        threading.setprofile(files)
        sys.setprofile(files)
        return files

    yield begin
    threading.setprofile(None)
    sys.setprofile(before)


@pytest.fixture
def cluster() -> Cluster:
    with Cluster() as cluster:
        cluster.create_topic("t", partitions=2)
        nsqsmart.Admin(cluster.url).create_channel("t", "c")
        yield cluster


def test_a_keyed_publish(cluster, profiled):
    with nsqsmart.Producer(cluster.url) as producer:
        producer.publish("t", b"x", key="k")  # looks up and dials
        files = profiled("MainThread")
        files.on = True
        producer.publish("t", b"x", key="k")
        files.on = False
    assert len(files.seen) <= MOST, "\n".join(sorted(files.seen))
    assert "client/publishing/turns.py" in files.seen


def test_a_message(cluster, profiled):
    """From the bytes that a reader gets to the FIN that a worker sends.

    With the adaptive RDY mode the first message after a rest wakes the RDY controller as well.
    """
    handled: list[nsqsmart.Message] = []
    files = profiled("nsqsmart-reader", "nsqsmart-worker")
    with (
        nsqsmart.Consumer("t", "c", handled.append, address=cluster.url, rdy_mode="level"),
        nsqsmart.Producer(cluster.url) as producer,
    ):
        producer.publish("t", b"1", key="k")
        eventually(lambda: cluster.log.of("FIN"), what="the first one is finished")
        files.on = True
        producer.publish("t", b"2", key="k")
        eventually(lambda: len(cluster.log.of("FIN")) > 1, what="the second one is finished")
        files.on = False
    assert len(files.seen) <= MOST, "\n".join(sorted(files.seen))
    assert "client/consuming/workers.py" in files.seen
