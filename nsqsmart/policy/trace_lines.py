"""What a line of the trace log holds: one JSON object, 64-bit figures of the server as text.

Signed readers make such figures NULL, and JavaScript rounds them, without an error (decisions#50).
No line holds a body, a key or the text of an application's error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

VERSION: Final = 1
"""Of the format: ``v`` in every line. It grows when a field changes its meaning."""

TraceFields = Mapping[str, object]

_NANOSECONDS = 1_000_000_000
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def make_fields(event: str, now: int, clock: int, *facts: TraceFields) -> dict[str, object]:
    """The fields of one line; a None in *facts* is left out.

    *now* is in nanoseconds since the epoch; *clock* in nanoseconds of a clock that is only good
    for differences within one process.
    """
    fields: dict[str, object] = {
        "v": VERSION,
        "ts": rfc3339(now),
        "mono_ns": clock,
        "event": event,
    }
    for each in facts:
        fields |= {name: value for name, value in each.items() if value is not None}
    return fields


def record_fields(
    internal_id: int | None, trace_id: int, offset: int | None, size: int | None
) -> TraceFields:
    """What names a stored record: by (topic, internal id) it is joined with the server's log."""
    return {
        "nsq_trace_id": str(trace_id),
        "nsq_internal_id": None if internal_id is None else str(internal_id),
        "nsq_disk_offset": None if offset is None else str(offset),
        "nsq_disk_size": size,
    }


def encode_line(fields: TraceFields) -> str:
    """One line of ASCII, without its end."""
    return _ENCODER.encode(fields)


def rfc3339(now: int) -> str:
    """UTC with microseconds, ``2024-05-01T12:00:00.000001Z``; *now* in nanoseconds."""
    seconds, rest = divmod(now, _NANOSECONDS)
    return f"{_second(seconds)}.{rest // 1000:06}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    # Thousands of lines a second share it.
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()
