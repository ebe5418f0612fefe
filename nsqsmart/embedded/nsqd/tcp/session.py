"""The thread of one client connection: commands in, answers out."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from nsqsmart.embedded.gotext import byte_list, shown
from nsqsmart.embedded.nsqd.hosting import OriginalTopics, RedesignedHosting
from nsqsmart.embedded.nsqd.node import NsqdNode
from nsqsmart.embedded.nsqd.refusals import INVALID, CommandRefused, EndOfStream
from nsqsmart.embedded.nsqd.tcp.answering import (
    close,
    finish,
    finish_many,
    nop,
    rdy,
    requeue,
    touch,
)
from nsqsmart.embedded.nsqd.tcp.connection import ClientConnection, ClientState
from nsqsmart.embedded.nsqd.tcp.express import Express, Find
from nsqsmart.embedded.nsqd.tcp.identifying import auth, identify
from nsqsmart.embedded.nsqd.tcp.misbehaving import Misbehaviour
from nsqsmart.embedded.nsqd.tcp.publishing_original import OriginalPublishing
from nsqsmart.embedded.nsqd.tcp.publishing_redesigned import RedesignedPublishing
from nsqsmart.embedded.nsqd.tcp.subscribing import OriginalSubscribing, RedesignedSubscribing
from nsqsmart.embedded.serving.connections import Served
from nsqsmart.wire.command_decoder import CommandLine, LineTooLong
from nsqsmart.wire.commands import MAGIC_V2
from nsqsmart.wire.frames import OK, OK_FRAME

Handler = Callable[[ClientConnection, CommandLine], bytes | None]


class Verbs:
    """The verbs of one node, and the clean-up after a connection has ended."""

    def __init__(
        self, handlers: dict[bytes, Handler], find: Find, leave: Callable[[ClientConnection], None]
    ) -> None:
        self.find = find
        self.handlers: dict[bytes, Handler] = {
            b"IDENTIFY": identify,
            b"AUTH": auth,
            b"RDY": rdy,
            b"FIN": finish,
            b"REQ": requeue,
            b"TOUCH": touch,
            b"CLS": close,
            b"NOP": nop,
            **handlers,
        }
        self.leave = leave


def original_commands(topics: OriginalTopics) -> Verbs:
    """The verbs of an original nsqd (protocol#dialects)."""
    publishing, subscribing = OriginalPublishing(topics), OriginalSubscribing(topics)
    handlers: dict[bytes, Handler] = {
        b"PUB": publishing.pub,
        b"MPUB": publishing.mpub,
        b"DPUB": publishing.dpub,
        b"SUB": subscribing.sub,
    }
    return Verbs(handlers, publishing.find, subscribing.leave)


def redesigned_commands(hosting: RedesignedHosting) -> Verbs:
    """The verbs of a redesigned nsqd."""
    publishing, subscribing = RedesignedPublishing(hosting), RedesignedSubscribing(hosting)
    handlers: dict[bytes, Handler] = {
        b"PUB": publishing.pub,
        b"PUB_TRACE": publishing.pub_trace,
        b"PUB_EXT": publishing.pub_ext,
        b"MPUB": publishing.mpub,
        b"MPUB_TRACE": publishing.mpub_trace,
        b"MPUB_EXT": publishing.mpub_ext,
        b"INTERNAL_CREATE_TOPIC": publishing.create_topic,
        b"SUB": subscribing.sub,
        b"SUB_ADVANCED": subscribing.sub_advanced,
        b"SUB_ORDERED": subscribing.sub_ordered,
    }
    return Verbs(handlers, publishing.find, subscribing.leave)


class Session(Served):
    """Reads commands until the client is gone, or has to go."""

    def __init__(self, sock: socket.socket, peer: tuple[str, int], node: NsqdNode, commands: Verbs):
        super().__init__(sock, node.connections, f"session-{peer[1]}")
        self.connection = ClientConnection(sock, peer, node)
        self._node = node
        self._commands = commands
        self._express = Express(self.connection, commands.find)
        self._misbehaviour = Misbehaviour(self.connection)

    def end(self) -> None:
        """End the connection in order."""
        self.connection.end()

    def abort(self) -> None:
        """End the connection by RST."""
        self.connection.abort()

    # ------------------------------------------------------------------------------- the thread

    def _serve(self) -> None:
        connection = self.connection
        try:
            if self._greet():
                connection.start_heartbeat()
                self._read_commands()
        except (EndOfStream, LineTooLong):
            pass
        finally:
            self._leave()
            self._misbehaviour.before_close()
            connection.close()

    def _greet(self) -> bool:
        """The magic, and whether the node takes another client (protocol#magic)."""
        connection, limit = self.connection, self._node.options.max_connections
        if connection.read(len(MAGIC_V2)) != MAGIC_V2:
            connection.fail(b"E_BAD_PROTOCOL")
        elif limit and self.place > limit:
            connection.fail(b"too much client connections")
        else:
            return True
        connection.flush()
        return False

    def _read_commands(self) -> None:
        connection, decoder = self.connection, self.connection.decoder
        while True:
            if decoder.buffered:
                self._run_buffered()
            try:
                data = connection.receive_raw()
            except EndOfStream:
                decoder.feed(self._express.rest())
                self._run_buffered()
                raise
            if not decoder.buffered:
                data = self._express.take(data)
            if data:
                decoder.feed(data)

    def _run_buffered(self) -> None:
        """Carry out every command that has come whole."""
        connection, decoder = self.connection, self.connection.decoder
        while True:
            ids = decoder.take_fins()
            if ids:
                self._finish(ids)
                continue
            command = decoder.next_command()
            if command is None:
                return
            self._execute(command)
            connection.line_done()

    def _finish(self, ids: list[bytes]) -> None:
        """A run of FINs: one after another for faults and the log, at once without them."""
        node = self._node
        if node.log is not None or node.faults.armed or node.options.tls_required:
            for message_id in ids:
                self._execute(CommandLine(b"FIN", (message_id,)))
        else:
            try:
                finish_many(self.connection, ids)
            except CommandRefused as refused:
                self._refuse(refused)
        self.connection.line_done()

    def _execute(self, command: CommandLine) -> None:
        handler = self._commands.handlers.get(command.verb)
        node = self._node
        if node.log is not None or node.faults.armed:
            handler = self._misbehaviour.look(command, handler)
        try:
            if node.options.tls_required:
                self._check_tls(command)
            if handler is None:
                raise self._unknown(command)
            answer = handler(self.connection, command)
        except CommandRefused as refused:
            self._refuse(refused)
        else:
            if answer is OK:
                self.connection.outbox.pending.append(OK_FRAME)
            elif answer is not None:
                self.connection.respond(answer)

    def _refuse(self, refused: CommandRefused) -> None:
        connection = self.connection
        connection.fail(refused.encode())
        if refused.fatal:
            connection.flush()
            raise EndOfStream

    def _check_tls(self, command: CommandLine) -> None:
        if self.connection.layers.tls is None and command.verb != b"IDENTIFY":
            text = f"cannot {shown(command.verb)} in current state (TLS required)"
            raise CommandRefused(INVALID, text)

    def _unknown(self, command: CommandLine) -> CommandRefused:
        if self._node.options.redesigned:
            tokens = " ".join(map(byte_list, (command.verb, *command.params)))
            return CommandRefused(INVALID, f"invalid command [{tokens}]")
        return CommandRefused(INVALID, f"invalid command {shown(command.verb)}")

    def _leave(self) -> None:
        """Unsubscribe; what was in hand goes where the dialect says."""
        connection = self.connection
        consumer, channel = connection.consumer, connection.channel
        shard: Any = connection.shard
        if consumer is None or shard is None:
            return
        if connection.state is not ClientState.INIT:

            def remove(partition: Any, now: float) -> Any:
                channel.remove(consumer, now)
                return partition.pump(now)

            shard.run(remove)
        self._commands.leave(connection)
