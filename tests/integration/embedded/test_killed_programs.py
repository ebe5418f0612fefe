"""The stand-in nsqd as a program that is killed, or ends in order, and comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from nsqsmart.wire import commands
from tests.helpers import eventually
from tests.integration.embedded.rawclient import RawClient, http

BODIES = [b"%d" % number for number in range(10)]


class Program(NamedTuple):
    process: subprocess.Popen[str]
    tcp: tuple[str, int]
    http: tuple[str, int]

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.communicate(timeout=10)

    def depths(self, channel: str = "c") -> tuple[int, int]:
        """depth and backend_depth of a channel, or of the topic."""
        (topic,) = http("GET", self.http, "/stats?format=json&topic=t")[1]["topics"]
        found = [each for each in topic["channels"] if each["channel_name"] == channel]
        queue = found[0] if channel else topic
        return queue["depth"], queue["backend_depth"]


Start = Callable[..., Program]


def address_in(line: str) -> tuple[str, int]:
    host, _, port = line.strip().rpartition(" ")[2].rpartition(":")
    return host.strip("[]"), int(port)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start an nsqd over always the same folder; NSQSMART_TEST_NSQ_BIN takes the real one."""
    running: list[Program] = []
    real = os.environ.get("NSQSMART_TEST_NSQ_BIN")

    def begin(*flags: str, dialect: str = "original") -> Program:
        own = [sys.executable, "-m", "nsqsmart.embedded", "nsqd", f"--dialect={dialect}"]
        command = [f"{real}/nsqd"] if real and dialect == "original" else own
        ports = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
        process = subprocess.Popen(
            [*command, *ports, f"--data-path={tmp_path}", *flags], stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        found = {}
        while len(found) < 2:
            line = process.stderr.readline()
            assert line, "it did not start"
            if "listening on" in line:
                found["HTTP" if "HTTP" in line else "TCP"] = address_in(line)
        running.append(Program(process, found["TCP"], found["HTTP"]))
        return running[-1]

    yield begin
    for program in running:
        program.process.kill()
        program.process.communicate()


def publish(program: Program, *bodies: bytes) -> None:
    client = RawClient(program.tcp)
    for body in bodies:
        assert client.ask(commands.pub("t", body)) == b"OK"
    client.close()


def consume(program: Program, count: int, line: bytes = b"SUB t c\n") -> list[bytes]:
    """The bodies of so many messages, finished, in any order, and that no more come."""
    client = RawClient(program.tcp)
    client.subscribe(line, count + 1)
    found = []
    for _ in range(count):
        message = client.message()
        found.append(message.body)
        client.finish(message)
    assert client.silent(0.1)
    client.close()
    return sorted(found)


def create_channel(program: Program) -> None:
    assert http("POST", program.http, "/topic/create?topic=t")[0] == 200
    assert http("POST", program.http, "/channel/create?topic=t&channel=c")[0] == 200


def noted(folder: Path, name: str, left: int) -> bool:
    """Whether it is noted on disk how many messages of a queue are left.

    A real one loses what it wrote before it first did that.
    """
    meta = folder / f"{name}.diskqueue.meta.dat"
    return meta.exists() and meta.read_text().startswith(f"{left}\n")


def test_memory_is_lost_at_a_kill_and_the_overflow_is_not(start: Start, tmp_path: Path) -> None:
    program = start("--mem-queue-size=4", "--sync-timeout=20ms")
    create_channel(program)
    publish(program, *BODIES)
    # A real one may have some of them on their way from one queue to the other.
    eventually(lambda: program.depths() == (10, 6))
    eventually(lambda: noted(tmp_path, "t:c", 6))
    program.end(signal.SIGKILL)
    program = start("--mem-queue-size=4")
    assert program.depths() == (6, 6)
    assert consume(program, 6) == BODIES[4:]


def test_nothing_is_lost_at_a_kill_without_a_memory_queue(start: Start, tmp_path: Path) -> None:
    program = start("--mem-queue-size=0", "--sync-timeout=20ms")
    create_channel(program)
    publish(program, *BODIES)
    eventually(lambda: program.depths() == (10, 10))
    eventually(lambda: noted(tmp_path, "t:c", 10))
    program.end(signal.SIGKILL)
    program = start("--mem-queue-size=0")
    assert consume(program, 10) == BODIES


def test_a_topic_without_channel_is_a_queue_like_any_other(start: Start, tmp_path: Path) -> None:
    program = start("--mem-queue-size=4", "--sync-timeout=20ms")
    publish(program, *BODIES)
    assert program.depths("") == (10, 6)
    eventually(lambda: noted(tmp_path, "t", 6))
    program.end(signal.SIGKILL)
    program = start("--mem-queue-size=4")
    assert program.depths("") == (6, 6)
    assert consume(program, 6) == BODIES[4:]


def test_everything_is_kept_by_a_program_that_ends_in_order(start: Start) -> None:
    program = start()
    create_channel(program)
    publish(program, *BODIES)
    client = RawClient(program.tcp)
    client.subscribe(b"SUB t c\n", 3)
    held = [client.message() for _ in range(3)]
    client.send(commands.req(held[0].id, 60_000))
    client.finish(held[1])
    # The third stays in flight; the others fill up behind those that were answered.
    client.message()
    client.message()
    program.end(signal.SIGTERM)
    client.close()
    program = start()
    assert program.depths() == (9, 9)
    assert consume(program, 9) == sorted(set(BODIES) - {held[1].body})
    program.end(signal.SIGTERM)
    assert start().depths() == (0, 0)


def test_an_ephemeral_channel_drops_what_memory_has_no_room_for(start: Start) -> None:
    program = start("--mem-queue-size=4")
    client = RawClient(program.tcp)
    client.subscribe(b"SUB t c#ephemeral\n", 0)
    publish(program, *BODIES)
    assert eventually(lambda: program.depths("c#ephemeral") == (4, 0))
    client.send(commands.rdy(10))
    assert sorted(client.message().body for _ in range(4)) == BODIES[:4]
    assert client.silent(0.1)
    client.close()


def test_finished_messages_do_not_come_again_once_that_is_noted(
    start: Start, tmp_path: Path
) -> None:
    program = start("--mem-queue-size=0", "--sync-timeout=20ms")
    create_channel(program)
    publish(program, *BODIES)
    assert consume(program, 10) == BODIES
    eventually(lambda: program.depths() == (0, 0))
    # Noted by the file that says how many are left, or that is gone.
    meta = tmp_path / "t:c.diskqueue.meta.dat"
    eventually(lambda: not meta.exists() or noted(tmp_path, "t:c", 0))
    program.end(signal.SIGKILL)
    program = start("--mem-queue-size=0")
    publish(program, b"new")
    assert consume(program, 1) == [b"new"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_redesigned_nsqd_has_everything_on_disk(start: Start, how: signal.Signals) -> None:
    program = start("--sync-timeout=20ms", dialect="redesigned")
    client = RawClient(program.tcp)
    assert client.ask(b"INTERNAL_CREATE_TOPIC t 0\n") == b"OK"
    client.subscribe(b"SUB_ADVANCED t c 0\n", 2)
    publisher = RawClient(program.tcp)
    for body in BODIES:
        assert publisher.ask(commands.pub("t", body, 0)) == b"OK"
    first, held = client.message(), client.message()
    client.finish(first)
    metadata = Path(program.process.args[-2].partition("=")[2]) / "nsqd.0.dat"
    eventually(lambda: '"position": 1' in metadata.read_text())
    program.end(how)
    for each in (client, publisher):
        each.close()
    program = start(dialect="redesigned")
    client = RawClient(program.tcp)
    client.subscribe(b"SUB_ADVANCED t c 0\n", 20)
    messages = [client.message() for _ in range(9)]
    assert [message.body for message in messages] == BODIES[1:]
    assert messages[0] == held
    client.close()
