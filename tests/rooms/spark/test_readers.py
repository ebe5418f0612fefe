"""Readers and tasks without Spark: ended early or twice, forked, used again after a failure.

What Spark calls of a stream reader is ``stop``, on whatever thread ends the query; its workers are
processes that are forked and used for task after task.
"""

from __future__ import annotations

import os
import pickle
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'nsqsmart[spark]'")

import pyarrow as pa

import nsqsmart
from nsqsmart.errors import UsedAfterFork
from nsqsmart.spark.options import ReadOptions, WriteOptions
from nsqsmart.spark.sink.publishing import Publishing
from nsqsmart.spark.source.readers import PeekReader, StreamReader
from tests.conftest import open_sockets, our_threads
from tests.helpers import eventually
from tests.peers import Peer, Talk, http_answer, http_script
from tests.scripts import programs

MODES = pytest.mark.parametrize("mode", ["spool", "offsets"])


def options(tmp_path: Path, address: str = "nsq+lookupd://127.0.0.1:1", **more: str) -> ReadOptions:
    told = {"address": address, "subscribe": "t", "channel": "c"}
    return ReadOptions.parse({**told, "spoolLocation": str(tmp_path), **more})


# ------------------------------------------------------------------------------------------- stop


@MODES
def test_stop_is_safe_twice_before_anything_and_on_another_thread(mode, tmp_path) -> None:
    before = open_sockets()
    reader = StreamReader(options(tmp_path, readMode=mode))
    reader.stop()  # nothing was opened: there is nothing to end
    if mode == "spool":
        start = reader.initialOffset()
        assert reader.partitions(start, start) == []
    ending = [threading.Thread(target=reader.stop) for _ in range(2)]
    for thread in ending:
        thread.start()
    for thread in ending:
        thread.join(10)
        assert not thread.is_alive()
    reader.stop()
    assert not our_threads()
    assert open_sockets() == before


@MODES
def test_a_reader_opens_nothing_before_it_is_asked_and_travels(mode, tmp_path, monkeypatch) -> None:
    """Spark makes one in three processes, and pickles it for every task."""

    def no(*_args: object) -> None:
        raise AssertionError("a socket")

    monkeypatch.setattr(socket.socket, "connect", no)
    reader = pickle.loads(pickle.dumps(StreamReader(options(tmp_path, readMode=mode))))
    reader.stop()
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------- workers are used again


class Worker:
    """What a Python worker does: one task after another in one process."""

    def __init__(self, address: str) -> None:
        self.options = WriteOptions.parse(
            {"address": address, "topic": "t", "nsq.publish_attempts": "1"}
        )

    def run(self, *values: bytes) -> int:
        batch = pa.RecordBatch.from_pydict({"value": list(values)})
        return Publishing(self.options, None).run([batch])


def refusing_once(seen: list[bytes]) -> Callable[[Talk], None]:
    """Ends the first connection in the middle of its batch; the others work."""

    def script(talk: Talk) -> None:
        talk.greet()
        while True:
            talk.line()
            seen.append(talk.body())
            if len(seen) == 1:
                talk.reset()
                return
            talk.ok()

    return script


def test_a_task_after_one_that_failed_has_a_client_of_its_own() -> None:
    seen: list[bytes] = []
    with Peer(refusing_once(seen)) as nsqd:
        worker = Worker(nsqd.url)
        before = open_sockets()
        with pytest.raises(nsqsmart.PublishError):
            worker.run(b"a", b"b")
        # Nothing of the failed task is left to the next one.
        eventually(lambda: not our_threads())
        assert open_sockets() <= before
        assert worker.run(b"c") == 1
        assert worker.run(b"d", b"e") == 2
        assert nsqd.accepted == 3


def test_a_task_that_fails_in_its_rows_closes_its_client() -> None:
    seen: list[bytes] = [b"not the first"]
    with Peer(refusing_once(seen)) as nsqd:
        worker = Worker(nsqd.url)
        batch = pa.RecordBatch.from_pydict({"value": [b"a", None]})
        for _ in range(3):
            before = open_sockets()
            with pytest.raises(nsqsmart.errors.ConfigError, match="null"):
                Publishing(worker.options, None).run([batch])
            eventually(lambda before=before: open_sockets() <= before)
        assert worker.run(b"c") == 1


