"""``tail``: what is printed, what is given back, and how it ends."""

from __future__ import annotations

import argparse
import json
import signal
from types import SimpleNamespace

import pytest

from nsqsmart import Admin, Producer
from nsqsmart.cli.commands.tail import _MessagePrinter
from nsqsmart.cli.common.ending import Ending
from tests.helpers import eventually

ONE = pytest.mark.parametrize("cluster", ["redesigned"], indirect=True)


def listening(cluster, topic):
    """Whether a channel listens to *topic*."""
    stats = Admin(cluster.url).stats(topic)
    return any(channel.clients for each in stats.topics for channel in each.channels)


@pytest.fixture
def tail(cluster, nsqsmart):
    """Start ``tail`` of the topic orders, and wait until it listens."""
    cluster.create_topic("orders")

    def start(*arguments):
        program = nsqsmart.start("tail", "orders", "--url", cluster.url, *arguments)
        eventually(lambda: listening(cluster, "orders"), every=0.05)
        return program

    return start


def publish(cluster, *bodies, topic="orders"):
    with Producer(cluster.url) as producer:
        for body in bodies:
            producer.publish(topic, body)


def test_bodies_as_they_are_and_an_end_after_n(cluster, tail):
    program = tail("-n", "2")
    publish(cluster, b"one", b"\xff\n two", b"three")
    out, err = program.communicate(timeout=20)
    assert (program.returncode, err) == (0, b"")
    assert out == b"one\n\xff\n two\n"


def test_what_comes_behind_the_last_one_is_kept_for_the_end(capfdbinary):
    chosen = argparse.Namespace(n=1, json=False, print_topic=False, grep=None, partition=None)
    printer = _MessagePrinter(chosen, Ending())
    kept = []
    message = SimpleNamespace(
        topic="orders", body=b"one", partition=None, detach=lambda: kept.append("it")
    )
    printer.show(message)
    assert not kept
    printer.show(message)
    assert kept == ["it"]
    assert capfdbinary.readouterr().out == b"one\n"


@ONE
def test_its_channel_vanishes_with_it(cluster, tail):
    program = tail("-n", "1")
    (channel,) = Admin(cluster.url).stats("orders").topics[0].channels
    assert channel.channel.startswith("tail")
    assert channel.channel.endswith("#ephemeral")
    publish(cluster, b"one")
    assert program.wait(20) == 0
    eventually(lambda: not any(t.channels for t in Admin(cluster.url).stats("orders").topics))


def test_json_has_what_is_known_of_a_message(cluster, tail):
    program = tail("-n", "2", "--json")
    publish(cluster, b"one", b"\xff")
    first, second = map(json.loads, program.communicate(timeout=20)[0].splitlines())
    assert (first["topic"], first["body"], first["attempts"]) == ("orders", "one", 1)
    assert second["body_base64"] == "/w=="
    assert ("partition" in first) == (cluster.dialect == "redesigned")


@ONE
def test_topics_in_front_grep_and_go_flags(cluster, nsqsmart):
    for topic in ("orders", "clicks"):
        cluster.create_topic(topic)
    program = nsqsmart.start(
        "tail", "--topic=orders", "--topic", "clicks", "-print-topic=true", "--grep", "^[ab]",
        "-lookupd-http-address", cluster.lookupds[0].name, "-n", "2", "-max-in-flight", "5",
    )  # fmt: skip
    eventually(lambda: listening(cluster, "orders") and listening(cluster, "clicks"), every=0.05)
    publish(cluster, b"xa", b"a")
    publish(cluster, b"b", topic="clicks")
    out, _ = program.communicate(timeout=20)
    assert sorted(out.splitlines()) == [b"clicks | b", b"orders | a"]


def test_what_is_not_printed_stays_in_a_channel_that_lasts(cluster, nsqsmart):
    cluster.create_topic("orders")
    cluster.create_channel("orders", "audit")
    publish(cluster, *(b"%d" % number for number in range(10)))
    arguments = ("tail", "orders", "--channel", "audit", "-n", "4", "--url", cluster.url)
    assert nsqsmart(*arguments)[1].split() == ["0", "1", "2", "3"]
    assert nsqsmart(*arguments)[0] == 0

    def left():
        return sum(c.unfinished for t in Admin(cluster.url).stats().topics for c in t.channels)

    eventually(lambda: left() == 2)


def test_one_partition_alone(redesigned, nsqsmart):
    redesigned.create_topic("orders", partitions=2)
    program = nsqsmart.start(
        "tail", "orders", "--partition", "1", "-n", "2", "--url", redesigned.url
    )

    def both():
        stats = Admin(redesigned.url).stats("orders")
        return sum(channel.clients for each in stats.topics for channel in each.channels) == 2

    eventually(both, every=0.05)
    with Producer(redesigned.url) as producer:
        for number in range(4):
            producer.publish("orders", b"%d" % number, partition=number % 2)
    assert program.communicate(timeout=20)[0] == b"1\n3\n"


@ONE
def test_a_reader_that_leaves_ends_it_quietly(cluster, tail):
    program = tail()
    publish(cluster, b"one")
    assert program.stdout.readline() == b"one\n"
    program.stdout.close()
    publish(cluster, b"two")
    assert program.wait(20) == 0
    assert program.stderr.read() == b""


@ONE
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_and_says_how_many(cluster, tail, number):
    program = tail()
    publish(cluster, b"one")
    assert program.stdout.readline() == b"one\n"
    program.send_signal(number)
    assert program.wait(20) == 130
    assert program.stderr.read().decode() == "nsqsmart tail: interrupted: 1 message printed\n"


def test_ctrl_c_while_nobody_answers(nsqsmart):
    program = nsqsmart.start("tail", "orders", "--url", "nsq+lookupd://127.0.0.1:1")
    assert b"127.0.0.1:1" in program.stderr.readline()
    program.send_signal(signal.SIGINT)
    assert program.wait(20) == 130


@ONE
def test_a_stuck_reader_holds_it_up_until_the_second_ctrl_c(cluster, tail):
    program = tail("--close-timeout", "60")
    publish(cluster, b"x" * 500_000)
    # The pipe is not read: the handler is stuck in its write.
    assert program.stdout.read(1) == b"x"
    program.send_signal(signal.SIGINT)
    with pytest.raises(Exception, match="timed out"):
        program.wait(1.5)
    program.send_signal(signal.SIGINT)
    assert program.wait(20) == 130


@ONE
def test_a_channel_that_cannot_be_is_refused_at_once(cluster, nsqsmart):
    code, _, err = nsqsmart("tail", "orders", "--channel", "no channel", "--url", cluster.url)
    assert code == 1
    assert "'no channel'" in err
