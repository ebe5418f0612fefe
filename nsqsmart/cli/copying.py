"""``nsqsmart copy``: from one topic to another, also of another cluster."""

from __future__ import annotations

import argparse
import json
import sys

from nsqsmart import Admin, AdminConfig, Consumer, ConsumerConfig, Producer, ProducerConfig
from nsqsmart.cli import flags
from nsqsmart.cli.copier import Copier, Filter, Kept
from nsqsmart.cli.ending import Ending, consume, in_haste, left
from nsqsmart.cli.exits import INTERRUPTED
from nsqsmart.cli.parsing import Commands, Parser, UsageError
from nsqsmart.cli.progress import Bar
from nsqsmart.config import resolve
from nsqsmart.errors import ConfigError
from nsqsmart.names import check_topic

_ABOUT = """\
Publish the messages of TOPIC again: to another topic, another cluster, or both. A message is
finished only when the destination has said OK to it; one without an answer is published again, so
it may be there twice.
"""


def add_parser(commands: Commands[Parser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("copy", help="copy a topic to another one", description=_ABOUT)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="TOPIC [DESTINATION]",
        help="the topic to copy, and the one to copy to",
    )
    parser.add_argument(
        "--topic", action="append", default=[], help="topic to copy; may be repeated"
    )
    parser.add_argument(
        "--destination-topic", metavar="TOPIC", help="topic to copy to (default: the same name)"
    )
    parser.add_argument("--channel", default="nsq_to_nsq", help="channel to copy from (nsq_to_nsq)")
    parser.add_argument("-n", "--n", type=flags.count, metavar="N", help="end after N messages")
    parser.add_argument(
        "--ordered",
        action="store_true",
        help="keep partitions and order; the destination must have as many partitions",
    )
    parser.add_argument(
        "--keep-trace-ids", action="store_true", help="publish with the trace ids of the originals"
    )
    parser.add_argument(
        "--keep-headers",
        action="store_true",
        help="keep headers and tags; needs topics with extend_support",
    )
    parser.add_argument(
        "--require-json-field", metavar="NAME", help="copy only JSON objects with this field"
    )
    parser.add_argument(
        "--require-json-value",
        metavar="VALUE",
        help="copy only JSON objects whose field has this value",
    )
    parser.add_argument(
        "--whitelist-json-field",
        action="append",
        default=[],
        metavar="NAME",
        help="pass only this field of a JSON object on; may be repeated",
    )
    flags.add_json(parser, "print what was copied as one JSON object at the end")
    flags.add_address(parser)
    flags.add_address(parser, to=True)
    flags.add_options(parser, ConsumerConfig, ProducerConfig)
    flags.add_go_options(parser, "--consumer-opt", ConsumerConfig)
    flags.add_go_options(parser, "--producer-opt", ProducerConfig)
    parser.set_defaults(run=run, runs_on=True)


def run(chosen: argparse.Namespace) -> int:
    """Copy until Ctrl-C or -n messages."""
    source = flags.address_of(chosen)
    destination = flags.destination_of(chosen) or source
    routes = _routes(chosen, same=destination == source)
    if chosen.ordered:
        _check_partitions(chosen, source, destination, routes)
    options = flags.client_options(chosen, ConsumerConfig)
    if chosen.ordered:
        options["ordered"] = True
    config = resolve(ConsumerConfig, source, options)[1]
    if chosen.n:
        # What is not to be copied need not come.
        options["max_in_flight"] = min(chosen.n, config.max_in_flight)
    producer = Producer(destination, **flags.client_options(chosen, ProducerConfig))
    kept = Kept(chosen.ordered, chosen.keep_trace_ids, chosen.keep_headers)
    fields = chosen.whitelist_json_field
    chooses = Filter(chosen.require_json_field, chosen.require_json_value, tuple(fields))
    with Ending() as ending, in_haste(producer), Bar("copy", chosen.n) as bar:
        copier = Copier(producer, kept, chooses, ending, bar, chosen.n)
        consumers = [
            Consumer(
                topic,
                chosen.channel,
                batch_handler=copier.handler(to),
                address=source,
                **options,
            )
            for topic, to in routes.items()
        ]
        reports = consume(consumers, ending, close_timeout=config.close_timeout)
    if chosen.json:
        print(json.dumps({"copied": copier.copied, "left_out": copier.left_out}))
    if not ending.interrupted:
        return 0
    story = f"{copier.copied} copied, {copier.left_out} left out{left(reports)}"
    print(f"nsqsmart copy: interrupted: {story}", file=sys.stderr)
    return INTERRUPTED


def _routes(chosen: argparse.Namespace, *, same: bool) -> dict[str, str]:
    """Where each topic goes."""
    words, to = list(chosen.words), chosen.destination_topic
    topics = list(chosen.topic)
    if not topics and words:
        topics.append(words.pop(0))
    if words and to is None:
        to = words.pop(0)
    if words:
        raise UsageError(f"{words[0]!r} is one word too many: TOPIC DESTINATION")
    if not topics:
        raise UsageError("which topic? nsqsmart copy TOPIC DESTINATION")
    routes = {check_topic(topic): check_topic(to or topic) for topic in topics}
    _check_routes(chosen, routes, same=same)
    return routes


def _check_routes(chosen: argparse.Namespace, routes: dict[str, str], *, same: bool) -> None:
    for topic, destination in routes.items():
        if same and topic == destination:
            raise UsageError(
                f"{topic} would be copied to itself, for ever: name another DESTINATION or --to-url"
            )
    if chosen.ordered and len(set(routes.values())) < len(routes):
        raise UsageError("--ordered: several topics have no order in one destination")
    if chosen.require_json_value and not chosen.require_json_field:
        raise UsageError("--require-json-value needs --require-json-field")


def _check_partitions(
    chosen: argparse.Namespace, source: str, destination: str, routes: dict[str, str]
) -> None:
    """A partition of the source needs one of that number in the destination."""
    options = flags.client_options(chosen, AdminConfig)
    for topic, to in routes.items():
        have = Admin(source, **options).topology(topic)
        want = Admin(destination, **options).topology(to)
        for name, topology in ((topic, have), (to, want)):
            if not topology.partition_num:
                raise ConfigError(
                    f"--ordered: no lookup knows partitions of {name!r} (state {topology.state}): "
                    "make the topic first, on a redesigned cluster"
                )
        if want.partition_num != have.partition_num:
            raise ConfigError(
                f"--ordered: {topic!r} has {have.partition_num} partitions and {to!r} "
                f"{want.partition_num}: make the destination with as many"
            )
