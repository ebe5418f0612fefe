"""Servers as processes of their own, interleaved rounds, ratios with their spread.

A benchmark beside its server in one process measures the interpreter lock; and a machine changes
while it runs, so every round runs every contestant once, and only ratios within a round count.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter, process_time
from typing import NamedTuple

HOST = "127.0.0.1"
_START_SECONDS = 10.0


class Sample(NamedTuple):
    """One contestant's turn: operations a second, and client CPU seconds per million.

    ``p50``: microseconds a call; 0 where calls were not timed. ``source``: CPU seconds per million
    of what it read from; 0 where it was not looked at.
    """

    rate: float
    cpu: float
    p50: float = 0.0
    source: float = 0.0


class Nsqd(NamedTuple):
    """Where a running nsqd listens."""

    tcp: int
    http: int


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return int(sock.getsockname()[1])


@contextmanager
def confined(*, confine: bool) -> Iterator[str]:
    """Processes started here share one core, if *confine* and the system can; yields which.

    To wake a process on another core costs a virtual machine several times what a client does for
    a message, and where the system puts the two changes from turn to turn: without this, who
    waits for each answer is measured by luck.
    """
    every = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if not confine or not every:
        yield f"{len(every) or os.cpu_count()} cores"
        return
    # Interrupts tend to the first.
    os.sched_setaffinity(0, {max(every)})
    try:
        yield f"one of {len(every)} cores"
    finally:
        os.sched_setaffinity(0, every)


@contextmanager
def nsqd(program: str | None) -> Iterator[tuple[str, int]]:
    """A running nsqd, as running() has it; yields host and port."""
    with running(program) as found:
        yield HOST, found.tcp


@contextmanager
def running(program: str | None) -> Iterator[Nsqd]:
    """A running nsqd: *program* (a real one), or the embedded stand-in."""
    port, http_port = free_port(), free_port()
    folder = tempfile.mkdtemp()
    command = [program] if program else [sys.executable, "-m", "nsqsmart.embedded", "nsqd"]
    flags = [
        f"--tcp-address={HOST}:{port}",
        f"--http-address={HOST}:{http_port}",
        f"--data-path={folder}",
        "--mem-queue-size=1000000",
    ]
    log = Path(folder, "log").open("wb")  # noqa: SIM115 - closed below
    process = subprocess.Popen([*command, *flags], stdout=log, stderr=log)
    try:
        for each in (port, http_port):
            _await_port(each, process)
        yield Nsqd(port, http_port)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = monotonic() + _START_SECONDS
    while monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection((HOST, port), timeout=0.2).close()
        except OSError:
            continue
        return
    raise SystemExit("the nsqd did not start")


def connect(address: tuple[str, int]) -> socket.socket:
    """A raw connection after the magic."""
    sock = socket.create_connection(address)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(b"  V2")
    return sock


def timed(count: int, work: Callable[[], object]) -> Sample:
    """Run *work*, which makes *count* operations."""
    cpu, wall = process_time(), perf_counter()
    work()
    elapsed = perf_counter() - wall
    return Sample(count / elapsed, (process_time() - cpu) / count * 1e6)


def shares(rounds: list[dict[str, Sample]], name: str, base: str) -> tuple[float, float, float]:
    """The rate of *name* as a share of that of *base* in the same round: least, median, most."""
    found = sorted(turn[name].rate / turn[base].rate for turn in rounds)
    return found[0], median(found), found[-1]


def report(title: str, rounds: list[dict[str, Sample]], base: str) -> dict[str, float]:
    """Print a table; returns each contestant's median ratio to *base* within a round."""
    print(f"\n{title}: {len(rounds)} interleaved rounds, {os.cpu_count()} cores")
    print(f"  {'':<22}{'per second':>12}{'CPU s/M':>10}   ratio to {base!r} (min .. max)")
    ratios: dict[str, float] = {}
    for name in rounds[0]:
        least, ratios[name], most = shares(rounds, name, base)
        rate = median(turn[name].rate for turn in rounds)
        cpu = median(turn[name].cpu for turn in rounds)
        print(
            f"  {name:<22}{rate:>12,.0f}{cpu:>10.2f}   "
            f"{ratios[name]:.2f} ({least:.2f} .. {most:.2f})"
        )
    return ratios


def judge(gates: dict[str, float], ratios: dict[str, float]) -> int:
    """Print each gate; the exit code."""
    failed = 0
    for name, gate in gates.items():
        good = ratios[name] >= gate
        failed += not good
        print(f"  gate {name}: {ratios[name]:.2f} {'>=' if good else 'BELOW'} {gate:.2f}")
    return int(failed > 0)
