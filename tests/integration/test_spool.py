"""The spool of a producer: what cannot be sent waits on the disk, in order, and none is lost."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

import nsqsmart
from nsqsmart.client.producer import default as shared_producer
from nsqsmart.client.spooling import spool
from nsqsmart.client.spooling.sending import make_publication
from nsqsmart.client.spooling.storage import locked
from nsqsmart.embedded import Cluster, faults
from nsqsmart.errors import ConfigError, MessageRejected, NotSupported, SpoolError
from nsqsmart.wire.spool_records import SpoolRecord, scan
from tests.helpers import ROOT, SOAK, eventually

NOWHERE = "nsq+lookupd://127.0.0.1:1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(auto_create=True, partitions=3) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def long_pause(monkeypatch):
    """A producer tries once, and then what waits only when it is told to."""
    monkeypatch.setattr(spool, "_PAUSE", 60.0)


def down(folder: Path, **options) -> nsqsmart.Producer:
    """A producer that reaches no server."""
    return nsqsmart.Producer(NOWHERE, spool=folder, **{"publish_timeout": 0.02} | options)


def up(cluster: Cluster, folder: Path, **options) -> nsqsmart.Producer:
    return nsqsmart.Producer(cluster.url, spool=folder, **options)


def waiting(folder: Path) -> int:
    return sum(each.messages for each in nsqsmart.spool_status(str(folder)))


def bodies(cluster: Cluster, topic: str = "t") -> list[bytes]:
    return [each.body for each in cluster.stored(topic)]


def segment(folder: Path, topic: str = "t") -> Path:
    (found,) = (folder / f"topic.{topic}").glob("*.segment")
    return found


# ----------------------------------------------------------------------------------- down, then up


def test_down_then_up_everything_arrives_in_order(cluster, folder):
    with up(cluster, folder, publish_timeout=5) as producer:
        assert not producer.publish("t", b"k0 0", key="k0").spooled
        cluster.kill(cluster.nsqds[0])
        for number in range(1, 60):
            key = f"k{number % 4}"
            body = f"{key} {number}".encode()
            assert producer.publish("t", body, key=key, timeout=0.1).spooled
    assert waiting(folder) == 59
    cluster.restart(cluster.nsqds[0])
    with up(cluster, folder, publish_timeout=5) as producer:
        assert not producer.publish("t", b"k0 60", key="k0").spooled
    assert waiting(folder) == 0
    assert len(bodies(cluster)) == 61
    for key in (b"k0", b"k1", b"k2", b"k3"):
        numbers = [int(each.split()[1]) for each in bodies(cluster) if each.startswith(key)]
        assert numbers == sorted(numbers)
    assert len(cluster.log.of("MPUB")) == 3


def test_a_receipt_says_that_it_is_spooled(folder):
    with down(folder) as producer:
        receipt = producer.publish("t", b"x")
        assert (receipt.spooled, receipt.nsqd, receipt.partition) == (True, "", None)
        assert receipt.attempts >= 1
        assert producer.publish_many("t", [b"a", b"b"]).count == 2
        assert producer.publish_async("t", b"c").result(0).spooled
    assert waiting(folder) == 4


def test_what_a_publish_was_told_arrives_with_it(folder):
    with Cluster() as cluster:
        cluster.create_topic("t", extend_support=True)
        cluster.create_channel("t", "c")
        with down(folder) as producer:
            producer.publish("t", b"one", headers={"a": 1}, tag="red", trace_id=7)
            producer.publish("t", b"two", partition=0)
        with up(cluster, folder) as producer:
            (flushed,) = producer.flush_spool()
        assert (flushed.sent, flushed.error) == (2, None)
        with nsqsmart.Consumer("t", "c2", address=cluster.url, start_at="head") as consumer:
            (first,) = consumer.poll(1, 5)
        assert (first.body, first.headers["a"], first.tag, first.trace_id) == (b"one", 1, "red", 7)


def test_a_delayed_message_is_still_one(folder):
    with Cluster(dialect="original") as cluster:
        with down(folder) as producer:
            producer.publish("t", b"x", delay=3600)
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        with up(cluster, folder) as producer:
            assert producer.flush_spool()[0].sent == 1
        assert len(cluster.log.of("DPUB")) == 1
        (topic,) = nsqsmart.Admin(cluster.url).stats("t", "c").topics
        assert [channel.deferred for channel in topic.channels] == [1]


def test_of_a_delay_what_is_left_counts():
    record = SpoolRecord(b"x", 1_000_000_000, delay=5000)
    left = [
        make_publication("t", None, [record], now * 1_000_000_000).delay for now in (0, 1, 4, 60)
    ]
    assert left == [5000, 5000, 2000, 0]


def test_one_topic_does_not_hold_up_another(folder):
    with Cluster() as cluster:
        cluster.create_topic("there")
        cluster.create_channel("there", "c")
        with up(cluster, folder, publish_timeout=0.2) as producer:
            assert producer.publish("missing", b"x").spooled
            assert not producer.publish("there", b"x", timeout=5).spooled
            by_topic = {each.topic: each for each in producer.flush_spool(0.5)}
        assert by_topic["missing"].error.retryable
        assert waiting(folder) == 1


def test_a_split_batch_keeps_only_what_was_not_stored(cluster, folder):
    large = [bytes([65 + n]) * 600_000 for n in range(4)]
    with up(cluster, folder, publish_attempts=1) as producer:
        producer.publish("t", b"first", partition=0)
        calls = iter([None])
        publisher = producer._running().publishing
        exchange = publisher.exchange

        def once(*arguments, **keywords):
            if next(calls, cluster) is cluster:
                raise nsqsmart.errors.ConnectError("gone")
            return exchange(*arguments, **keywords)

        publisher.exchange = once
        receipt = producer.publish_many("t", large, partition=0, split=True, timeout=10)
        del publisher.exchange
        assert (receipt.spooled, receipt.count, waiting(folder)) == (True, 4, 3)
        producer.flush_spool()
    assert bodies(cluster) == [b"first", *large]


def test_after_a_failure_nothing_is_tried_for_a_while(folder, monkeypatch):
    with down(folder, publish_timeout=0.2) as producer:
        assert producer.publish("t", b"x").attempts > 0
        assert {producer.publish("t", b"x").attempts for _ in range(20)} == {0}
        monkeypatch.setattr(spool, "_PAUSE", 0.0)
        producer.flush_spool(0.1)
        assert producer.publish("t", b"x").attempts > 0
    assert waiting(folder) == 22


# --------------------------------------------------------------------------------- what is refused


def test_who_finds_another_one_sending_does_not_keep_the_next_one_from_it(cluster, folder):
    with down(folder) as producer:
        producer.publish("t", b"1")
    with up(cluster, folder, publish_timeout=5) as producer:
        with locked(producer._spool._queue("t").sending, 0) as alone:
            assert alone
            assert producer.publish("t", b"2").spooled
            assert producer.flush_spool()[0].error.code == "SpoolBusy"
        assert not producer.publish("t", b"3").spooled
    assert sorted(bodies(cluster)) == [b"1", b"2", b"3"]


def test_who_runs_out_of_time_while_he_sends_is_followed_by_the_next_one(cluster, folder):
    with down(folder) as producer:
        for number in range(3):
            producer.publish("t", b"%d" % number, partition=number)
    cluster.create_topic("t", partitions=3)
    cluster.create_channel("t", "c")
    cluster.faults.add(faults.on("PUB", nth=2).stall())
    with up(cluster, folder) as producer:
        assert producer.publish("t", b"kept", timeout=0.5).spooled
        assert not producer.publish("t", b"sent", timeout=5).spooled
    assert waiting(folder) == 0


def test_a_flush_waits_for_a_lock_no_longer_than_it_may(folder):
    with down(folder) as producer:
        producer.publish("t", b"x")
        with locked(folder / "spool.lock", 0):
            started = monotonic()
            (flushed,) = producer.flush_spool(timeout=0.1)
            assert "held by another" in str(flushed.error)
            assert monotonic() - started < 5


def test_threads_that_publish_all_the_time_come_to_the_end_of_it(cluster, folder, monkeypatch):
    monkeypatch.setattr(spool, "_PAUSE", 0.05)
    with down(folder) as producer:
        for number in range(500):
            producer.publish("t", b"before %d" % number)
    published, sent, enough = [], [], threading.Event()

    def publish(producer: nsqsmart.Producer) -> None:
        while not enough.is_set():
            receipt = producer.publish("t", b"x", timeout=5)
            published.append(receipt)
            if not receipt.spooled:
                sent.append(receipt)

    with up(cluster, folder) as producer:
        threads = [threading.Thread(target=publish, args=[producer]) for _ in range(8)]
        for thread in threads:
            thread.start()
        try:
            eventually(lambda: len(sent) >= 1000, timeout=60)
        finally:
            enough.set()
            for thread in threads:
                thread.join(30)
    assert waiting(folder) == 0
    found = Counter(bodies(cluster))
    assert found.pop(b"x") >= len(published)
    assert set(found) == {b"before %d" % number for number in range(500)}


def test_what_is_refused_raises(cluster, folder):
    with up(cluster, folder) as producer:
        with pytest.raises(MessageRejected):
            producer.publish("t", b"x" * 2_000_000)
        with pytest.raises(NotSupported):
            producer.publish("t", b"x", delay=5)
    assert waiting(folder) == 0


def test_what_is_refused_later_is_set_aside(cluster, folder, caplog):
    with down(folder) as producer:
        producer.publish_many("t", [b"a", b"SECRET" * 300_000, b"b"], partition=1)
    with up(cluster, folder) as producer:
        (flushed,) = producer.flush_spool()
        assert (flushed.sent, flushed.refused, flushed.error) == (2, 1, None)
    assert bodies(cluster) == [b"a", b"b"]
    (status,) = nsqsmart.spool_status(str(folder))
    assert (status.messages, status.refused) == (0, 1)
    assert "refused" in caplog.text
    assert "SECRET" not in caplog.text


def test_without_the_right_secret_nothing_is_set_aside(folder):
    with down(folder) as producer:
        producer.publish("t", b"x")
    with (
        Cluster(auto_create=True, auth_addresses=("127.0.0.1:1",)) as cluster,
        up(cluster, folder, publish_timeout=1) as producer,
        pytest.raises(nsqsmart.errors.NotAuthorized),
    ):
        producer.publish("t", b"y")
    assert waiting(folder) == 1


# -------------------------------------------------------------------------------------- the folder


def test_nobody_else_reads_or_writes(folder):
    with down(folder) as producer:
        producer.publish("t", b"x")
    for path in [folder, *folder.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_a_folder_that_others_can_write_is_refused(folder):
    folder.mkdir()
    folder.chmod(0o770)
    with pytest.raises(ConfigError, match="others can write"):
        down(folder)


def test_a_file_is_no_folder(folder):
    folder.write_text("x")
    with pytest.raises(ConfigError, match="no folder"):
        down(folder)


def test_flush_without_a_spool():
    with nsqsmart.Producer(NOWHERE) as producer, pytest.raises(ConfigError, match="spool=FOLDER"):
        producer.flush_spool()


def test_the_one_producer_of_the_process_takes_a_spool(folder, monkeypatch):
    monkeypatch.setenv("NSQSMART_URL", NOWHERE)
    monkeypatch.setattr(shared_producer, "_producers", {})
    assert nsqsmart.publish("t", b"x", spool=folder, timeout=0.02).spooled
    monkeypatch.setenv("NSQSMART_SPOOL", str(folder))
    assert nsqsmart.publish("t", b"x", timeout=0.02).spooled
    for producer in shared_producer._producers.values():
        producer.close()
    assert waiting(folder) == 2


def test_the_limit_is_kept_and_nothing_is_written_half(folder):
    with down(folder, spool_max_bytes=4096) as producer:
        kept = 10
        for _ in range(kept // 2):
            producer.publish_many("t", [b"x" * 300] * 2)
        with pytest.raises(SpoolError, match="spool_max_bytes") as caught:
            producer.publish_many("t", [b"x" * 300] * 2)
        assert caught.value.retryable
        assert sum(each.stat().st_size for each in folder.rglob("*") if each.is_file()) <= 4096
    assert waiting(folder) == kept


def test_a_full_disk_is_told_and_nothing_is_written_half(folder, cluster):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with down(folder) as producer:
        producer.publish("t", b"kept")
        size = segment(folder).stat().st_size
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
            with pytest.raises(SpoolError, match="File too large"):
                producer.publish("t", b"x" * 10_000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert segment(folder).stat().st_size == size
        producer.publish("t", b"kept too")
    assert waiting(folder) == 2
    with up(cluster, folder) as producer:
        assert producer.flush_spool()[0].sent == 2
    assert sorted(bodies(cluster)) == [b"kept", b"kept too"]


# --------------------------------------------------------------------------- what is left of files


def test_cut_at_any_byte_what_was_whole_is_sent_and_writing_goes_on(folder, caplog):
    with down(folder) as producer:
        for number in range(3):
            producer.publish("t", b"%d" % number)
        data = segment(folder).read_bytes()
    ends = [placed.end for placed in scan(data).records]
    for cut in range(16, len(data)):
        segment(folder).write_bytes(data[:cut])
        with down(folder, publish_timeout=0.001) as producer:
            producer.publish("t", b"new")
        found = [placed.record.body for placed in scan(segment(folder).read_bytes()).records]
        assert found == [b"%d" % n for n in range(sum(end <= cut for end in ends))] + [b"new"]
    assert "never completed" in caplog.text


def test_a_damaged_record_is_kept_and_the_others_are_sent(cluster, folder, caplog):
    with down(folder) as producer:
        for number in range(5):
            producer.publish("t", b"body %d" % number, partition=0)
    data = bytearray(segment(folder).read_bytes())
    data[data.index(b"body 2")] ^= 1
    segment(folder).write_bytes(data)
    with up(cluster, folder) as producer:
        assert producer.flush_spool()[0].sent == 4
    assert bodies(cluster) == [b"body 0", b"body 1", b"body 3", b"body 4"]
    (status,) = nsqsmart.spool_status(str(folder))
    assert len(status.damaged) == 1
    assert "could not be read" in caplog.text


def test_garbage_in_the_folder_does_no_harm(cluster, folder):
    with down(folder) as producer:
        producer.publish("t", b"one", partition=0)
        place = folder / "topic.t"
        (place / "000000000002.segment").write_bytes(os.urandom(500))
        (place / "000000000003.segment").write_bytes(b"")
        (place / "progress").write_bytes(b"\xff{")
        (place / "x.segment").write_text("x")
        (place / "000000000009.segment.bak").write_text("x")
        (folder / "topic.").write_text("x")
        (folder / "notes.txt").write_text("x")
        producer.publish("t", b"two", partition=0)
    with up(cluster, folder) as producer:
        assert producer.flush_spool()[0].error is None
        assert not producer.publish("t", b"three", partition=0).spooled
    assert bodies(cluster) == [b"one", b"two", b"three"]


def test_a_sent_position_beyond_the_end_hides_nothing(cluster, folder):
    with down(folder) as producer:
        producer.publish("t", b"lost with the disk", partition=0)
        place = folder / "topic.t"
        progress = {"segment": 1, "offset": 5000, "done": []}
        (place / "progress").write_text(json.dumps(progress))
        for _ in range(100):
            producer.publish("t", b"x" * 100, partition=0)
    with up(cluster, folder) as producer:
        assert producer.flush_spool()[0].sent == 100


def test_segments_follow_each_other_and_go(cluster, folder, monkeypatch):
    with down(folder, spool_max_bytes=1 << 20) as producer:
        for number in range(40):
            producer.publish("t", b"%d " % number + b"x" * 10_000, partition=0)
        assert len(list(folder.rglob("*.segment"))) > 2
    with up(cluster, folder) as producer:
        assert producer.flush_spool()[0].sent == 40
    assert [int(each.split()[0]) for each in bodies(cluster)] == list(range(40))
    assert list(folder.rglob("*.segment")) == []


def test_a_flush_that_breaks_off_goes_on_where_it_was(cluster, folder):
    with down(folder) as producer:
        for number in range(30):
            producer.publish("t", b"%d" % number, partition=number % 3)
    with up(cluster, folder, publish_attempts=1) as producer:
        producer.warm("t")
        publisher, done = producer._running().publishing, []
        exchange = publisher.exchange

        def once(*arguments, **keywords):
            if done:
                raise nsqsmart.errors.ConnectError("gone")
            done.append(arguments)
            return exchange(*arguments, **keywords)

        publisher.exchange = once
        assert producer.flush_spool()[0].sent == 10
        del publisher.exchange
        assert waiting(folder) == 20
        assert producer.flush_spool()[0].sent == 20
    assert sorted(map(int, bodies(cluster))) == list(range(30))


# ------------------------------------------------------------------------- several at the same time


def test_threads_share_a_spool(cluster, folder):
    with down(folder) as producer:

        def work(name: int) -> None:
            for number in range(25):
                producer.publish("t", b"%d %d" % (name, number), key=name)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert waiting(folder) == 100
    with up(cluster, folder) as producer:
        assert producer.flush_spool()[0].sent == 100
    for name in range(4):
        mine = [each.split() for each in bodies(cluster)]
        assert [int(n) for each, n in mine if int(each) == name] == list(range(25))


SCRIPT = """
import os, sys
import nsqsmart
from nsqsmart.client.spooling import spool
spool._PAUSE = float(sys.argv[5])
url, folder, name, count = sys.argv[1:5]
producer = nsqsmart.Producer(url, spool=folder, publish_timeout=0.02)
print("ready", flush=True)
for number in range(int(count)):
    body = f"{name} {number}".encode() + b"." * (number * 37 % 900)
    producer.publish("t", body, key=name)
    os.write(1, f"{number}\\n".encode())
