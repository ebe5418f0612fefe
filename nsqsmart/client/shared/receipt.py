"""What a publish returns."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that an nsqd accepted the message: its OK to that very command arrived.

    With one exception: ``spooled`` tells that no nsqd has it yet. It is on the disk, in the folder
    that the option ``spool`` names, and ``nsqd`` is ``""``.

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
    spooled: bool = False

    def share(self, number: int, trace_id: int) -> Receipt:
        """The receipt of the message at *number* of a batch.

        Ids of a batch are consecutive (protocol#mpub_trace); only the first place is known.
        """
        known = self.internal_id is not None
        return replace(
            self,
            internal_id=self.internal_id + number if self.internal_id is not None else None,
            trace_id=trace_id,
            offset=self.offset if known and number == 0 else None,
            size=self.size if known and self.count == 1 else None,
            count=1,
        )
