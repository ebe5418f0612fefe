"""RDY, FIN, REQ, TOUCH, CLS and NOP: what a subscribed client says about its messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from nsqsmart.embedded.broker.consumer import ChannelConsumer
from nsqsmart.embedded.gotext import byte_list, digits, shown
from nsqsmart.embedded.nsqd.refusals import INVALID, CommandRefused, not_leader, not_writable
from nsqsmart.embedded.nsqd.tcp.connection import ClientConnection, ClientState
from nsqsmart.wire.command_decoder import CommandLine
from nsqsmart.wire.frames import CLOSE_WAIT
from nsqsmart.wire.messages import ID_SIZE

_KEY_SIZE = 8
_REQ_TOKENS = 2
_TOP_BIT = 0x80


def nop(connection: ClientConnection, command: CommandLine) -> None:
    """NOP: an answer to a heartbeat."""


def rdy(connection: ClientConnection, command: CommandLine) -> None:
    """RDY: how many messages may be in flight; ignored after CLS (protocol#rdy)."""
    if connection.state is ClientState.CLOSING:
        return
    if connection.state is not ClientState.SUBSCRIBED:
        raise CommandRefused(INVALID, "cannot RDY in current state")
    token = command.params[0] if command.params else b"1"
    count = digits(token)
    if count is None:
        raise CommandRefused(INVALID, f"RDY could not parse count {shown(token)}")
    most = connection.node.options.max_rdy_count
    if count > most:
        raise CommandRefused(INVALID, f"RDY count {count} out of range 0-{most}")
    consumer, shard = _subscribed(connection)
    with shard.lock:
        consumer.rdy = count
        if consumer.room() <= 0:
            connection.outbox.release()
        connection.dirty.update(connection.channel.pump(time.monotonic()))
    shard.rearm()


def close(connection: ClientConnection, command: CommandLine) -> bytes:  # noqa: ARG001 - the interface has it
    """CLS: no more messages; the client closes when it is done (protocol#cls)."""
    if connection.state is not ClientState.SUBSCRIBED:
        raise CommandRefused(INVALID, "cannot CLS in current state")
    consumer, shard = _subscribed(connection)
    with shard.lock:
        consumer.rdy = 0
    connection.state = ClientState.CLOSING
    connection.outbox.release()
    return CLOSE_WAIT


def finish(connection: ClientConnection, command: CommandLine) -> None:
    """FIN of one message."""
    _check_state(connection, "FIN")
    message_id = _id(connection, command, "FIN")
    finish_many(connection, [message_id])


def finish_many(connection: ClientConnection, ids: list[bytes]) -> None:
    """FIN of a run of messages, then whatever there is room for (protocol#fin)."""
    if connection.state is ClientState.INIT:
        raise CommandRefused(INVALID, "cannot FIN in current state")
    consumer, shard = _subscribed(connection)
    redesigned = connection.node.options.redesigned
    keys = [message_id[:_KEY_SIZE] for message_id in ids] if redesigned else ids
    channel = connection.channel
    with shard.lock:
        if redesigned:
            _check_leader(connection, consumer)
        failed = channel.finish_many(consumer, keys)
        woken = channel.pump(time.monotonic())
    shard.rearm()
    if woken:
        connection.dirty.update(woken)
    for position, reason in failed:
        _answer_failed(connection, "FIN", ids[position], reason)
    if redesigned and channel.ordered and len(failed) < len(ids):
        _replicate(connection, shard.confirm_hold)


def _replicate(connection: ClientConnection, hold: Callable[[], bool] | None) -> None:
    """Wait until other nodes know of a FIN; the next message has gone out meanwhile.

    See protocol#ordered-cluster.
    """
    if hold is None:
        return
    connection.flush()
    if not hold():
        raise not_writable(fatal=True)


def requeue(connection: ClientConnection, command: CommandLine) -> None:
    """REQ: deliver it again, at once or later (protocol#req)."""
    _check_state(connection, "REQ")
    message_id = _id(connection, command, "REQ")
    if len(command.params) < _REQ_TOKENS:
        raise CommandRefused(INVALID, "REQ insufficient number of params")
    token = command.params[1]
    delay = digits(token)
    redesigned = connection.node.options.redesigned
    if delay is None:
        which = f"{shown(message_id)}, " if redesigned else ""
        raise CommandRefused(INVALID, f"REQ could not parse timeout {which}{shown(token)}")
    key = message_id[:_KEY_SIZE] if redesigned else message_id
    consumer, shard = _subscribed(connection)
    channel, now = connection.channel, time.monotonic()
    with shard.lock:
        reason = channel.requeue(consumer, key, delay / 1000, now)
        connection.dirty.update(channel.pump(now))
    shard.rearm()
    if reason is not None:
        _answer_failed(connection, "REQ", message_id, reason)


def touch(connection: ClientConnection, command: CommandLine) -> None:
    """TOUCH: a fresh timeout (protocol#touch)."""
    _check_state(connection, "TOUCH")
    message_id = _id(connection, command, "TOUCH")
    key = message_id[:_KEY_SIZE] if connection.node.options.redesigned else message_id
    consumer, shard = _subscribed(connection)
    with shard.lock:
        reason = connection.channel.touch(consumer, key, time.monotonic())
    shard.rearm()
    if reason is not None:
        _answer_failed(connection, "TOUCH", message_id, reason)


def _check_state(connection: ClientConnection, verb: str) -> None:
    if connection.state is ClientState.INIT:
        raise CommandRefused(INVALID, f"cannot {verb} in current state")


def _subscribed(connection: ClientConnection) -> tuple[ChannelConsumer, Any]:
    """Consumer and shard; there are both in every state but INIT."""
    consumer = connection.consumer
    assert consumer is not None  # noqa: S101 - told to the type checker
    return consumer, connection.shard


def _check_leader(connection: ClientConnection, consumer: ChannelConsumer) -> None:
    """Called with the lock: the partition may have moved since SUB."""
    shard = connection.shard
    if shard is None or shard.leader is not connection.node:
        raise not_leader(fatal=True)
    if consumer not in connection.channel.consumers:
        raise not_leader(fatal=True)
    if connection.channel.ordered and shard.confirm_refused:
        raise not_writable(fatal=True)


def _id(connection: ClientConnection, command: CommandLine, verb: str) -> bytes:
    """The message id, judged as the dialect does (protocol#binary-ids and protocol#fin)."""
    if not command.params:
        raise CommandRefused(INVALID, f"{verb} insufficient number of params")
    message_id = command.params[0]
    if not connection.node.options.redesigned:
        if verb == "REQ" and len(command.params) < _REQ_TOKENS:
            raise CommandRefused(INVALID, "REQ insufficient number of params")
        if len(message_id) != ID_SIZE:
            raise CommandRefused(INVALID, "invalid message ID")
        return message_id
    if verb == "FIN" and _is_no_number(message_id):
        raise CommandRefused(INVALID, "Invalid Message ID")
    return message_id


def _is_no_number(message_id: bytes) -> bool:
    """Whether its first half is not positive as a signed number (protocol#fin)."""
    return bool(message_id[0] & _TOP_BIT) or not any(message_id[:_KEY_SIZE])


def _answer_failed(connection: ClientConnection, verb: str, message_id: bytes, reason: str) -> None:
    redesigned = connection.node.options.redesigned
    if redesigned and verb == "FIN" and _is_no_number(message_id):
        raise CommandRefused(INVALID, "Invalid Message ID")
    shown_id = byte_list(message_id) if redesigned else shown(message_id)
    refused = CommandRefused(f"E_{verb}_FAILED", f"{verb} {shown_id} failed {reason}", fatal=False)
    connection.fail(refused.encode())
