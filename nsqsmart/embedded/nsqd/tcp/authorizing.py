"""AUTH, and the check before each command that needs it (protocol#auth)."""

from __future__ import annotations

import json
from time import monotonic as _now

from nsqsmart.embedded.gotext import quote
from nsqsmart.embedded.nsqd.authority import AuthFailed, Authority, ask
from nsqsmart.embedded.nsqd.refusals import INVALID, Refused
from nsqsmart.embedded.nsqd.tcp.bodies import read_whole
from nsqsmart.embedded.nsqd.tcp.connection import Connection, State
from nsqsmart.wire.command_decoder import Command


def auth(connection: Connection, command: Command) -> bytes:
    """AUTH: ask the auth servers, and answer who the client is."""
    if connection.state is not State.INIT:
        raise Refused(INVALID, "cannot AUTH in current state")
    if command.params:
        raise Refused(INVALID, "AUTH invalid number of parameters")
    secret = read_whole(connection, "AUTH").decode("utf-8", "replace")
    options = connection.node.options
    if connection.authority is not None and connection.authority.grants:
        raise Refused(INVALID, "AUTH Already set" if options.redesigned else "AUTH already set")
    if not options.auth_addresses:
        text = "AUTH Disabled" if options.redesigned else "AUTH disabled"
        raise Refused("E_AUTH_DISABLED", text)
    connection.authority = authority = _ask_or_refuse(connection, secret)
    if not authority.grants:
        no = "No" if options.redesigned else "no"
        raise Refused("E_UNAUTHORIZED", f"AUTH {no} authorizations found")
    document = {
        "identity": authority.identity,
        "identity_url": authority.identity_url,
        "permission_count": len(authority.grants),
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def check_auth(connection: Connection, verb: str, topic: str, channel: str = "") -> None:
    """Raise the fatal refusal if the client may not do *verb*; asks again after the TTL."""
    if not connection.node.options.auth_addresses:
        return
    authority = connection.authority
    if authority is None or not authority.grants:
        raise Refused("E_AUTH_FIRST", f"AUTH required before {verb}")
    if _now() >= authority.expires_at:
        connection.authority = authority = _ask_or_refuse(connection, authority.secret)
    if not authority.allows(topic, channel):
        names = f"{quote(topic.encode())} {quote(channel.encode())}"
        raise Refused("E_UNAUTHORIZED", f"AUTH failed for {verb} on {names}")


def _ask_or_refuse(connection: Connection, secret: str) -> Authority:
    tls, options = connection.layers.tls, connection.node.options
    about = {"remote_ip": connection.peer[0], "tls": "false" if tls is None else "true"}
    if not options.redesigned:
        about["common_name"] = "" if tls is None else tls.common_name()
    try:
        return ask(options.auth_addresses, about, secret)
    except AuthFailed as failed:
        raise Refused("E_AUTH_FAILED", "AUTH failed") from failed
