"""The JSON header of a message on an extended topic (protocol#pub_ext)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

TRACE_ID = "##trace_id"
"""The server reads it, and answers with a traced receipt."""
TAG = "##client_dispatch_tag"
"""Consumers with that ``desired_tag`` get the message first."""
RESERVED = "##"
"""Such keys are the server's."""
MAX_HEADER = 0xFFFF - 1
"""Bytes of a header (protocol#pub_ext)."""


def encode_header(
    headers: Mapping[str, Any] | None, *, tag: str | None = None, trace_id: int | None = None
) -> bytes:
    """The header as JSON, or b"" when there is nothing to say.

    Raises ValueError or TypeError for what JSON cannot say.
    """
    fields = dict(headers or {})
    if tag is not None:
        fields[TAG] = tag
    if trace_id is not None:
        fields[TRACE_ID] = str(trace_id)
    if not fields:
        return b""
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()
