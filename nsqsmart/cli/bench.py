"""``nsqsmart bench``: how fast messages go in and out, on a topic and channel of its own."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from nsqsmart import Admin, AdminConfig, Consumer, ConsumerConfig, Producer, ProducerConfig
from nsqsmart.cli import flags
from nsqsmart.cli.ending import in_haste
from nsqsmart.cli.measuring import Measurement
from nsqsmart.cli.parsing import Commands, Parser
from nsqsmart.cli.progress import Bar
from nsqsmart.errors import AdminError, TransportError
from nsqsmart.names import check_topic

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
    parser.add_argument(
        "--partitions", type=flags.count, default=1, metavar="N", help="of the topic (1)"
    )
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
        bar = stack.enter_context(Bar("bench", chosen.n, off=chosen.json))
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
