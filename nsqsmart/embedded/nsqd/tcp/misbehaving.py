"""Faults carried out on one connection, and the log of what it was asked."""

from __future__ import annotations

import logging
from collections.abc import Callable

from nsqsmart.embedded.faults import Action, Fault
from nsqsmart.embedded.gotext import shown
from nsqsmart.embedded.nsqd.refusals import CommandRefused, EndOfStream
from nsqsmart.embedded.nsqd.tcp.connection import ClientConnection
from nsqsmart.wire.answers import ACK_FAILED
from nsqsmart.wire.command_decoder import CommandLine
from nsqsmart.wire.frames import ERROR, HEARTBEAT_FRAME, MESSAGE

log = logging.getLogger(__name__)

Handler = Callable[[ClientConnection, CommandLine], bytes | None]

_WITH_TOPIC = frozenset(
    {b"PUB", b"MPUB", b"DPUB", b"PUB_TRACE", b"MPUB_TRACE", b"PUB_EXT", b"MPUB_EXT"}
)
_SUBSCRIBING = frozenset({b"SUB", b"SUB_ADVANCED", b"SUB_ORDERED"})
_WITH_BODY = _WITH_TOPIC | {b"IDENTIFY", b"AUTH"}
_NOT_FATAL = ACK_FAILED | {
    "E_FAILED_ON_NOT_LEADER",
    "E_FAILED_ON_NOT_WRITABLE",
    "E_PUB_FAILED",
    "E_MPUB_FAILED",
    "E_EXT_NOT_SUPPORT",
    "E_INVALID_JSON_HEADER",
    "INVALID_TRACE_ID",
    "E_CREATE_TOPIC_FAILED",
}
_TYPE = slice(4, 8)


class Misbehaviour:
    """Stands between a session and its commands while there are faults or a log."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._reset = False
        connection.outbox.tap = self._tap

    def look(self, command: CommandLine, handler: Handler | None) -> Handler | None:
        """Log the command; the handler to run, another one if a fault acts on it."""
        connection, node = self._connection, self._connection.node
        verb = shown(command.verb)
        topic, partition = _subject(connection, command)
        if node.log is not None:
            node.log.add(node.name, connection.number, verb, topic, partition)
        fault = node.fault(verb, topic, partition)
        if fault is None or handler is None:
            return handler
        return self._faulty(fault, handler, topic, partition)

    def _faulty(self, fault: Fault, handler: Handler, topic: str, partition: int | None) -> Handler:
        def run(connection: ClientConnection, command: CommandLine) -> bytes | None:
            if fault.action is Action.DELAY:
                self._wait(fault.seconds)
            elif fault.action is Action.MOVE_LEADER:
                self._move_leader(topic, partition or 0)
            if fault.action in (Action.DELAY, Action.MOVE_LEADER):
                return handler(connection, command)
            if fault.execute:
                handler(connection, command)
            elif command.verb in _WITH_BODY:
                connection.read(int.from_bytes(connection.read(4)))
            return self._act(fault, command)

        return run

    def _act(self, fault: Fault, command: CommandLine) -> bytes | None:
        connection = self._connection
        if fault.action is Action.REPLY:
            fatal = self._is_fatal(fault, command)
            raise CommandRefused(fault.code, fault.text, fatal=fatal)
        if fault.action is Action.GARBAGE:
            connection.outbox.put([fault.data])
            return None
        if fault.action is Action.STALL:
            self._stall()
        if fault.action is Action.RESET:
            self._reset = True
        connection.flush()
        raise EndOfStream

    def _is_fatal(self, fault: Fault, command: CommandLine) -> bool:
        if fault.fatal is not None:
            return fault.fatal
        if not self._connection.node.options.redesigned:
            return fault.code not in ACK_FAILED
        if command.verb == b"FIN":
            # The others mean that the cluster could not take it (protocol#fin).
            return fault.code not in ACK_FAILED
        return fault.code not in _NOT_FATAL or command.verb in _SUBSCRIBING

    def _move_leader(self, topic: str, partition: int) -> None:
        """Where there is no leader to move, the client still gets the answer to its command."""
        try:
            self._connection.node.scope.move_leader(topic, partition)
        except (LookupError, ValueError):
            log.exception("a fault cannot move the leader of %r/%d", topic, partition)

    def _wait(self, seconds: float) -> None:
        """Others must not wait for what this connection has already got to say."""
        self._connection.flush()
        self._connection.closed.wait(seconds)

    def _stall(self) -> None:
        connection = self._connection
        # Neither answers nor heartbeats: the client finds out by itself.
        connection.outbox.tap = lambda _: []
        connection.closed.wait()
        raise EndOfStream

    def before_close(self) -> None:
        """A reset is a close with nothing to linger for."""
        if self._reset:
            self._connection.abort()

    # ------------------------------------------------------------------------------- frames out

    def _tap(self, frames: list[bytes]) -> list[bytes]:
        """Faults on frames; the book takes none but garbage, reset, close and stall."""
        node = self._connection.node
        if not node.faults.armed:
            return frames
        kept: list[bytes] = []
        for frame in frames:
            fault = self._frame_fault(frame)
            if fault is None:
                kept.append(frame)
                continue
            if fault.action is Action.GARBAGE:
                kept.append(fault.data)
                continue
            if fault.action is Action.STALL:
                self._connection.outbox.tap = lambda _: []
                return kept
            if fault.action is Action.RESET:
                self._connection.abort()
                return kept
            node.loop.call_soon(self._connection.end)
            return kept
        return kept

    def _frame_fault(self, frame: bytes) -> Fault | None:
        kind, shard = _kind(frame), self._connection.shard
        if kind != "MESSAGE" or shard is None:
            return self._connection.node.fault(kind)
        return self._connection.node.fault(kind, shard.meta.name, shard.number)


def _kind(frame: bytes) -> str:
    if frame == HEARTBEAT_FRAME:
        return "HEARTBEAT"
    kind = int.from_bytes(frame[_TYPE])
    return {MESSAGE: "MESSAGE", ERROR: "ERROR"}.get(kind, "RESPONSE")


def _subject(connection: ClientConnection, command: CommandLine) -> tuple[str, int | None]:
    """Topic and partition that the command is about, as far as it says so."""
    params = command.params
    position = 1 if command.verb in _WITH_TOPIC else 2
    if params and command.verb in _WITH_TOPIC | _SUBSCRIBING:
        # Original servers ignore the token; DPUB has its delay there.
        has_token = connection.node.options.redesigned and len(params) > position
        return shown(params[0]), _number(params[position]) if has_token else None
    shard = connection.shard
    return (shard.meta.name, shard.number) if shard is not None else ("", None)


def _number(token: bytes) -> int | None:
    return int(token) if token.isdigit() else None
