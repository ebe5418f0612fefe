"""The trace log: what happens to traced messages, a line an event, on ``nsqsmart.trace``.

At level INFO; nothing is built where the logger is not enabled for it. The message of a record is
the line; the same fields are its attribute ``nsq_trace``, for structured logging.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Iterable
from time import monotonic_ns, time_ns
from typing import NamedTuple, Protocol

from nsqsmart._version import __version__
from nsqsmart.client.shared.receipt import Receipt
from nsqsmart.errors import PublishError
from nsqsmart.names import Address
from nsqsmart.policy.trace_lines import TraceFields, encode_line, make_fields, record_fields
from nsqsmart.tracing import switch
from nsqsmart.wire.messages import internal_id, trace_id

log = logging.getLogger("nsqsmart.trace")

_about = logging.getLogger("nsqsmart")

_UNTRACED = bytes(8)
_MOST_REMEMBERED = 10_000
_passed_over: set[str] = set()


def published(receipt: Receipt, elapsed: float, client_id: str) -> None:
    """A message is stored, after *elapsed* seconds; nothing is logged of one not traced."""
    if receipt.trace_id is None or not log.isEnabledFor(logging.INFO):
        return
    _write(
        "published",
        record_fields(receipt.internal_id, receipt.trace_id, receipt.offset, receipt.size),
        {
            "topic": receipt.topic,
            "partition": receipt.partition,
            "nsqd_addr": receipt.nsqd,
            "duration_us": _microseconds(elapsed),
            "retries": receipt.attempts - 1,
            "client_id": client_id,
        },
    )


def publish_failed(
    topic: str, trace_id: int | None, error: PublishError, elapsed: float, client_id: str
) -> None:
    """A publish ended with *error* after *elapsed* seconds; ``outcome`` says what is known.

    Partition and nsqd are those of the last attempt. Nothing is logged of a message not traced.
    """
    if trace_id is None or not log.isEnabledFor(logging.INFO):
        return
    last = error.attempts[-1] if error.attempts else None
    _write(
        "publish_failed",
        record_fields(None, trace_id, None, None),
        {
            "topic": topic,
            "partition": last.partition if last else None,
            "nsqd_addr": last.nsqd if last else None,
            "duration_us": _microseconds(elapsed),
            "retries": max(0, len(error.attempts) - 1),
            "outcome": str(error.outcome),
            "error": error.code or type(error).__name__,
            "client_id": client_id,
        },
    )


def pass_over(topic: str, nsqd: str) -> None:
    """The switch is on for *topic*, and its nsqd cannot trace: said once a topic, at INFO."""
    if topic not in _passed_over and len(_passed_over) < _MOST_REMEMBERED:
        _passed_over.add(topic)
        _about.info(
            "tracing is on for topic %r and passed over: %s is an original nsqd and cannot trace",
            topic,
            nsqd,
        )


class Life:
    """A traced delivery, from its receipt to its answer.

    ``error`` is the kind of error its handler raised, in every line after it.
    """

    __slots__ = ("_facts", "_received", "error")

    def __init__(self, log_fields: TraceFields) -> None:
        self._facts = log_fields
        self._received = monotonic_ns()
        self.error: str | None = None

    def note(self, event: str, delay: float | None = None) -> None:
        """It happened now; *delay* in seconds, left out where it is no time that ends."""
        log_fields: TraceFields = {
            "duration_us": (monotonic_ns() - self._received) // 1000,
            "delay_ms": round(delay * 1000) if delay is not None and math.isfinite(delay) else None,
            "error": self.error,
        }
        _write(event, self._facts, log_fields)


class Delivered(Protocol):
    """A message, as far as its line is concerned."""

    id: bytes
    timestamp: int
    attempts: int
    offset: int | None
    size: int | None
    _life: Life | None


class Line(NamedTuple):
    """A subscribed connection, as its messages' lines name it."""

    topic: str
    channel: str
    partition: int | None
    nsqd: str
    local: Address | None
    client_id: str
    can_trace: bool
    """Whether its nsqd is a redesigned one."""

    def begin(self, messages: Iterable[Delivered]) -> None:
        """Log the traced ones of *messages* as received, and give each a life to be logged.

        What the switch says now holds for all of a message's life.
        """
        if not switch.is_on(self.topic) or not log.isEnabledFor(logging.INFO):
            return
        if not self.can_trace:
            pass_over(self.topic, self.nsqd)
            return
        for message in messages:
            # Sampling was the publisher's: what has a trace id is logged.
            if message.id[8:] != _UNTRACED:
                message._life = Life(self._facts(message))
                message._life.note("received")

    def _facts(self, message: Delivered) -> TraceFields:
        found = record_fields(
            internal_id(message.id), trace_id(message.id), message.offset, message.size
        )
        return {
            **found,
            "topic": self.topic,
            "partition": self.partition,
            "channel": self.channel,
            "attempts": message.attempts,
            "nsq_timestamp_ns": str(message.timestamp),
            "local_addr": None if self.local is None else str(self.local),
            "nsqd_addr": self.nsqd,
            "client_id": self.client_id,
        }


def _write(event: str, *log_fields: TraceFields) -> None:
    process: TraceFields = {
        "pid": os.getpid(),
        "thread": threading.current_thread().name,
        "sdk": f"nsqsmart/{__version__}",
    }
    fields = make_fields(event, time_ns(), monotonic_ns(), *log_fields, process)
    log.info(encode_line(fields), extra={"nsq_trace": fields})


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)
