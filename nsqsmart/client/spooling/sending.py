"""What waits of one topic, on its way: in order, in few commands, each written down when stored."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from time import time_ns

from nsqsmart.client.publishing.call import publish
from nsqsmart.client.publishing.shared_state import PublishingState
from nsqsmart.client.shared.arguments import Publication
from nsqsmart.client.shared.errors import NotSupported, OrderingNotSupported
from nsqsmart.client.shared.log_fields import log_fields
from nsqsmart.client.spooling.storage import SpoolQueue
from nsqsmart.errors import MessageRejected, PublishError, PublishFailed, TransportError
from nsqsmart.policy.routing import Key, partition_for
from nsqsmart.policy.spool_plan import Progress, batches
from nsqsmart.wire.spool_records import Placed, SpoolRecord

log = logging.getLogger("nsqsmart")

Place = int | tuple[str, Key] | None
"""A partition, or a key where there are no partitions; None is anywhere."""
_NEVER_TAKEN = (MessageRejected, NotSupported, OrderingNotSupported)


class Sending:
    """Sends what waits in *queue*, whose lock the caller holds, until *deadline*.

    *lock* is that of the spool. ``sent`` and ``refused`` count messages.
    """

    def __init__(
        self,
        queue: SpoolQueue,
        publishing: PublishingState,
        deadline: float,
        lock: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._queue = queue
        self._publishing = publishing
        self._deadline = deadline
        self._lock = lock
        self._progress = Progress()
        self.sent = 0
        self.refused = 0

    def run(self) -> PublishError | None:
        """Send everything; why not all of it is sent, or None.

        Raises OSError, before it sends anything if the disk has no room to write that down.
        """
        self._progress = self._queue.begin()
        try:
            while records := self._next():
                if self._queue.lacking(len(records)):
                    # What cannot be written down would be sent again and again.
                    with self._lock():
                        self._queue.reserve(len(records))
                self._send_window(records)
        except PublishError as error:
            return error
        except TransportError as error:
            failed = PublishFailed(f"publish to {self._queue.topic!r} failed: {error}")
            failed.__cause__ = error
            return failed
        return None

    def _next(self) -> Sequence[Placed]:
        """The next records; none when everything is sent."""
        queue = self._queue
        while True:
            with self._lock():
                # Their writer is done with them, or dead.
                last, size = queue.last_segment()
                number = self._progress.segment
                if number > last:
                    return ()
                if number < last:
                    size = queue.segment_size(number)
            records = queue.next_window(self._progress, size)
            if records:
                return records
            with self._lock():
                self._progress = queue.finish_segment(self._progress, size) or self._progress

    def _send_window(self, records: Sequence[Placed]) -> None:
        waiting = [each for each in records if each.start not in self._progress.done]
        for batch in batches(waiting, self._place_of):
            try:
                self._send(records, batch)
            except _NEVER_TAKEN as error:
                self._send_one_by_one(records, batch, error)
        self._progress = self._progress.settle(records, ())

    def _send_one_by_one(
        self, records: Sequence[Placed], batch: list[Placed], error: PublishError
    ) -> None:
        """One of *batch* is refused, and with it all of them: find it, and set it aside."""
        for each in batch:
            if len(batch) > 1:
                try:
                    self._send(records, [each])
                except _NEVER_TAKEN as failure:
                    error = failure
                else:
                    continue
            file = self._queue.set_aside(each.record)
            log.error(
                "spool: a message of %s is refused, and kept in %s: %s",
                self._queue.topic,
                file,
                error,
                extra=log_fields(self._queue.topic),
            )
            self.refused += 1
            self._settle(records, [each])

    def _send(self, records: Sequence[Placed], batch: list[Placed]) -> None:
        place = self._place_of(batch[0].record)
        publish(
            self._publishing,
            make_publication(self._queue.topic, place, [each.record for each in batch], time_ns()),
            self._deadline,
        )
        self.sent += len(batch)
        self._settle(records, batch)

    def _settle(self, records: Sequence[Placed], batch: list[Placed]) -> None:
        self._progress = self._progress.settle(records, batch)
        self._queue.save(self._progress)

    def _place_of(self, record: SpoolRecord) -> Place:
        if record.key is None:
            return record.partition
        topology = self._publishing.directory.get(self._queue.topic, self._deadline)
        if not topology.redesigned or topology.partition_num < 1:
            return "key", record.key
        return partition_for(record.key, topology.partition_num, self._publishing.config.sharding)


def make_publication(
    topic: str, place: Place, records: Sequence[SpoolRecord], now: int
) -> Publication:
    """One command for *records*, which go to one place in one manner; *now* as their ``written``.

    What is left of a delay counts.
    """
    first = records[0]
    delay = first.delay
    if delay is not None:
        delay = min(delay, max(0, delay - (now - first.written) // 1_000_000))
    return Publication(
        topic,
        tuple(record.body for record in records),
        place[1] if isinstance(place, tuple) else None,
        place if isinstance(place, int) else None,
        tuple(record.trace_id for record in records if record.trace_id is not None),
        must_trace=first.must_trace,
        headers=first.headers,
        tag=first.tag,
        delay=delay,
        batch=len(records) > 1,
    )


def make_records(publication: Publication, stored: int, now: int) -> list[SpoolRecord]:
    """The messages of *publication* but the first *stored* ones, as of *now*."""
    trace_ids: Sequence[int | None] = publication.trace_ids or (None,) * len(publication.bodies)
    return [
        SpoolRecord(
            body,
            now,
            publication.key,
            publication.partition,
            trace_id,
            publication.must_trace,
            publication.headers,
            publication.tag,
            publication.delay,
        )
        for body, trace_id in zip(publication.bodies[stored:], trace_ids[stored:], strict=True)
    ]
