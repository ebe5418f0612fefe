"""How much of a bare recv/parse/FIN loop a Consumer reaches.

python benchmarks/consume.py [--nsqd PROGRAM | --source] [--messages N] [--rounds N]

With --source the messages come from benchmarks/source.py, which is no limit to either.
"""

from __future__ import annotations

import argparse
import sys
import threading

from harness import Sample, judge, nsqd, report, timed
from loops import BATCH, BODY, consume, fill
from source import source

import nsqsmart

RDY = 200
PATIENCE = 120.0
GATES = {"Consumer, 4 workers": 0.25}


def library(address: tuple[str, int], topic: str, count: int, workers: int) -> Sample:
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    server = parser.add_mutually_exclusive_group()
    server.add_argument("--nsqd", help="a real nsqd program instead of the embedded one")
    server.add_argument("--source", action="store_true", help="no nsqd, but a source without limit")
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    count = max(BATCH, chosen.messages // BATCH * BATCH)
    contestants = {
        "bare loop": lambda address, topic: consume(address, topic, count, RDY),
        "Consumer, 4 workers": lambda address, topic: library(address, topic, count, 4),
        "Consumer, workers=0": lambda address, topic: library(address, topic, count, 0),
    }
    rounds = []
    with source() if chosen.source else nsqd(chosen.nsqd) as address:
        for number in range(chosen.rounds):
            samples = {}
            for place, (name, run) in enumerate(contestants.items()):
                topic = f"round{number}-{place}"
                if not chosen.source:
                    fill(address, topic, count)
                samples[name] = run(address, topic)
            rounds.append(samples)
    return judge(GATES, report(f"consume, {len(BODY)} bytes, RDY {RDY}", rounds, "bare loop"))


if __name__ == "__main__":
    sys.exit(main())
