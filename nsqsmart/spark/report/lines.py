"""What the lines of a trace log look like: of clients, and of redesigned nsqds (docs/tracing.md).

The patterns are read by Python and by Spark, which is Java: groups have numbers, not names.
"""

from __future__ import annotations

from typing import Final

CLIENT_LINE: Final = r"(\{\"v\":.*\})\s*$"
"""The JSON object of a client's line, which a log formatter may have put something in front of."""
SERVER_MARK: Final = "[TRACE] topic "
"""A line without it is not one of a server."""
PUT: Final = (
    r"\[TRACE\] topic (\S+)-(\d+) trace id (\d+): message (\d+).* put (.+?)"
    r"(?: from client (\S+))? at offset: (-?\d+),.*at time:? (\d+)"
)
"""Topic, partition, trace id, internal id, how, client, offset, nanoseconds."""
CONSUMED: Final = (
    r"\[TRACE\] topic (\S+) channel (\S+) trace id (\d+): message (\d+) \(.*offset: (-?\d+)"
    r".*\) consume state (\S+) from client (.*)\((\d+)\) at time: (\d+).*attempt: (\d+)"
)
"""Topic, channel, trace id, internal id, offset, state, client and its number, ns, attempts."""
PARTITION_SHIFT: Final = 50
"""CONSUMED names no partition. With a coordinator an id is ``partition << 50 | counter``."""
PARTITION_MASK: Final = 1023
