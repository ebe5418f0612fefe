"""JSON that a peer sent over HTTP: taken out of its envelope, and never trusted.

See protocol#envelopes.
"""

from __future__ import annotations

import json
from typing import Any

from nsqsmart.errors import DiscoveryError
from nsqsmart.names import printable

_OK = 200
_MAX_TEXT = 200
"""Characters of a peer's text that are shown."""


def unwrap(status: int, body: bytes) -> tuple[int, Any, str]:
    """Status, data and error text, out of either envelope.

    Raises :class:`DiscoveryError` where a success is no JSON.
    """
    try:
        document = json.loads(body) if body.strip() else None
    except (ValueError, RecursionError) as error:
        if status == _OK:
            raise DiscoveryError("the answer is not JSON") from error
        # Error bodies of the redesigned dialect are not escaped: still an answer.
        return status, None, body[:_MAX_TEXT].decode("utf-8", "replace")
    if not isinstance(document, dict):
        return status, document, ""
    if "status_code" in document and "data" in document:
        wrapped = document["status_code"]
        return (
            wrapped if type(wrapped) is int else status,
            document["data"],
            text_of(document.get("status_txt")),
        )
    return status, document, text_of(document.get("message"))


def object_of(status: int, body: bytes, what: str) -> dict[str, Any]:
    """The object that a server answered to *what*; raises :class:`DiscoveryError` if it did not."""
    status, data, text = unwrap(status, body)
    if status != _OK or not isinstance(data, dict):
        raise DiscoveryError(f"{what} answered {status} {text[:100]!r}")
    return data


def text_of(value: Any) -> str:
    """*value* if it is a text, else ``""``."""
    return value if isinstance(value, str) else ""


def list_of(value: Any) -> list[Any]:
    """*value* if it is a list (null is how Go writes an empty one), else ``[]``."""
    return value if isinstance(value, list) else []


def dicts_of(value: Any) -> list[dict[str, Any]]:
    """The objects in *value*."""
    return [each for each in list_of(value) if isinstance(each, dict)]


def count_of(value: Any) -> int:
    """*value* if it is a whole number from 0 on, else 0."""
    return value if type(value) is int and value > 0 else 0


def shown(text: str) -> str:
    """*text* of a peer, fit for a terminal: cut, and what is not printable is escaped."""
    cut = text[:_MAX_TEXT].strip()
    return printable(cut)[:_MAX_TEXT]
