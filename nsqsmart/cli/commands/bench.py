"""``nsqsmart bench``: how fast messages go in and out, on a topic and channel of its own.

Messages say when they left and come back.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import quantiles
from time import monotonic
from typing import Any

from nsqsmart import (
    Admin,
    AdminConfig,
    Consumer,
    ConsumerConfig,
    Message,
    Pending,
    Producer,
    ProducerConfig,
)
from nsqsmart.cli.common import flags
from nsqsmart.cli.common.ending import in_haste, result_of, wait_for
from nsqsmart.cli.common.parsing import Commands, Parser
from nsqsmart.cli.common.progress import ProgressBar
from nsqsmart.errors import AdminError, TransportError
from nsqsmart.names import check_topic

_HEAD = struct.Struct(">Qd")
_BEHIND = 4000
"""Messages that may be between publishing and consuming: an ephemeral channel of an original nsqd
drops what is beyond its 10,000."""
_MOST_WAITING = 1000
_STEP = 100

_MESSAGES = 20_000
_SIZE = 200
_SMALLEST = 16
_PATIENCE = 60.0
_HASTE = 0.5
_ABOUT = """\
Publish messages and consume them at the same time, on a channel of its own, and print the rates
and how long a message was on its way. Without --topic the topic is made for it and deleted after
it. Every other consumer of the machine slows it down: it measures this machine too.
"""


class Measurement:
    """One run: publish in one thread, take in those of the consumer."""

    def __init__(self, count: int, size: int, bar: ProgressBar) -> None:
        self._count = count
        self._filling = b"x" * (size - _HEAD.size)
        self._size = size
        self._bar = bar
        self._begun = self._published_at = self._consumed_at = 0.0
        self._published = 0
        self._seen: set[int] = set()
        self._times: list[float] = []
        self._more = threading.Condition()  # guards the two above

    def publish(self, producer: Producer, topic: str, *, one_by_one: bool) -> None:
        """Publish all, no faster than they are taken; raises PublishError."""
        waiting: deque[Pending] = deque()
        self._begun = monotonic()
        for number in range(self._count):
            body = _HEAD.pack(number, monotonic()) + self._filling
            if one_by_one:
                producer.publish(topic, body)
            else:
                waiting.append(producer.publish_async(topic, body))
            if len(waiting) > _MOST_WAITING:
                result_of(waiting.popleft())
            if number % _STEP == 0:
                self._hold_back(number)
        for pending in waiting:
            result_of(pending)
        self._published_at = monotonic()
        self._published = self._count

    def _hold_back(self, number: int) -> None:
        with self._more:
            wait_for(self._more, lambda: number - len(self._seen) < _BEHIND, 10)

    def take(self, message: Message) -> None:
        """The handler."""
        number, left = _HEAD.unpack(message.body[: _HEAD.size])
        now = monotonic()
        with self._more:
            if number in self._seen:
                return
            self._seen.add(number)
            self._times.append(now - left)
            self._consumed_at = now
            if len(self._seen) % _STEP == 0 or len(self._seen) == self._count:
                self._more.notify_all()
        self._bar.advance(1)

    def wait(self, patience: float) -> None:
        """Until all have come, or *patience* seconds are over."""
        with self._more:
            wait_for(self._more, lambda: len(self._seen) == self._count, patience)

    def report(self) -> dict[str, Any]:
        """Counts, seconds, messages a second, and milliseconds on the way."""
        with self._more:
            consumed, times = len(self._seen), list(self._times)
        publishing = max(self._published_at - self._begun, 1e-9)
        consuming = max(self._consumed_at - self._begun, 1e-9)
        cuts = quantiles(times, n=100) if len(times) > 1 else (times or [0.0]) * 99
        return {
            "published": self._published,
            "consumed": consumed,
            "size": self._size,
            "publish_seconds": round(publishing, 3),
            "publish_rate": round(self._published / publishing),
            "consume_seconds": round(consuming, 3),
            "consume_rate": round(consumed / consuming),
            "latency_p50_ms": round(cuts[49] * 1000, 2),
            "latency_p99_ms": round(cuts[98] * 1000, 2),
        }

    @staticmethod
    def text(report: dict[str, Any]) -> str:
        """The report for people."""
        megabytes = report["publish_rate"] * report["size"] / 1e6
        return (
            f"published  {report['published']:,} messages of {report['size']} bytes in "
            f"{report['publish_seconds']} s: {report['publish_rate']:,}/s, {megabytes:.1f} MB/s\n"
            f"consumed   {report['consumed']:,} in {report['consume_seconds']} s: "
            f"{report['consume_rate']:,}/s\n"
            f"on the way p50 {report['latency_p50_ms']} ms, p99 {report['latency_p99_ms']} ms"
        )


def add_parser(commands: Commands[Parser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("bench", help="publish and consume rates", description=_ABOUT)
    parser.add_argument(
        "-n",
        "--n",
        type=flags.count,
        default=_MESSAGES,
        metavar="N",
        help=f"messages ({_MESSAGES})",
    )
    parser.add_argument(
        "--size",
        type=_size,
        default=_SIZE,
        metavar="BYTES",
        help=f"bytes in each message ({_SIZE})",
    )
    parser.add_argument("--topic", help="an existing topic; its other channels get them too")
    flags.add_count(parser, "--partitions", "of the topic (1)", default=1)
    parser.add_argument(
        "--one-by-one", action="store_true", help="wait for the answer to each publish"
    )
    flags.add_json(parser, "print one JSON object")
    flags.add_address(parser)
    flags.add_options(parser, ConsumerConfig, ProducerConfig)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Measure; 1 if messages were lost on the way."""
    address = flags.address_of(chosen)
    with ExitStack() as stack:
        topic = chosen.topic or stack.enter_context(_own_topic(chosen, address))
        channel = f"bench{random.randrange(10**6):06}#ephemeral"  # noqa: S311 - a name
        producer = Producer(address, **flags.client_options(chosen, ProducerConfig))
        stack.enter_context(in_haste(producer))
        bar = stack.enter_context(ProgressBar("bench", chosen.n, off=chosen.json))
        measured = Measurement(chosen.n, chosen.size, bar)
        options = flags.client_options(chosen, ConsumerConfig)
        consumer = Consumer(check_topic(topic), channel, measured.take, address=address, **options)
        with in_haste(consumer.start()):
            measured.publish(producer, topic, one_by_one=chosen.one_by_one)
            measured.wait(_PATIENCE)
    report = measured.report()
    print(json.dumps(report) if chosen.json else measured.text(report))
    if report["consumed"] < report["published"]:
        missing = report["published"] - report["consumed"]
        print(f"nsqsmart bench: {missing} did not come in {_PATIENCE:g} s", file=sys.stderr)
        return 1
    return 0


@contextmanager
def _own_topic(chosen: argparse.Namespace, address: str) -> Iterator[str]:
    """A topic that is there only meanwhile; of a lone nsqd it vanishes by itself."""
    name = f"nsqsmart_bench_{random.randrange(10**6):06}"  # noqa: S311 - a name
    if "+" not in address.partition("://")[0]:
        yield f"{name}#ephemeral"
        return
    options = flags.client_options(chosen, AdminConfig)
    admin = Admin(address, **options)
    admin.create_topic(name, partitions=chosen.partitions)
    try:
        # A redesigned topic takes messages once it has a channel.
        admin.create_channel(name, "nsqsmart_bench")
        yield name
    except KeyboardInterrupt:
        admin = Admin(address, **{**options, "admin_timeout": _HASTE})
        raise
    finally:
        try:
            admin.delete_topic(name)
        except (AdminError, TransportError) as error:
            print(f"nsqsmart bench: topic {name} was not deleted: {error}", file=sys.stderr)


def _size(text: str) -> int:
    value = flags.count(text)
    if value < _SMALLEST:
        raise argparse.ArgumentTypeError(f"{text}: {_SMALLEST} bytes at least")
    return value
