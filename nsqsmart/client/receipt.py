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
    those of the first one, and size is their sum. A batch on an extended topic is told no place.
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

    def share(self, number: int, trace_id: int) -> Receipt:
        """That of the message at *number* of a batch.

        Internal ids of a batch are consecutive (protocol 2.14); only the first place is known.
        """
        own = Receipt(self.topic, self.partition, self.nsqd, self.attempts, trace_id=trace_id)
        if self.internal_id is not None:
            own.internal_id = self.internal_id + number
            own.offset = self.offset if number == 0 else None
            own.size = self.size if self.count == 1 else None
        return own