"""


def script(url: str, folder: Path, name: str, count: int, pause: float = 60.0):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, url, str(folder), name, str(count), str(pause)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )


def numbers_of(cluster: Cluster, name: str) -> list[int]:
    mine = [each.rstrip(b".").split() for each in bodies(cluster)]
    return [int(number) for each, number in mine if each.decode() == name]


def in_order_but_for_copies(numbers: list[int]) -> bool:
    return list(dict.fromkeys(numbers)) == sorted(set(numbers))


def test_two_processes_write_and_send_at_the_same_time(folder):
    with Cluster(auto_create=True, partitions=3) as cluster:
        cluster.kill(cluster.nsqds[0])
        running = [script(cluster.url, folder, name, 150, pause=0.0) for name in "ab"]
        for each in running:
            eventually(lambda each=each: each.stdout.readline().startswith(b"9"))
        cluster.restart(cluster.nsqds[0])
        for each in running:
            each.communicate(timeout=30)
            assert each.returncode == 0
        with up(cluster, folder) as producer:
            assert all(found.error is None for found in producer.flush_spool(10))
        for name in "ab":
            numbers = numbers_of(cluster, name)
            assert set(numbers) == set(range(150))
            assert in_order_but_for_copies(numbers)
    assert waiting(folder) == 0


def kill_at(folder: Path, names: list[str], chance: random.Random, url: str = NOWHERE):
    """How many messages scripts were told are spooled before each was killed."""
    begun = {name: script(url, folder, name, 100_000) for name in names}
    told = {}
    for name, program in begun.items():
        program.stdout.readline()
        sleep(chance.uniform(0.02, 0.12))  # where in its work it dies is to be random
        program.send_signal(signal.SIGKILL)
        told[name] = program.communicate()[0].count(b"\n")
    return told


@pytest.mark.parametrize(
    "points",
    [6, pytest.param(200 if SOAK else 60, marks=[pytest.mark.long, pytest.mark.timeout(600)])],
)
def test_killed_at_any_moment_nothing_that_was_told_is_lost(cluster, folder, points):
    chance = random.Random(points)
    told: dict[str, int] = {}
    for group in range(points // 5):
        told |= kill_at(folder, [f"p{group}-{n}" for n in range(5)], chance)
    assert sum(told.values()) > points
    with up(cluster, folder) as producer:
        (flushed,) = producer.flush_spool()
        assert flushed.error is None
    for name, count in told.items():
        numbers = numbers_of(cluster, name)
        assert numbers[:count] == list(range(count))
        assert len(numbers) - count <= 1
    assert nsqsmart.spool_status(str(folder)) == []


def test_killed_while_it_sends_nothing_is_lost(cluster, folder):
    with down(folder) as producer:
        for number in range(400):
            producer.publish("t", b"old %d" % number, key=f"key{number % 200}")
    chance = random.Random(5)
    for group in range(2):
        kill_at(folder, [f"p{group}-{n}" for n in range(3)], chance, cluster.url)
    with up(cluster, folder) as producer:
        assert all(found.error is None for found in producer.flush_spool())
    assert set(numbers_of(cluster, "old")) == set(range(400))