# ---------------------------------------------------------------------------- workers are forked


def in_child(act: Callable[[], object]) -> str:
    """What *act* says in a child of a fork."""
    here, there = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = repr(act())
        except BaseException as error:  # noqa: BLE001 - it is what the child says
            said = f"{type(error).__name__}: {error}"
        os.write(there, said.encode())
        os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def answering(talk: Talk) -> None:
    talk.greet()
    while True:
        line = talk.line()
        if line.startswith(b"SUB"):
            talk.ok()
        elif line.startswith((b"PUB", b"MPUB")):
            talk.body()
            talk.ok()


def test_a_worker_that_inherits_clients_of_the_driver_leaves_them_alone() -> None:
    """A module-level client of a notebook: a producer works on, what holds messages says no."""
    with Peer(answering) as nsqd:
        host = "{}:{}".format(*nsqd.address)
        producer = nsqsmart.Producer(nsqd.url)
        producer.publish("t", b"x", timeout=10)
        source = nsqsmart.PullSubscription(nsqd.url, "t", "c", nsqd=host).open()
        assert nsqd.accepted == 2
        assert in_child(lambda: producer.publish("t", b"y", timeout=10).attempts) == "1"
        assert nsqd.accepted == 3  # on a connection of its own
        assert in_child(lambda: source.pull(1, timeout=1)).startswith(UsedAfterFork.__name__)
        assert in_child(source.close).startswith(UsedAfterFork.__name__)
        # The driver notices nothing.
        assert producer.publish("t", b"z", timeout=10).attempts == 1
        assert source.pull(1, timeout=0.05) == []
        assert nsqd.accepted == 3
        source.close()
        producer.close()


def test_a_worker_plans_and_reads_with_clients_of_its_own(tmp_path) -> None:
    """The driver's reader has asked the lookups before the fork."""
    asked: list[str] = []

    def answer(path: str) -> bytes:
        asked.append(path)
        return http_answer(200, b'{"producers":[],"topics":[]}')

    with Peer(http_script(answer)) as lookup:
        address = "nsq+lookupd://{}:{}".format(*lookup.address)
        reader = StreamReader(options(tmp_path, address))
        start = reader.initialOffset()
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
        before = len(asked)
        assert before
        fresh = pickle.dumps(PeekReader(options(tmp_path, address)))
        assert in_child(lambda: list(pickle.loads(fresh).partitions())) == "[]"
        assert len(asked) > before
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start


# -------------------------------------------------------------- executors that end in the middle


def test_a_worker_that_ends_in_the_middle_of_a_task_ends_at_once() -> None:
    """Its interpreter exits while threads of ours wait, and a message is on its way."""

    def silent(talk: Talk) -> None:
        talk.greet()
        if talk.line().startswith(b"SUB"):
            talk.ok()
        talk.stall()

    with Peer(silent) as nsqd, programs(nsqd.url) as program:
        script = program("""
            import pyarrow as pa
            from nsqsmart.spark.options import WriteOptions
            from nsqsmart.spark.sink.publishing import Publishing
            def task():
                told = {"address": url, "topic": "t", "nsq.publish_timeout": "60"}
                rows = pa.RecordBatch.from_pydict({"value": [b"x"], "defer_ms": [5]})
                Publishing(WriteOptions.parse(told), None).run([rows])
            threading.excepthook = lambda _: None  # the task's own error is Spark's to tell
            threading.Thread(target=task, daemon=True).start()
            nsqd = url.removeprefix("nsq://")
            source = nsqsmart.PullSubscription(url, "t", "c", nsqd=nsqd).open()
            held = threading.Thread(target=source.pull, args=(1, 60), daemon=True)
            held.start()
            until = time.monotonic() + 20
            while not any("nsqsmart" in each.name for each in threading.enumerate()):
                assert time.monotonic() < until
                time.sleep(0.01)
            print("begun")
            sys.exit(7)
        """)
        assert script.line() == "begun"
        code, out, said = script.ends(timeout=12)
    assert (code, out) == (7, "")
    assert said.count("\n") <= 1
    assert "Traceback" not in said
