"""IDENTIFY, and what follows it."""

from __future__ import annotations

import ssl

from nsqsmart.embedded.nsqd.refusals import INVALID, EndOfStream, Refused
from nsqsmart.embedded.nsqd.tcp.bodies import read_whole
from nsqsmart.embedded.nsqd.tcp.connection import Connection, State
from nsqsmart.errors import CompressionError
from nsqsmart.wire.command_decoder import Command
from nsqsmart.wire.frames import OK
from nsqsmart.wire.identify_server import IdentifyRefused, Settled, encode_reply, settle
from nsqsmart.wire.streams import DeflateStream, SnappyStream, Stream

_HANDSHAKE_TIMEOUT = 5.0


def identify(connection: Connection, command: Command) -> None:  # noqa: ARG001 - the interface has it
    """IDENTIFY: answer, then TLS, then compression, each with an OK of its own."""
    if connection.state is not State.INIT:
        raise Refused(INVALID, "cannot IDENTIFY in current state")
    body = read_whole(connection, "IDENTIFY")
    policy = connection.node.policy
    try:
        settled = settle(body, policy, connection.settled)
    except IdentifyRefused as refused:
        raise Refused(refused.code, refused.text) from refused
    connection.settled = settled
    if not connection.identified:
        # Only the first one reaches the delivery loop (protocol#second-identify).
        connection.identified = True
        connection.line_done()
        connection.start_heartbeat()
    else:
        connection.watch_silence()
    connection.respond(encode_reply(settled, policy))
    if settled.tls:
        _start_tls(connection)
    if settled.snappy or settled.deflate:
        _start_compression(connection, settled)


def _start_tls(connection: Connection) -> None:
    context = connection.node.tls
    if context is None:
        return
    connection.flush()
    try:
        with connection.outbox.exclusive():
            connection.upgrade_tls(context, _HANDSHAKE_TIMEOUT)
    except (OSError, ssl.SSLError, EOFError) as error:
        raise Refused("E_IDENTIFY_FAILED", f"IDENTIFY failed {error}") from error
    connection.respond(OK)
    connection.flush()


def _start_compression(connection: Connection, settled: Settled) -> None:
    stream: Stream
    try:
        stream = SnappyStream() if settled.snappy else DeflateStream(settled.deflate_level)
    except ValueError as error:
        # A level below -1 reaches the compressor unchanged.
        raise Refused("E_IDENTIFY_FAILED", f"IDENTIFY failed {error}") from error
    connection.flush()
    with connection.outbox.exclusive():
        connection.layers.stream = stream
    try:
        for piece in stream.incoming(connection.decoder.take_rest()):
            connection.decoder.feed(piece)
    except CompressionError as error:
        raise EndOfStream from error
    connection.respond(OK)
