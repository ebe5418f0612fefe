"""``stat``, ``lookup``, ``bench`` and ``server``: what there is."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from nsqsmart import Admin, Producer
from nsqsmart.cli import make_parser
from nsqsmart.cli.commands import server
from nsqsmart.embedded import Cluster
from nsqsmart.terminal import table
from tests.helpers import eventually
from tests.programs import free_ports

ONE = pytest.mark.parametrize("cluster", ["redesigned"], indirect=True)


@pytest.fixture
def filled(cluster):
    """Five messages, none of them taken."""
    cluster.create_topic("orders")
    cluster.create_channel("orders", "billing")
    with Producer(cluster.url) as producer:
        producer.publish_many("orders", [b"x"] * 5)
    return cluster


def test_stat_says_what_the_admin_says(filled, nsqsmart):
    (report,) = nsqsmart.records("stat", "--url", filled.url)
    (row,) = report["channels"]
    assert (row["topic"], row["channel"], row["depth"], row["message_count"]) == (
        "orders", "billing", 5, 5,
    )  # fmt: skip
    assert report["unreachable"] == []
    assert "ingress" not in row


@ONE
def test_stat_as_a_table(filled, nsqsmart):
    code, out, err = nsqsmart("stat", "orders", "billing", "--url", filled.url)
    head, row = out.splitlines()
    assert (code, err) == (0, "")
    assert head.split()[:3] == ["topic", "channel", "depth"]
    assert row.split()[:3] == ["orders", "billing", "5"]


def test_stat_sums_over_nsqds():
    with Cluster(dialect="original", nsqds=2) as cluster:
        cluster.create_topic("orders")
        cluster.create_channel("orders", "billing")
        for nsqd in cluster.nsqds:
            with Producer(f"nsq://{nsqd.name}") as producer:
                producer.publish_many("orders", [b"x"] * 3)
        _, out, _ = run_cli("stat", "--json", "--url", cluster.url)
        assert json.loads(out)["channels"][0]["depth"] == 6
        _, out, _ = run_cli("stat", "--json", "--partitions", "--url", cluster.url)
        rows = json.loads(out)["channels"]
        assert [(row["leader"], row["depth"]) for row in rows] == sorted(
            (nsqd.name, 3) for nsqd in cluster.nsqds
        )


def run_cli(*arguments):
    result = subprocess.run(
        [sys.executable, "-m", "nsqsmart", *arguments], capture_output=True, text=True, timeout=30
    )
    return result.returncode, result.stdout, result.stderr


def test_stat_has_rates_with_an_interval(filled, nsqsmart):
    reports = nsqsmart.records("stat", "--interval", "50ms", "--count", "2", "--url", filled.url)
    assert len(reports) == 2
    assert {report["channels"][0]["ingress"] for report in reports} == {0.0}


@ONE
def test_stat_rates_count_what_came_and_went(cluster, nsqsmart):
    cluster.create_topic("orders")
    cluster.create_channel("orders", "billing")
    program = nsqsmart.start("stat", "--interval", "200ms", "--json", "--url", cluster.url)
    json.loads(program.stdout.readline())
    with Producer(cluster.url) as producer:
        producer.publish_many("orders", [b"x"] * 100)
    rate = 0.0
    while not rate:
        rate = json.loads(program.stdout.readline())["channels"][0]["ingress"]
    assert 0 < rate <= 100 / 0.2
    program.send_signal(signal.SIGINT)
    assert program.wait(20) == 130


@pytest.mark.parametrize("words", [["nowhere"], ["orders", "nowhere"]])
def test_stat_of_what_is_not_there_is_a_failure(words, nsqsmart):
    with Cluster() as cluster:
        cluster.create_topic("orders")
        code, _, err = nsqsmart("stat", *words, "--url", cluster.url)
    assert code == 1
    assert "'nowhere'" in err


def test_stat_names_the_nsqd_that_gave_none(nsqsmart):
    # The hung one is not missed before it is asked, however late that is.
    with Cluster(nsqds=2, auto_create=True, election_delay=60) as cluster:
        cluster.create_topic("orders")
        cluster.hang(cluster.nsqds[0])
        arguments = ("stat", "--url", cluster.url, "--response-timeout", "1s")
        code, out, _ = nsqsmart(*arguments)
        assert code == 75
        assert f"no figures from {cluster.nsqds[0].name}" in out
        cluster.wake(cluster.nsqds[0])


@ONE
def test_a_reader_that_leaves_ends_stat_quietly(filled, nsqsmart):
    program = nsqsmart.start("stat", "--interval", "50ms", "--url", filled.url)
    program.stdout.readline()
    program.stdout.close()
    assert program.wait(20) == 0
    assert program.stderr.read() == b""


def test_lookup_of_everything(filled, nsqsmart):
    (found,) = nsqsmart.records("lookup", "--url", filled.url)
    assert found["topics"] == ["orders"]
    (node,) = found["nsqds"]
    assert (node["nsqd"], node["dialect"]) == (filled.nsqds[0].name, str(filled.dialect))
    code, out, _ = nsqsmart("lookup", "--url", filled.url)
    assert code == 0
    assert filled.nsqds[0].name in out
    assert "  orders" in out


@ONE
def test_lookup_of_a_lone_nsqd_says_what_it_cannot_know(filled, nsqsmart):
    code, out, _ = nsqsmart("lookup", "--nsqd-tcp-address", filled.nsqds[0].name)
    assert code == 0
    assert filled.nsqds[0].name in out
    assert "nsq+lookupd://" in out


def test_lookup_of_a_topic_has_leaders(nsqsmart):
    with Cluster(nsqds=2) as cluster:
        cluster.create_topic("orders", 2, 2, ordered=True)
        (found,) = nsqsmart.records("lookup", "orders", "--url", cluster.url)
        (topic,) = found["topics"]
        leaders = [cluster.leader("orders", number).name for number in range(2)]
        assert [each["leader"] for each in topic["partitions"]] == leaders
        _, out, _ = nsqsmart("lookup", "orders", "--url", cluster.url)
    assert out.splitlines()[0] == "orders: 2 partitions, 2 replicas, ordered"
    assert out.splitlines()[2].split() == ["0", leaders[0]]


def test_lookup_of_an_unknown_topic_is_a_failure(nsqsmart):
    with Cluster() as cluster:
        code, out, err = nsqsmart("lookup", "nowhere", "--url", cluster.url)
    assert code == 1
    assert "nowhere" in out
    assert "no lookup knows the topic nowhere" in err


def test_bench_leaves_nothing_behind(cluster, nsqsmart):
    (report,) = nsqsmart.records("bench", "-n", "500", "--url", cluster.url)
    assert (report["published"], report["consumed"]) == (500, 500)
    assert report["publish_rate"] > 0
    assert Admin(cluster.url).topics() == []


def test_bench_of_a_lone_nsqd_one_by_one(cluster, nsqsmart):
    code, out, err = nsqsmart(
        "bench", "-n", "50", "--one-by-one", "--url", f"nsq://{cluster.nsqds[0].name}"
    )
    assert code == 0, err
    assert out.startswith("published  50 messages of 200 bytes")


@pytest.mark.parametrize("hung", [False, True])
def test_ctrl_c_ends_bench_also_while_a_server_hangs(redesigned, nsqsmart, hung):
    # Whatever it might wait for lasts longer than is waited here.
    patient = ("--close-timeout", "60")
    program = nsqsmart.start("bench", "-n", "10000000", "--url", redesigned.url, *patient)
    eventually(lambda: redesigned.log.of("SUB"), what="it has begun")
    for nsqd in redesigned.nsqds if hung else ():
        redesigned.hang(nsqd)
    program.send_signal(signal.SIGINT)
    assert program.wait(30) == 130
    for nsqd in redesigned.nsqds if hung else ():
        redesigned.wake(nsqd)
    assert hung or Admin(redesigned.url).topics() == []


@pytest.mark.parametrize("dialect", ["original", "redesigned"])
def test_the_server_serves_until_it_is_told(dialect, nsqsmart):
    program = nsqsmart.start("server", "--dialect", dialect, "--topic", "orders", "--json")
    url = json.loads(program.stdout.readline())["url"]
    assert nsqsmart("pub", "orders", "x", "--url", url)[0] == 0
    assert nsqsmart("tail", "orders", "--channel", "c", "-n", "1", "--url", url)[1] == "x\n"
    program.send_signal(signal.SIGTERM)
    assert program.wait(20) == 130
    assert b"its messages are gone" in program.stderr.read()


def test_two_servers_get_along(nsqsmart):
    programs = [nsqsmart.start("server", "--json") for _ in range(2)]
    urls = {json.loads(each.stdout.readline())["url"] for each in programs}
    assert len(urls) == 2


def test_a_port_that_is_taken_is_named(nsqsmart):
    with Cluster() as cluster:
        port = cluster.lookupds[0].http_address[1]
        code, _, err = nsqsmart("server", "--port", port)
    assert code == 1
    assert f"--port {port}" in err


def test_the_server_makes_ordered_topics(nsqsmart):
    program = nsqsmart.start(
        "server", "--partitions", "2", "--replicas", "2", "--topic", "orders", "--ordered"
    )
    lines = iter(program.stdout.readline, b"")
    url = next(line.split(b"=")[1] for line in lines if b"NSQSMART_URL=" in line).decode().strip()
    (found,) = nsqsmart.records("lookup", "orders", "--url", url)
    assert found["topics"][0]["ordered"]
    assert len(found["topics"][0]["partitions"]) == 2


def test_the_server_keeps_what_it_is_told_to_keep(nsqsmart, tmp_path):
    arguments = ("server", "--data-path", tmp_path / "data", "--topic", "orders", "--json")
    program = nsqsmart.start(*arguments)
    url = json.loads(program.stdout.readline())["url"]
    eventually(lambda: "orders" in Admin(url).topics())
    assert nsqsmart("pub", "orders", "kept", "--url", url)[0] == 0
    program.send_signal(signal.SIGINT)
    assert program.wait(20) == 130
    program = nsqsmart.start(*arguments)
    url = json.loads(program.stdout.readline())["url"]
    eventually(lambda: "orders" in Admin(url).topics())
    assert nsqsmart("tail", "orders", "--channel", "c", "-n", "1", "--url", url)[1] == "kept\n"


def test_a_port_that_is_taken_costs_nothing_that_is_kept(nsqsmart, tmp_path, monkeypatch):
    _, commands = make_parser("server")
    flags = ["--data-path", str(tmp_path), "--topic", "orders"]
    chosen = commands.choices["server"].understand(flags)
    chosen.dialect, chosen.nsqds = "original", 1
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(server, "_NSQD_PORT", taken.getsockname()[1])
        monkeypatch.setattr(server, "_LOOKUPD_PORT", 0)
        for count in (1, 2):
            with server._serving(chosen) as url:
                eventually(lambda url=url: "orders" in Admin(url).topics())
                assert nsqsmart("pub", "orders", "kept", "--url", url)[0] == 0
                (found,) = nsqsmart.records("stat", "orders", "--url", url)
                assert found["channels"][0]["depth"] == count


def test_a_table_puts_figures_to_the_right():
    assert table(["a", "figure"], [["x", 1], ["yy", 1000], ["z", None]]) == [
        "a   figure",
        "x        1",
        "yy   1,000",
        "z        -",
    ]


@ONE
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no pseudo terminals here")
@pytest.mark.parametrize("no_color", [False, True])
def test_a_terminal_gets_a_live_table_unless_told_otherwise(filled, no_color):
    pytest.importorskip("rich")
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", **({"NO_COLOR": "1"} if no_color else {})}
    arguments = ["stat", "--interval", "0.05", "--count", "2", "--url", filled.url]
    subprocess.run(
        [sys.executable, "-m", "nsqsmart", *arguments],
        stdout=theirs, env=environment, timeout=30,
    )  # fmt: skip
    os.close(theirs)
    shown = os.read(ours, 1 << 16)
    os.close(ours)
    assert b"orders" in shown
    assert (b"\x1b[" in shown) == (not no_color)


BAR = "from nsqsmart.cli import main; raise SystemExit(main())"
NO_RICH = "import sys; sys.modules['rich'] = None; " + BAR


@ONE
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no pseudo terminals here")
@pytest.mark.parametrize(
    ("code", "environment", "shown"),
    [(BAR, {}, True), (BAR, {"NO_COLOR": "1"}, False), (NO_RICH, {}, False)],
    ids=["rich", "NO_COLOR", "without rich"],
)
def test_a_bar_is_for_who_watches_stderr(cluster, tmp_path, code, environment, shown):
    pytest.importorskip("rich")
    file = tmp_path / "lines"
    file.write_bytes(b"x\n" * 2000)
    ours, theirs = os.openpty()
    result = subprocess.run(
        [sys.executable, "-c", code, "pub", "orders", "--file", file, "--url", cluster.url],
        stdout=subprocess.PIPE, stderr=theirs, timeout=30,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80", **environment},
    )  # fmt: skip
    os.write(theirs, b"end")
    os.close(theirs)
    seen = os.read(ours, 1 << 16)
    os.close(ours)
    assert (result.returncode, result.stdout) == (0, b"")
    assert (b"pub orders" in seen) == shown
    assert shown or seen == b"end"


def test_lookups_take_the_ports_they_are_given():
    (port,) = free_ports(1)
    with Cluster(lookupds=2, lookupd_ports=[port]) as cluster:
        assert cluster.lookupds[0].http_address[1] == port
        assert cluster.url.startswith(f"nsq+lookupd://127.0.0.1:{port},")
