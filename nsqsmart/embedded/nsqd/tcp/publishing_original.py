"""PUB, MPUB and DPUB on an original nsqd; every refusal is fatal.

See protocol#pub to protocol#dpub.
"""

from __future__ import annotations

from nsqsmart.embedded.broker.log import NewMessage
from nsqsmart.embedded.gotext import digits, quote, shown
from nsqsmart.embedded.nsqd.hosting import OriginalShard, OriginalTopics, publish_deferred
from nsqsmart.embedded.nsqd.refusals import BAD_MESSAGE, BAD_TOPIC, INVALID, CommandRefused
from nsqsmart.embedded.nsqd.tcp.bodies import BatchReader, read_rest, read_size
from nsqsmart.embedded.nsqd.tcp.connection import ClientConnection
from nsqsmart.embedded.nsqd.tcp.identifying import check_auth
from nsqsmart.names import is_valid_name
from nsqsmart.wire.command_decoder import CommandLine
from nsqsmart.wire.frames import OK


class OriginalPublishing:
    """The publish commands, over the topics of one node."""

    def __init__(self, topics: OriginalTopics) -> None:
        self._topics = topics

    def find(self, line: bytes) -> OriginalShard | None:
        """The topic of a PUB line, if it exists and nothing else is on the line."""
        return self._topics.find(shown(line))

    def pub(self, connection: ClientConnection, command: CommandLine) -> bytes:
        """PUB: the topic is made after the body was read."""
        topic = self._topic(command, "PUB", 1)
        body = self._body(connection, "PUB ")
        check_auth(connection, "PUB", topic)
        self._store(connection, topic, [(body, 0, None)], "PUB")
        return OK

    def mpub(self, connection: ClientConnection, command: CommandLine) -> bytes:
        """MPUB: the topic is made before the body is read."""
        # The real server says the code twice.
        topic = self._topic(command, "MPUB", 1, "E_BAD_TOPIC ")
        check_auth(connection, "MPUB", topic)
        self._topics.get(topic)
        bodies = BatchReader(connection, "MPUB ").read()
        entries: list[NewMessage] = [(body, 0, None) for body in bodies]
        self._store(connection, topic, entries, "MPUB")
        return OK

    def dpub(self, connection: ClientConnection, command: CommandLine) -> bytes:
        """DPUB: delivered after a delay in milliseconds."""
        topic = self._topic(command, "DPUB", 2)
        delay = digits(command.params[1])
        if delay is None:
            text = f"DPUB could not parse timeout {shown(command.params[1])}"
            raise CommandRefused(INVALID, text)
        longest = round(connection.node.options.limits().max_requeue_delay * 1000)
        if delay > longest:
            raise CommandRefused(INVALID, f"DPUB timeout {delay} out of range 0-{longest}")
        body = self._body(connection, "DPUB ")
        check_auth(connection, "DPUB", topic)
        self._check_exiting(connection, "DPUB")
        woken = publish_deferred(self._topics.get(topic), body, delay / 1000)
        connection.dirty.update(woken)
        return OK

    def _store(
        self, connection: ClientConnection, topic: str, entries: list[NewMessage], verb: str
    ) -> None:
        self._check_exiting(connection, verb)
        _, woken = self._topics.get(topic).publish(connection.node, entries)
        connection.published[topic] += len(entries)
        connection.dirty.update(woken)

    @staticmethod
    def _body(connection: ClientConnection, prefix: str) -> bytes:
        return read_rest(connection, read_size(connection, prefix, BAD_MESSAGE), prefix)

    @staticmethod
    def _check_exiting(connection: ClientConnection, verb: str) -> None:
        if connection.node.exiting:
            raise CommandRefused(f"E_{verb}_FAILED", f"{verb} failed exiting")

    @staticmethod
    def _topic(command: CommandLine, verb: str, needed: int, again: str = "") -> str:
        if len(command.params) < needed:
            raise CommandRefused(INVALID, f"{verb} insufficient number of parameters")
        name = shown(command.params[0])
        if not is_valid_name(name):
            text = f"{again}{verb} topic name {quote(command.params[0])} is not valid"
            raise CommandRefused(BAD_TOPIC, text)
        return name
