"""``nsqsmart copy``: from one topic to another, also of another cluster.

A message is chosen, published, and finished when that was answered.
"""

from __future__ import annotations

import argparse
import json
import logging
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from nsqsmart import (
    Admin,
    AdminConfig,
    Consumer,
    ConsumerConfig,
    Message,
    Pending,
    Producer,
    ProducerConfig,
    PublishError,
)
from nsqsmart.cli.common import flags
from nsqsmart.cli.common.ending import Ending, consume, in_haste, keep
from nsqsmart.cli.common.parsing import Commands, Parser, UsageError
from nsqsmart.cli.common.progress import ProgressBar
from nsqsmart.config import resolve
from nsqsmart.errors import ConfigError, MessageRejected
from nsqsmart.names import check_topic

log = logging.getLogger("nsqsmart.cli")

_ABOUT = """\
Publish the messages of TOPIC again: to another topic, another cluster, or both. A message is
finished only when the destination has said OK to it; one without an answer is published again, so
it may be there twice.
"""


class KeptFields(NamedTuple):
    """What of a message is published with its body."""

    partition: bool = False
    trace_id: bool = False
    headers: bool = False

    def arguments(self, message: Message) -> dict[str, Any]:
        """For :meth:`nsqsmart.Producer.publish_async`."""
        found: dict[str, Any] = {}
        if self.partition:
            found["partition"] = message.partition
        if self.trace_id and message.trace_id:
            found["trace_id"] = message.trace_id
        if self.headers:
            # Names of the server's own are its own to write.
            own = {name: value for name, value in message.headers.items() if name[:2] != "##"}
            found |= {"headers": own or None, "tag": message.tag}
        return found


class Filter(NamedTuple):
    """Which JSON objects pass, and what of them; everything does without a *field*, *fields*."""

    field: str | None = None
    value: str | None = None
    fields: tuple[str, ...] = ()

    def apply(self, body: bytes) -> bytes | None:
        """What is to be published, None for nothing."""
        if self.field is None and not self.fields:
            return body
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict) or not self._passes(document):
            return None
        if not self.fields:
            return body
        chosen = {name: document[name] for name in self.fields if name in document}
        # As Go writes a map: sorted, and without blanks.
        return json.dumps(
            chosen, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        ).encode()

    def _passes(self, document: dict[str, Any]) -> bool:
        if self.field is None:
            return True
        if self.field not in document:
            return False
        found = document[self.field]
        if self.value is None or found == self.value:
            return True
        if isinstance(found, str | bool) or not isinstance(found, int | float):
            return False
        try:
            return float(found) == float(self.value)
        except ValueError:
            return False


class Copier:
    """Copies batches; counts what it did. Shared by the consumers of all topics."""

    def __init__(
        self,
        producer: Producer,
        kept: KeptFields,
        chooses: Filter,
        ending: Ending,
        bar: ProgressBar,
        most: int | None,
    ) -> None:
        self._producer = producer
        self._kept = kept
        self._filter = chooses
        self._ending = ending
        self._bar = bar
        self._most = most
        self._lock = threading.Lock()  # guards the four below
        self._begun = 0
        self._beyond: list[tuple[str, Message]] = []
        self.copied = 0
        self.left_out = 0

    def handler(self, topic: str) -> Callable[[list[Message]], None]:
        """What gets batches for *topic*."""

        def copy(messages: list[Message]) -> None:
            self._ending.begin()
            if self._most is not None:
                # Which of them are beyond -n is seen below, and may change when others fail.
                keep(messages)
            chosen = self._choose([(topic, message) for message in messages])
            while chosen:
                pending = [(each, self._publish(to, each)) for to, each in chosen]
                for message, sent in pending:
                    self._settle(message, sent)
                # In the place of those that failed.
                chosen = self._choose([])

        return copy

    def _choose(self, more: list[tuple[str, Message]]) -> list[tuple[str, Message]]:
        """Which of *more*, and of those kept before, are to be copied now; the others are kept."""
        if self._most is None:
            return more
        with self._lock:
            waiting = [(to, each) for to, each in self._beyond + more if not each.expired]
            left = self._most - self._begun
            chosen, self._beyond = waiting[:left], waiting[left:]
            self._begun += len(chosen)
        return chosen

    def _publish(self, topic: str, message: Message) -> Pending | PublishError | None:
        """On its way, refused, or left out."""
        body = self._filter.apply(message.body)
        if body is None:
            return None
        try:
            return self._producer.publish_async(topic, body, **self._kept.arguments(message))
        except PublishError as error:
            return error
        except (ConfigError, TypeError) as error:
            # Others write headers and tags that a Producer does not. Out of here it would be the
            # whole batch that failed, and what was sent of it would be sent again and again.
            place = f"topic {message.topic!r}, partition {message.partition}"
            return MessageRejected(f"message {message.internal_id} of {place}: {error}")

    def _settle(self, message: Message, sent: Pending | PublishError | None) -> None:
        try:
            if isinstance(sent, PublishError):
                raise sent
            if sent is not None:
                sent.result()
        except PublishError as error:
            self._fail(message, error)
            return
        message.finish()
        with self._lock:
            self.copied += sent is not None
            self.left_out += sent is None
            done = self.copied + self.left_out == self._most
        self._bar.advance(1)
        if done:
            self._ending.end()

    def _fail(self, message: Message, error: PublishError) -> None:
        with self._lock:
            self._begun -= 1
        if not error.retryable:
            # It would come back for ever, and hold up all of an ordered partition.
            self._ending.end(error)
            keep([message])
            return
        log.warning("not copied, it comes again: %s", error)
        message.requeue()


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
    kept = KeptFields(chosen.ordered, chosen.keep_trace_ids, chosen.keep_headers)
    fields = chosen.whitelist_json_field
    chooses = Filter(chosen.require_json_field, chosen.require_json_value, tuple(fields))
    with Ending() as ending, in_haste(producer), ProgressBar("copy", chosen.n) as bar:
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
    story = f"{copier.copied} copied, {copier.left_out} left out"
    return ending.exit_code("copy", story, reports)


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
