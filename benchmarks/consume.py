"""How much of a bare recv/parse/FIN loop a Consumer reaches.

python benchmarks/consume.py [--nsqd PROGRAM] [--messages N] [--rounds N]
"""

from __future__ import annotations

import argparse
import struct
import sys
import threading

from harness import Sample, connect, judge, nsqd, report, timed

import nsqsmart

BODY = b"x" * 200
RDY = 200
BATCH = 1000
PATIENCE = 120.0
GATES = {"Consumer, 4 workers": 0.25}
HEAD = struct.Struct(">IIqH16s")


def fill(address: tuple[str, int], topic: str, count: int) -> None:
    """Store *count* messages before the clock runs."""
    entry = len(BODY).to_bytes(4) + BODY
    batch = BATCH.to_bytes(4) + entry * BATCH
    command = b"MPUB %s\n" % topic.encode() + len(batch).to_bytes(4) + batch
    with connect(address) as sock:
        for _ in range(count // BATCH):
            sock.sendall(command)
            sock.recv(4096)


def bare(address: tuple[str, int], topic: str, count: int) -> Sample:
    """The limit: receive, parse, one FIN batch a recv; no threads, in a function."""

    def work() -> None:
        with connect(address) as sock:
            sock.sendall(b"SUB %s bench\n" % topic.encode())
            sock.recv(4096)
            sock.sendall(b"RDY %d\n" % RDY)
            drain(sock, count)

    return timed(count, work)


def drain(sock: object, count: int) -> None:
    """recv, one unpack a message, FIN."""
    recv, send, unpack = sock.recv, sock.sendall, HEAD.unpack_from  # type: ignore[attr-defined]
    tail = b""
    while count > 0:
        data = tail + recv(65536)
        position, length, ids = 0, len(data), []
        while length - position >= HEAD.size:
            size, _type, _time, _attempts, message_id = unpack(data, position)
            end = position + 4 + size
            if end > length:
                break
            data[position + HEAD.size : end]
            ids.append(message_id)
            position = end
        tail = data[position:]
        if ids:
            send(b"FIN " + b"\nFIN ".join(ids) + b"\n")
            count -= len(ids)


def consume(address: tuple[str, int], topic: str, count: int, workers: int) -> Sample:
    """The library with a trivial handler, from start() to the last message handled."""
    done = threading.Event()
    seen = [0]

    def handle(_message: nsqsmart.Message) -> None:
        seen[0] += 1
        if seen[0] >= count:
            done.set()

    consumer = nsqsmart.Consumer(
        topic,
        "bench",
        handle,
        address=f"nsq://{address[0]}:{address[1]}",
        workers=workers,
        max_in_flight=RDY,
    )

    def work() -> None:
        consumer.start()
        if not done.wait(PATIENCE):
            raise SystemExit(f"only {seen[0]} of {count} messages came")

    sample = timed(count, work)
    consumer.close()
    return sample


def main() -> int:
    """Run the rounds; 1 if a gate is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nsqd", help="a real nsqd program instead of the embedded one")
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    count = max(BATCH, chosen.messages // BATCH * BATCH)
    contestants = {
        "bare loop": lambda address, topic: bare(address, topic, count),
        "Consumer, 4 workers": lambda address, topic: consume(address, topic, count, 4),
        "Consumer, workers=0": lambda address, topic: consume(address, topic, count, 0),
    }
    rounds = []
    with nsqd(chosen.nsqd) as address:
        for number in range(chosen.rounds):
            samples = {}
            for place, (name, run) in enumerate(contestants.items()):
                topic = f"round{number}-{place}"
                fill(address, topic, count)
                samples[name] = run(address, topic)
            rounds.append(samples)
    return judge(GATES, report(f"consume, 200 bytes, RDY {RDY}", rounds, "bare loop"))


if __name__ == "__main__":
    sys.exit(main())
