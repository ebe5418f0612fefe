"""``to-file``: what is finished is on the disk, whatever happens."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import random
import signal
import sys
import time
import zlib
from pathlib import Path

import pytest

from nsqsmart import Admin, Producer
from nsqsmart.cli.files import appended
from nsqsmart.embedded import Cluster
from tests.helpers import eventually

PLAIN = ("--filename-format", "<TOPIC><REV>.log", "--sync-interval", "50ms")


@pytest.fixture
def filled(cluster):
    """A channel with a hundred messages, of either dialect."""
    return with_messages(cluster)


@pytest.fixture
def original():
    """The same of one dialect, for what has nothing to do with servers."""
    with Cluster(dialect="original") as cluster:
        yield with_messages(cluster)


def with_messages(cluster):
    cluster.create_topic("orders")
    cluster.create_channel("orders", "nsq_to_file")
    fill(cluster, range(100))
    return cluster


def fill(cluster, numbers, topic="orders"):
    with Producer(cluster.url) as producer:
        producer.publish_many(topic, [b"message %d" % number for number in numbers], split=True)


def unfinished(cluster):
    stats = Admin(cluster.url).stats("orders", "nsq_to_file")
    return sum(channel.unfinished for each in stats.topics for channel in each.channels)


def lines(numbers):
    return [b"message %d" % number for number in numbers]


def test_bodies_line_by_line_and_nothing_left_on_the_server(filled, nsqsmart, tmp_path):
    arguments = ("to-file", "orders", "-n", "100", "--output-dir", tmp_path, *PLAIN)
    (report,) = nsqsmart.records(*arguments, "--url", filled.url)
    assert report == {"messages": 100, "files": [str(tmp_path / "orders.log")]}
    assert (tmp_path / "orders.log").read_bytes().splitlines() == lines(range(100))
    eventually(lambda: unfinished(filled) == 0)


def test_a_second_run_appends(original, nsqsmart, tmp_path):
    arguments = ("to-file", "orders", "-n", "50", "--output-dir", tmp_path, *PLAIN)
    for _ in range(2):
        assert nsqsmart(*arguments, "--url", original.url) == (0, "", "")
    assert sorted((tmp_path / "orders.log").read_bytes().splitlines()) == sorted(lines(range(100)))


def test_no_message_is_finished_before_fsync(filled, nsqsmart, tmp_path, monkeypatch):
    fsync, seen = os.fsync, []

    def look(descriptor):
        size = os.fstat(descriptor).st_size
        written = (tmp_path / "orders.log").exists() and size > 0
        fsync(descriptor)
        if written and not os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112
            whole = (tmp_path / "orders.log").read_bytes().count(b"\n")
            seen.append((whole, 100 - unfinished(filled)))

    monkeypatch.setattr(appended.os, "fsync", look)
    arguments = ("to-file", "orders", "-n", "100", "--output-dir", tmp_path, *PLAIN)
    code, _, err = nsqsmart(*arguments, "--max-in-flight", "30", "--url", filled.url)
    assert code == 0, err
    assert len(seen) > 3
    assert all(finished < whole for whole, finished in seen)


@pytest.mark.parametrize("call", ["fsync", "write"])
def test_a_disk_that_fails_ends_it_and_finishes_nothing(
    original, nsqsmart, tmp_path, monkeypatch, call
):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    if call == "fsync":
        fsync = os.fsync
        regular = lambda fd: not os.path.isdir(f"/proc/self/fd/{fd}")  # noqa: E731, PTH112
        monkeypatch.setattr(appended.os, "fsync", lambda fd: fail() if regular(fd) else fsync(fd))
    else:
        monkeypatch.setattr(appended, "_put", fail)
    code, _, err = nsqsmart(
        "to-file", "orders", "--output-dir", tmp_path, *PLAIN, "--url", original.url
    )
    assert code == 1
    assert "No space left on device" in err
    assert "orders.log" in err
    assert unfinished(original) == 100


def test_a_torn_end_is_cut_off_before_anything_follows(original, nsqsmart, tmp_path):
    file = tmp_path / "orders.log"
    file.write_bytes(b"whole\ntorn mess")
    arguments = ("to-file", "orders", "-n", "100", "--output-dir", tmp_path, *PLAIN)
    code, _, err = nsqsmart(*arguments, "--url", original.url)
    assert code == 0
    assert "9 bytes of a message that was not finished" in err
    assert file.read_bytes().splitlines() == [b"whole", *lines(range(100))]


def test_two_do_not_write_one_file(original, nsqsmart, tmp_path):
    arguments = ("to-file", "orders", "--output-dir", tmp_path, *PLAIN, "--url", original.url)
    first = nsqsmart.start(*arguments)
    eventually(lambda: unfinished(original) == 0, every=0.05)
    fill(original, range(100, 200))
    code, _, err = nsqsmart(*arguments, "--max-in-flight", "50")
    assert code == 1
    assert "orders.log is being written by another process" in err
    assert "<PID>" in err
    eventually(lambda: unfinished(original) == 0, every=0.05)
    first.send_signal(signal.SIGTERM)
    assert first.wait(20) == 130
    assert "200 messages in 1 file" in first.stderr.read().decode()
    assert set((tmp_path / "orders.log").read_bytes().splitlines()) == set(lines(range(200)))


def test_rotation_by_size_and_gzip(original, nsqsmart, tmp_path):
    (report,) = nsqsmart.records(
        "to-file", "orders", "-n", "100", "--output-dir", tmp_path, "-gzip=true",
        "--rotate-size", "300", "--max-in-flight", "10", "--url", original.url, *PLAIN,
    )  # fmt: skip
    files = sorted(tmp_path.glob("orders-*.log.gz"))
    assert report["files"] == [str(file) for file in files]
    assert len(files) > 2
    found = [line for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert found == lines(range(100))


def test_a_file_is_ended_when_it_is_time_though_nothing_comes(original, nsqsmart, tmp_path):
    program = nsqsmart.start(
        "to-file", "orders", "--output-dir", tmp_path / "out", "--work-dir", tmp_path / "work",
        "--rotate-interval", "300ms", "--skip-empty-files", "--url", original.url, *PLAIN,
    )  # fmt: skip

    def ended():
        return [
            line
            for file in sorted((tmp_path / "out").glob("orders-*.log"))
            for line in file.read_bytes().splitlines()
        ]

    # On a busy machine they may come so slowly that they are in several files.
    eventually(lambda: ended() == lines(range(100)))
    eventually(lambda: list((tmp_path / "work").iterdir()) == [])
    fill(original, range(100, 110))
    eventually(lambda: ended() == lines(range(110)))
    program.send_signal(signal.SIGINT)
    assert program.wait(20) == 130


def test_a_finished_file_is_never_written_over(original, nsqsmart, tmp_path):
    out = tmp_path / "out"
    arguments = ("to-file", "orders", "--output-dir", out, "--work-dir", tmp_path / "work", *PLAIN)
    program = nsqsmart.start(*arguments, "--url", original.url)
    eventually(lambda: unfinished(original) == 0, every=0.05)
    out.mkdir(exist_ok=True)
    (out / "orders-000000.log").write_text("another program's")
    program.send_signal(signal.SIGTERM)
    assert program.wait(20) == 130
    assert (out / "orders-000000.log").read_text() == "another program's"
    assert (out / "orders-000001.log").read_bytes().splitlines() == lines(range(100))


def test_folders_on_different_filesystems_are_refused_before_anything_is_taken(
    original, nsqsmart, tmp_path, monkeypatch
):
    out, work = tmp_path / "out", tmp_path / "work"
    stat = Path.stat

    def elsewhere(path, **options):
        found = stat(path, **options)
        if path != work:
            return found
        mode, number, device, *rest = found
        return os.stat_result((mode, number, device + 1, *rest))

    monkeypatch.setattr(Path, "stat", elsewhere)
    code, _, err = nsqsmart(
        "to-file", "orders", "-n", "100", "--output-dir", out, "--work-dir", work, "--url",
        original.url, *PLAIN,
    )  # fmt: skip
    assert code == 2
    assert f"--work-dir {work} and --output-dir {out} are on different filesystems" in err
    assert unfinished(original) == 100
    assert [*out.iterdir(), *work.iterdir()] == []


def test_hang_up_begins_a_new_file(original, nsqsmart, tmp_path):
    program = nsqsmart.start(
        "to-file", "orders", "--output-dir", tmp_path, "--rotate-size", "1000000", "--url",
        original.url, *PLAIN,
    )  # fmt: skip
    eventually(lambda: unfinished(original) == 0, every=0.05)
    program.send_signal(signal.SIGHUP)
    eventually((tmp_path / "orders-000001.log").exists)
    program.send_signal(signal.SIGTERM)
    assert program.wait(20) == 130
    assert (tmp_path / "orders-000000.log").read_bytes().splitlines() == lines(range(100))


def test_json_lines(original, nsqsmart, tmp_path):
    arguments = ("to-file", "orders", "-n", "100", "--output-dir", tmp_path, "--format", "json")
    assert nsqsmart(*arguments, *PLAIN, "--url", original.url)[0] == 0
    found = [json.loads(line) for line in (tmp_path / "orders.log").read_bytes().splitlines()]
    assert [each["body"].encode() for each in found] == lines(range(100))
    assert {each["topic"] for each in found} == {"orders"}


def test_parquet_files_are_whole_and_nothing_else_is_left(filled, nsqsmart, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    (report,) = nsqsmart.records(
        "to-file", "orders", "-n", "100", "--output-dir", tmp_path, "--format", "parquet",
        "--max-in-flight", "40", "--url", filled.url,
    )  # fmt: skip
    assert sorted(report["files"]) == sorted(str(each) for each in tmp_path.iterdir())
    tables = [parquet.read_table(file) for file in report["files"]]
    rows = [row for table in tables for row in table.to_pylist()]
    assert sorted(row["value"] for row in rows) == sorted(lines(range(100)))
    original = str(filled.dialect) == "original"
    assert all((row["internal_id"] is None) == original for row in rows)
    assert {row["nsqd"] for row in rows} == {filled.nsqds[0].name}
    pytest.importorskip("pyspark")
    from nsqsmart.spark.schema import arrow_schema

    assert tables[0].schema == arrow_schema(headers=False)


def test_parquet_without_pyarrow_says_what_to_do(original, nsqsmart, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = nsqsmart("to-file", "orders", "--format", "parquet", "--url", original.url)
    assert code == 1
    assert "pip install pyarrow" in err


def test_topics_like_a_pattern_also_later_ones(cluster, nsqsmart, tmp_path):
    cluster.create_topic("clicks")
    cluster.create_channel("clicks", "nsq_to_file")
    program = nsqsmart.start(
        "to-file", "--topic-pattern", "^(orders|clicks)$", "--topic-refresh", "200ms",
        "--output-dir", tmp_path, "--url", cluster.url, *PLAIN,
    )  # fmt: skip
    fill(cluster, range(3), "clicks")
    for topic in ("orders", "other"):
        cluster.create_topic(topic)
        cluster.create_channel(topic, "nsq_to_file")
        fill(cluster, range(5), topic)

    def written(name, count):
        file = tmp_path / name
        return file.exists() and file.read_bytes().count(b"\n") == count

    eventually(lambda: written("orders.log", 5) and written("clicks.log", 3))
    program.send_signal(signal.SIGTERM)
    assert program.wait(20) == 130
    assert not (tmp_path / "other.log").exists()


def test_a_name_with_everything_in_it(original, nsqsmart, tmp_path):
    (report,) = nsqsmart.records(
        "to-file", "orders", "-n", "100", "--output-dir", tmp_path, "--host-identifier", "shop",
        "--filename-format", "<DATETIME>/<TOPIC>.<HOST>.<PID>.log", "--datetime-format", "%Y",
        "--url", original.url,
    )  # fmt: skip
    year = time.strftime("%Y")
    assert report["files"] == [str(tmp_path / year / f"orders.shop.{os.getpid()}.log")]


@pytest.mark.parametrize(
    ("cluster", "kind"),
    [("original", "lines"), ("redesigned", "gzip"), ("redesigned", "json")],
    indirect=["cluster"],
)
def test_kill_9_loses_no_finished_message(cluster, nsqsmart, tmp_path, kind):
    cluster.create_topic("orders")
    cluster.create_channel("orders", "nsq_to_file")
    flags = {"lines": (), "gzip": ("--gzip",), "json": ("--format", "json")}[kind]
    # An original nsqd waits so long before it sends again what a lost connection had.
    slow = ("--max-in-flight", "20", "--msg-timeout", "1s")
    arguments = ("to-file", "orders", "--output-dir", tmp_path, *slow, *flags)
    chance = random.Random(7)

    def size():
        return sum(file.stat().st_size for file in tmp_path.iterdir())

    for first in range(0, 2400, 600):
        # More for each of them, and for the last: all may be written before anybody looks.
        fill(cluster, range(first, first + 600))
        wanted = size() + chance.randrange(1, 2000)
        program = nsqsmart.start(*arguments, "--url", cluster.url, *PLAIN)
        eventually(lambda wanted=wanted: size() > wanted)
        program.kill()
        program.wait()
    fill(cluster, range(2400, 2500))
    program = nsqsmart.start(*arguments, "--url", cluster.url, *PLAIN)
    eventually(lambda: unfinished(cluster) == 0, timeout=30, every=0.05)
    program.send_signal(signal.SIGTERM)
    assert program.wait(20) == 130
    found = [line for file in tmp_path.iterdir() for line in read(file).splitlines()]
    if kind == "json":
        found = [json.loads(line)["body"].encode() for line in found]
    assert set(found) == set(lines(range(2500)))


def read(file):
    """What is in it; of a packed one the members that are whole."""
    data = file.read_bytes()
    if file.suffix != ".gz":
        return data
    whole = io.BytesIO()
    while data:
        member = zlib.decompressobj(31)
        try:
            text = member.decompress(data)
        except zlib.error:
            break
        if not member.eof:
            break
        whole.write(text)
        data = member.unused_data
    return whole.getvalue()
