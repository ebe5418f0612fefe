"""What a flag says it does is done."""

from __future__ import annotations

import contextlib
import gzip
import sys
from types import SimpleNamespace

import pytest

from nsqsmart import Admin, Producer
from nsqsmart.cli import main
from nsqsmart.cli.commands import demo, server
from nsqsmart.embedded import Cluster
from tests.helpers import eventually


@pytest.fixture
def told(monkeypatch):
    """What the demo was to tell: a story that takes no time, and shows a bar."""
    works = []

    class Story:
        def __init__(self, cluster, work, printer):
            self.printer = printer
            works.append(work)

        def tell(self):
            self.printer.bar("publish", 1, 2)
            self.printer.line("told")

        def report(self, **facts):
            return {"ok": True, "checks": {}, **facts}

    monkeypatch.setattr(demo, "Story", Story)
    monkeypatch.setattr(demo, "Cluster", lambda **_: contextlib.nullcontext(SimpleNamespace()))

    def tell(*arguments):
        assert main(["demo", "--messages", "200", *arguments]) == 0
        return works[-1]

    return tell


def test_the_seed_of_the_demo_decides_on_keys_and_failures(told):
    one, same, other = (told("--seed", seed) for seed in ("1", "1", "2"))
    assert (one.orders.keys, one.failing) == (same.orders.keys, same.failing)
    assert one.orders.keys != other.orders.keys
    assert told().orders.keys == told("--seed", "7").orders.keys


def test_plain_lines_have_no_moving_bar(told, capsys, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    told()
    assert "\r" in capsys.readouterr().out
    told("--plain")
    printed = capsys.readouterr().out
    assert "told" in printed
    assert "\r" not in printed


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "kept"])
@pytest.mark.parametrize(("flags", "count"), [((), 1), (("--nsqds", "3"), 3)])
def test_a_server_has_as_many_nsqds_as_it_is_told(kept, flags, count, tmp_path, monkeypatch):
    urls, nodes = [], []
    name = "_kept" if kept else "_in_memory"
    start = getattr(server, name)

    def look(_ending, _turn):
        admin = Admin(urls[-1])
        eventually(lambda: len(admin.nodes()) >= count, timeout=5)
        nodes.extend(admin.nodes())
        return True  # it ends

    def noting(*arguments):
        urls.append(start(*arguments))
        return urls[-1]

    for port in ("_LOOKUPD_PORT", "_NSQD_PORT"):
        monkeypatch.setattr(server, port, 0)  # any
    monkeypatch.setattr(server, name, noting)
    monkeypatch.setattr(server.Ending, "wait", look)
    folder = ("--data-path", str(tmp_path)) if kept else ()
    main(["server", "--json", *flags, *folder])
    assert len(nodes) == count


def test_gzip_takes_as_much_trouble_as_it_is_told(nsqsmart, tmp_path):
    """The header says so: 4 is the fastest, 2 the smallest."""
    bodies = [b"message %d" % number for number in range(50)]
    with Cluster(dialect="original") as cluster:
        cluster.create_topic("orders")
        for channel in ("fast", "small"):
            cluster.create_channel("orders", channel)
        with Producer(cluster.url) as producer:
            producer.publish_many("orders", bodies)
        for channel, level, mark in (("fast", 1, 4), ("small", 9, 2)):
            folder = tmp_path / channel
            (report,) = nsqsmart.records(
                *("to-file", "orders", "--channel", channel, "-n", "50", "--output-dir", folder),
                *("--gzip", "--gzip-level", level, "--url", cluster.url),
            )
            (file,) = folder.glob("*.gz")
            assert report["files"] == [str(file)]
            data = file.read_bytes()
            assert data[8] == mark
            assert gzip.decompress(data).splitlines() == bodies
