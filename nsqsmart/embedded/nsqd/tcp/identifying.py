"""The commands IDENTIFY and AUTH."""

from __future__ import annotations

import json
import ssl
from time import monotonic as _now

from nsqsmart.embedded.gotext import quote
from nsqsmart.embedded.nsqd.authority import AuthFailed, Authority, ask
from nsqsmart.embedded.nsqd.refusals import INVALID, CommandRefused, EndOfStream
from nsqsmart.embedded.nsqd.tcp.bodies import read_whole
from nsqsmart.embedded.nsqd.tcp.connection import ClientConnection, ClientState
from nsqsmart.errors import CompressionError
from nsqsmart.wire.command_decoder import CommandLine
from nsqsmart.wire.frames import OK
from nsqsmart.wire.identify_server import IdentifyRefused, Settled, encode_reply, settle
from nsqsmart.wire.streams import DeflateStream, SnappyStream, Stream

_HANDSHAKE_TIMEOUT = 5.0


def auth(connection: ClientConnection, command: CommandLine) -> bytes:
    """AUTH: ask the auth servers, and answer who the client is."""
    if connection.state is not ClientState.INIT:
        raise CommandRefused(INVALID, "cannot AUTH in current state")
    if command.params:
        raise CommandRefused(INVALID, "AUTH invalid number of parameters")
    secret = read_whole(connection, "AUTH").decode("utf-8", "replace")
    options = connection.node.options
    if connection.authority is not None and connection.authority.grants:
        raise CommandRefused(
            INVALID, "AUTH Already set" if options.redesigned else "AUTH already set"
        )
    if not options.auth_addresses:
        text = "AUTH Disabled" if options.redesigned else "AUTH disabled"
        raise CommandRefused("E_AUTH_DISABLED", text)
    connection.authority = authority = _ask_or_refuse(connection, secret)
    if not authority.grants:
        no = "No" if options.redesigned else "no"
        raise CommandRefused("E_UNAUTHORIZED", f"AUTH {no} authorizations found")
    document = {
        "identity": authority.identity,
        "identity_url": authority.identity_url,
        "permission_count": len(authority.grants),
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def check_auth(connection: ClientConnection, verb: str, topic: str, channel: str = "") -> None:
    """Raise the fatal refusal if the client may not do *verb*; asks again after the TTL."""
    if not connection.node.options.auth_addresses:
        return
    authority = connection.authority
    if authority is None or not authority.grants:
        raise CommandRefused("E_AUTH_FIRST", f"AUTH required before {verb}")
    if _now() >= authority.expires_at:
        connection.authority = authority = _ask_or_refuse(connection, authority.secret)
    if not authority.allows(topic, channel):
        names = f"{quote(topic.encode())} {quote(channel.encode())}"
        raise CommandRefused("E_UNAUTHORIZED", f"AUTH failed for {verb} on {names}")


def _ask_or_refuse(connection: ClientConnection, secret: str) -> Authority:
    tls, options = connection.layers.tls, connection.node.options
    about = {"remote_ip": connection.peer[0], "tls": "false" if tls is None else "true"}
    if not options.redesigned:
        about["common_name"] = "" if tls is None else tls.common_name()
    try:
        return ask(options.auth_addresses, about, secret)
    except AuthFailed as failed:
        raise CommandRefused("E_AUTH_FAILED", "AUTH failed") from failed


def identify(connection: ClientConnection, command: CommandLine) -> None:  # noqa: ARG001 - the interface has it
    """IDENTIFY: answer, then TLS, then compression, each with an OK of its own."""
    if connection.state is not ClientState.INIT:
        raise CommandRefused(INVALID, "cannot IDENTIFY in current state")
    body = read_whole(connection, "IDENTIFY")
    policy = connection.node.policy
    try:
        settled = settle(body, policy, connection.settled)
    except IdentifyRefused as refused:
        raise CommandRefused(refused.code, refused.text) from refused
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


def _start_tls(connection: ClientConnection) -> None:
    context = connection.node.tls
    if context is None:
        return
    connection.flush()
    try:
        with connection.outbox.exclusive():
            connection.upgrade_tls(context, _HANDSHAKE_TIMEOUT)
    except (OSError, ssl.SSLError, EOFError) as error:
        raise CommandRefused("E_IDENTIFY_FAILED", f"IDENTIFY failed {error}") from error
    connection.respond(OK)
    connection.flush()


def _start_compression(connection: ClientConnection, settled: Settled) -> None:
    stream: Stream
    try:
        stream = SnappyStream() if settled.snappy else DeflateStream(settled.deflate_level)
    except ValueError as error:
        # A level below -1 reaches the compressor unchanged.
        raise CommandRefused("E_IDENTIFY_FAILED", f"IDENTIFY failed {error}") from error
    connection.flush()
    with connection.outbox.exclusive():
        connection.layers.stream = stream
    try:
        for piece in stream.incoming(connection.decoder.take_rest()):
            connection.decoder.feed(piece)
    except CompressionError as error:
        raise EndOfStream from error
    connection.respond(OK)
