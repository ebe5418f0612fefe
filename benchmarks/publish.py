"""How much of a bare sendall+recv loop Producer.publish reaches.

python benchmarks/publish.py [--nsqd PROGRAM] [--messages N] [--rounds N]
"""

from __future__ import annotations

import argparse
import sys

from harness import Sample, connect, judge, nsqd, report, timed
from loops import BODY

import nsqsmart

GATES = {"Producer.publish": 0.60}


def bare(address: tuple[str, int], topic: str, count: int) -> Sample:
    """The limit: one sendall and one recv a message, in a function."""
    sock = connect(address)
    command = b"PUB %s\n" % topic.encode() + len(BODY).to_bytes(4) + BODY

    def work() -> None:
        send, recv = sock.sendall, sock.recv
        for _ in range(count):
            send(command)
            recv(4096)

    work_sample = timed(count, work)
    sock.close()
    return work_sample


def publish(producer: nsqsmart.Producer, topic: str, count: int) -> Sample:
    """The library, one call a message."""

    def work() -> None:
        for _ in range(count):
            producer.publish(topic, BODY)

    return timed(count, work)


def main() -> int:
    """Run the rounds; 1 if a gate is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nsqd", help="a real nsqd program instead of the embedded one")
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args()
    rounds = []
    with (
        nsqd(chosen.nsqd) as address,
        nsqsmart.Producer(f"nsq://{address[0]}:{address[1]}") as producer,
    ):
        bare(address, "warm", chosen.messages // 10)
        publish(producer, "warm", chosen.messages // 10)
        for number in range(chosen.rounds):
            topic = f"round{number}"
            turns = {
                "bare loop": lambda t=topic: bare(address, t, chosen.messages),
                "Producer.publish": lambda t=topic: publish(producer, t, chosen.messages),
            }
            order = list(turns) if number % 2 else list(turns)[::-1]
            samples = {name: turns[name]() for name in order}
            rounds.append({name: samples[name] for name in turns})
    return judge(GATES, report(f"publish, {len(BODY)} bytes, one at a time", rounds, "bare loop"))


if __name__ == "__main__":
    sys.exit(main())
