"""What a publish returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Receipt:
    """Proof that an nsqd accepted the message: its OK to that very command arrived.

    ``nsqd`` is "host:port"; ``partition`` is None on an original server; ``attempts`` counts the
    tries it took, so more than one may mean a duplicate. Only a traced publish knows
    ``internal_id``, ``trace_id``, ``offset`` (bytes in the partition's log) and ``size`` (bytes
    of the record). ``count`` is the number of messages; of several, id, trace id and offset are
    those of the first one, and size is their sum.
    """

    topic: str
    partition: int | None
    nsqd: str
    attempts: int = 1
    internal_id: int | None = None
    trace_id: int | None = None
    offset: int | None = None
    size: int | None = None
    count: int = 1
