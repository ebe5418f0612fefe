"""Error frames: code, one space, description (protocol#error-frames and protocol#error-codes)."""

from __future__ import annotations

import re

from nsqsmart.errors import ServerError
from nsqsmart.names import printable

NOT_LEADER = "E_FAILED_ON_NOT_LEADER"
NOT_WRITABLE = "E_FAILED_ON_NOT_WRITABLE"
TOPIC_NOT_EXIST = "E_TOPIC_NOT_EXIST"
BAD_PARTITION = "E_BAD_PARTITION"
TOO_MUCH_WAITING = "E_PUB_TOO_MUCH_WAITING"
SUB_EXTEND_NEED = "E_SUB_EXTEND_NEED"
SUB_EXTEND_FORBIDDEN = "E_SUB_EXTEND_FORBIDDON"  # spelt as the server spells it
SUB_ORDER_IS_MUST = "E_SUB_ORDER_IS_MUST"

MOVED = frozenset({NOT_LEADER, NOT_WRITABLE, TOPIC_NOT_EXIST})
"""The partition is, or is about to be, led elsewhere: look up again."""
STAYS_OPEN = frozenset({NOT_LEADER, NOT_WRITABLE})
"""Refusals of a PUB that leave the connection open, in either dialect.

See protocol#pub, protocol#leader-errors.
"""
PUBLISH_FAILED = frozenset({"E_PUB_FAILED", "E_MPUB_FAILED", "E_DPUB_FAILED"})
EXITING = "exiting"
"""The last word of such a refusal by a node that is about to end (protocol#leader-switch)."""
UNAUTHORIZED = frozenset(
    {"E_AUTH_DISABLED", "E_AUTH_FIRST", "E_AUTH_FAILED", "E_UNAUTHORIZED", "E_AUTH_ERROR"}
)
BAD_INPUT = frozenset(
    {
        "E_BAD_MESSAGE",
        "E_BAD_TOPIC",
        "E_BAD_BODY",
        "E_BAD_CHANNEL",
        "E_BAD_EXT",
        "E_EXT_NOT_SUPPORT",
        "E_INVALID_JSON_HEADER",
        "INVALID_TRACE_ID",
    }
)
"""The server will never take this: the caller's mistake."""
FIN_FAILED = "E_FIN_FAILED"
ACK_FAILED = frozenset({FIN_FAILED, "E_REQ_FAILED", "E_TOUCH_FAILED"})
"""Late or doubled answers; the connection stays usable."""

_MAX_TEXT = 512
# An original nsqd quotes the 16 characters, a redesigned one the numbers of the bytes.
_REFUSED = re.compile(
    r"(?:FIN|REQ|TOUCH) (?:(?P<text>[!-~]{16})|\[(?P<bytes>[0-9]{1,3}(?: [0-9]{1,3}){15})\]) failed"
)


def decode_error(data: bytes, secret: bytes = b"") -> ServerError:
    """The error that an error frame carries.

    Codes without ``E_`` exist (``INVALID_TRACE_ID``, ``too much client connections``). What is
    not printable is escaped, or it would forge lines of logs. The text is cut at 512 characters,
    because it may quote what the peer was sent; if *secret* is among that, it becomes ``***``.
    """
    if secret:
        # Before the cut, which might leave the half of it.
        data = data.replace(secret, b"***")
    text = printable(data[: _MAX_TEXT * 4].decode("utf-8", "backslashreplace"))[:_MAX_TEXT]
    code, _, detail = text.partition(" ")
    return ServerError(code, detail)


def refused_id(error: ServerError) -> bytes | None:
    """The message that an answer was refused for, as far as the server names it."""
    match = _REFUSED.match(error.detail)
    if match is None:
        return None
    if match["text"]:
        return match["text"].encode()
    numbers = [int(each) for each in match["bytes"].split()]
    return bytes(numbers) if max(numbers) <= 0xFF else None
