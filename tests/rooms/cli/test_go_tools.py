"""Each command beside the Go tool it stands in for, on the same server.

``NSQSMART_TEST_NSQ_BIN`` names a folder with nsqd, nsqlookupd and the tools.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from nsqsmart import Admin, Consumer, Producer
from tests.helpers import eventually
from tests.sites import CHANNEL, running_sites

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

BODIES = [b"message %d" % number for number in range(300)] + [b"\xff\xfe", b"a\tb\r"]


@pytest.fixture(scope="module")
def start_site(tmp_path_factory):
    with running_sites(tmp_path_factory.mktemp) as start:
        yield start


@pytest.fixture(params=["embedded original", "real original"])
def site(request, start_site):
    """Two nsqds and lookups."""
    return start_site(request.param)


@pytest.fixture
def topic(site, request):
    """A new one, on both nsqds."""
    name = f"t{abs(hash(request.node.name)) % 10**8}"
    site.make_topic(name, partitions=1, replicas=1, ordered=False)
    return name


@pytest.fixture
def go(site):
    """Start a tool; it is killed at the end."""
    folder = os.environ.get("NSQSMART_TEST_NSQ_BIN")
    running = []

    def start(name, *arguments, **keywords):
        program = Path(folder or ".") / name
        if not folder or not program.exists():
            pytest.skip(f"NSQSMART_TEST_NSQ_BIN has no {name}")
        keywords = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE} | keywords
        started = subprocess.Popen(
            [program, *map(str, arguments)], stderr=subprocess.PIPE, **keywords
        )
        running.append(started)
        return started

    yield start
    for program in running:
        if program.poll() is None:
            program.kill()
        program.communicate()


def lookups(site):
    """The flags that both take."""
    hosts = site.url.partition("://")[2].split(",")
    return [f"--lookupd-http-address={host}" for host in hosts]


def nsqd_of(site):
    return Admin(site.url).nodes()[0].nsqd


def channels_of(site, topic):
    stats = Admin(site.url).stats(topic)
    return [channel for each in stats.topics for channel in each.channels]


def publish(site, topic, bodies):
    """Everything to one nsqd: then there is one order."""
    with Producer(f"nsq://{nsqd_of(site)}") as producer:
        producer.publish_many(topic, bodies)


def drained(site, topic, channel):
    found = [each for each in channels_of(site, topic) if each.channel == channel]
    return bool(found) and not any(each.unfinished for each in found)


def taken(site, topic, count):
    """What is in the topic, in the order in which it is delivered."""
    options = {"address": site.url, "max_in_flight": 1}
    found = []
    with Consumer(topic, CHANNEL, **options) as consumer:
        for message in consumer:
            with message:
                found.append(message.body)
            if len(found) == count:
                return found
    return found


def test_to_nsq_and_pub_store_the_same(site, topic, go, nsqsmart):
    text = b"first\n\n" + b"\n".join(BODIES) + b"\n"
    other = f"{topic}b"
    site.make_topic(other, partitions=1, replicas=1, ordered=False)
    flags = ["--nsqd-tcp-address", nsqd_of(site)]
    theirs = go("to_nsq", "--topic", topic, *flags)
    theirs.communicate(text, timeout=30)
    assert theirs.returncode == 0
    assert nsqsmart.run("pub", "--topic", other, *flags, stdin=text) == (0, b"", "")
    want = [b"first", *BODIES]
    assert taken(site, topic, len(want)) == taken(site, other, len(want)) == want


def test_nsq_tail_and_tail_print_the_same(site, topic, go, nsqsmart):
    flags = ["--topic", topic, "-n", len(BODIES), "--print-topic", *lookups(site)]
    theirs = go("nsq_tail", *flags)
    ours = nsqsmart.start("tail", *flags)

    def both():
        # Each on both nsqds.
        tails = [each for each in channels_of(site, topic) if each.channel.startswith("tail")]
        return sum(each.clients for each in tails) == 4

    eventually(both, 30, every=0.1)
    publish(site, topic, BODIES)
    printed = [program.communicate(timeout=30)[0] for program in (theirs, ours)]
    want = [b"%s | %s" % (topic.encode(), body) for body in BODIES]
    assert sorted(printed[0].split(b"\n")) == sorted(printed[1].split(b"\n"))
    assert sorted(printed[1].split(b"\n")[:-1]) == sorted(want)


def test_nsq_stat_and_stat_report_the_same(site, topic, go, nsqsmart):
    publish(site, topic, BODIES)
    with Consumer(topic, CHANNEL, address=site.url, max_in_flight=40) as consumer:
        held = []
        while len(held) < 5:
            held += consumer.poll(5 - len(held), timeout=10)
        held.pop().requeue(60)
        held.pop().finish()
        eventually(
            lambda: sum(each.deferred for each in channels_of(site, topic)) == 1, 10, every=0.05
        )
        flags = ["--topic", topic, "--channel", CHANNEL, "--interval", "100ms", "--count", 1]
        theirs = go("nsq_stat", *flags, *lookups(site))
        row = theirs.communicate(timeout=30)[0].decode().splitlines()[-1]
        (report,) = nsqsmart.records("stat", *flags, *lookups(site))
        (ours,) = report["channels"]
    figures = [int(word) for word in row.replace("|", " ").split()]
    names = ("depth", None, "backend_depth", "in_flight", "deferred", "requeue_count")
    names += ("timeout_count", "message_count", "clients")
    assert figures[:2] == [round(ours["ingress"]), round(ours["egress"])] == [0, 0]
    for name, figure in zip(names, figures[2:], strict=True):
        if name is not None:
            assert ours[name] == figure, name
    assert ours["in_flight"] == figures[5] >= 3


@pytest.mark.parametrize("flags", [(), ("--gzip",), ("--rotate-size", "700")])
def test_nsq_to_file_and_to_file_write_the_same(site, topic, go, nsqsmart, tmp_path, flags):
    shared = ["--topic", topic, "--sync-interval", "100ms", "--datetime-format", "%Y", *flags]
    shared += ["--host-identifier", "shop", *lookups(site)]
    programs = {
        "theirs": go("nsq_to_file", *shared, "--channel=theirs", f"--output-dir={tmp_path}/theirs"),
        "ours": nsqsmart.start(
            "to-file", *shared, "--channel=ours", f"--output-dir={tmp_path}/ours"
        ),
    }

    def listen():
        return sum(each.clients for each in channels_of(site, topic)) == 4

    eventually(listen, 30, every=0.1)
    publish(site, topic, BODIES)
    for name, program in programs.items():
        eventually(lambda name=name: drained(site, topic, name), 30, every=0.1)
        program.send_signal(signal.SIGTERM)
        program.wait(30)
    files = {name: sorted((tmp_path / name).iterdir()) for name in programs}
    assert {file.name.split("-")[0].split(".")[0] for each in files.values() for file in each} == {
        topic
    }
    if "--rotate-size" not in flags:
        # Where a rotated file ends depends on what had come by then.
        assert [file.name for file in files["ours"]] == [file.name for file in files["theirs"]]
    for found in files.values():
        data = b"".join(read(file) for file in found)
        assert sorted(data.split(b"\n")) == sorted([b"", *BODIES])


def read(file):
    data = file.read_bytes()
    return gzip.decompress(data) if file.suffix == ".gz" else data


def test_nsq_to_nsq_and_copy_store_the_same(site, topic, go, nsqsmart):
    bodies = [json.dumps({"n": n, "kind": "xy"[n % 2], "f": n / 2}).encode() for n in range(60)]
    names = {"theirs": f"{topic}t", "ours": f"{topic}o"}
    for name in names.values():
        site.make_topic(name, partitions=1, replicas=1, ordered=False)
    shared = ["--topic", topic, "--destination-nsqd-tcp-address", nsqd_of(site), *lookups(site)]
    shared += ["--require-json-field", "kind", "--require-json-value", "x"]
    shared += ["--whitelist-json-field", "n", "--whitelist-json-field", "f"]

    def flags(name):
        return [*shared, "--channel", name, "--destination-topic", names[name]]

    programs = [go("nsq_to_nsq", *flags("theirs")), nsqsmart.start("copy", *flags("ours"))]
    eventually(lambda: sum(each.clients for each in channels_of(site, topic)) == 4, 30, every=0.1)
    publish(site, topic, bodies)
    for name in names:
        eventually(lambda name=name: drained(site, topic, name), 30, every=0.1)
    for program in programs:
        program.send_signal(signal.SIGTERM)
        program.wait(30)
    found = {name: sorted(taken(site, to, 30)) for name, to in names.items()}
    assert [json.loads(body) for body in found["ours"]] == [
        json.loads(body) for body in found["theirs"]
    ]
    assert len(found["ours"]) == 30
