"""Messages and receipts as JSON: what has 64 bits is text, for many readers have 53."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

from nsqsmart import Message, PublishError, Receipt

_NANOSECONDS = 1_000_000_000


def record(message: Message) -> dict[str, Any]:
    """A message; ``body`` is its text, or ``body_base64`` where it is none. No value is None."""
    found: dict[str, Any] = {"topic": message.topic}
    if message.partition is None:
        found["id"] = message.id.decode("ascii", "replace")
    else:
        found |= {"partition": message.partition, "internal_id": str(message.internal_id)}
        if message.trace_id:
            found["trace_id"] = str(message.trace_id)
    found |= {"timestamp": timestamp(message.timestamp), "attempts": message.attempts}
    if message.offset is not None:
        found["offset"] = str(message.offset)
    if headers := message.headers:
        found["headers"] = headers
    try:
        found["body"] = message.body.decode()
    except UnicodeDecodeError:
        found["body_base64"] = base64.b64encode(message.body).decode()
    return found


def receipt_record(receipt: Receipt) -> dict[str, Any]:
    """What a publish returned, without what is not known."""
    found = {
        "topic": receipt.topic,
        "partition": receipt.partition,
        "nsqd": receipt.nsqd or None,
        "attempts": receipt.attempts,
        "internal_id": _text(receipt.internal_id),
        "trace_id": _text(receipt.trace_id),
        "offset": _text(receipt.offset),
        "size": receipt.size,
        "spooled": receipt.spooled or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def failure_record(error: PublishError) -> dict[str, Any]:
    """Why a publish failed, and what that means for the message."""
    return {"error": str(error), "code": error.code, "outcome": str(error.outcome)}


def line(values: dict[str, Any]) -> bytes:
    """One line of JSON, with its end."""
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def timestamp(nanoseconds: int) -> str:
    """UTC with all nine digits."""
    whole, rest = divmod(nanoseconds, _NANOSECONDS)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
