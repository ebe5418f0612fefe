"""The spool of a producer: what cannot be sent now waits on the disk, and goes first next time.

No thread: a publish sends what waits of its topic before it, in its own time. A message may be sent
twice (its answer was lost, or the process ended before that was written down); none is lost that
a caller was told is spooled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic, time_ns
from typing import NamedTuple

from nsqsmart.client.publishing.shared_state import PublishingState
from nsqsmart.client.shared.arguments import Publication
from nsqsmart.client.shared.log_fields import log_fields
from nsqsmart.client.shared.receipt import Receipt
from nsqsmart.client.spooling.sending import Sending, make_records
from nsqsmart.client.spooling.storage import (
    SpoolQueue,
    check_folder,
    check_writable,
    locked,
    make_folder,
    prepare_folder,
    topics_in,
)
from nsqsmart.config import ProducerConfig
from nsqsmart.errors import ConfigError, Outcome, PublishError, SpoolError

log = logging.getLogger("nsqsmart")

Send = Callable[[PublishingState, Publication, float], Receipt]
Lock = Callable[[], AbstractContextManager[None]]

_LOCK_PATIENCE = 10.0
# So long a publish waits for another sender: what it keeps instead has to be sent as well, and
# threads that do so all the time would never come to the end of it.
_TURN = 0.25
_PAUSE = 5.0
_BUSY = "SpoolBusy"
_STUCK = (
    "spool: what waits of %s is not sent: the disk has no room to write that down (%s); what is "
    "published meanwhile goes past it, and in %.0f s it is tried again"
)
_SEGMENT_BYTES = 8 << 20


class SpooledTopic(NamedTuple):
    """What a spool has of one topic.

    ``messages`` and their ``bytes`` wait, the ``oldest`` since then (nanoseconds since the
    epoch, None if there is none); ``refused`` ones were set aside, for no server takes them;
    ``damaged`` names files with bytes that could not be read.
    """

    topic: str
    messages: int
    bytes: int
    oldest: int | None
    refused: int
    damaged: tuple[str, ...]


class Flushed(NamedTuple):
    """What came of sending a topic's messages: how many were ``sent``, how many were ``refused``
    and set aside, and the ``error`` that ended it, None if nothing waits any longer."""

    topic: str
    sent: int
    refused: int
    error: PublishError | None


class Spool:
    """The spool of one producer, in the folder that its option ``spool`` names.

    Any number of threads and processes may share the folder; nothing is kept open. Raises
    :class:`ConfigError` where the folder cannot be used.
    """

    def __init__(self, folder: str, config: ProducerConfig) -> None:
        self.folder = prepare_folder(folder)
        self._most = config.spool_max_bytes
        self._segment_bytes = min(_SEGMENT_BYTES, max(1 << 16, self._most // 8))
        self._lock_file = self.folder / "spool.lock"
        self._queues: dict[str, SpoolQueue] = {}
        self._again_at: dict[str, float] = {}
        self._stuck: set[str] = set()
        """Topics whose waiting messages the disk does not let us send."""

    def publish(
        self, send: Send, publishing: PublishingState, publication: Publication, deadline: float
    ) -> Receipt:
        """Send *publication* after what waits of its topic, or keep it.

        Past what waits where the disk does not let it be sent. Raises PublishError for what is
        refused, and SpoolError where it cannot be kept.
        """
        topic = publication.topic
        queue = self._queue(topic)
        with _trouble(topic):
            error, waiting = self._clear_the_way(queue, publishing, deadline)
        if error is not None and not error.retryable:
            raise error
        if not waiting:
            try:
                return send(publishing, publication, deadline)
            except PublishError as failure:
                if not failure.retryable:
                    raise
                error = failure
                self._again_at[topic] = monotonic() + _PAUSE
        return self._keep(queue, publication, error)

    def flush(self, publishing: PublishingState, deadline: float) -> list[Flushed]:
        """Send what waits of every topic, one after the other; raises OSError for the folder."""
        found: list[Flushed] = []
        for topic in topics_in(self.folder):
            queue = self._queue(topic)
            if queue.waiting():
                try:
                    with _trouble(topic):
                        lock = partial(self._lock, deadline)
                        found.append(self._send_waiting(queue, publishing, deadline, lock))
                except SpoolError as error:
                    found.append(Flushed(topic, 0, 0, error))
        return found

    # ------------------------------------------------------------------------------ what waits

    def _clear_the_way(
        self, queue: SpoolQueue, publishing: PublishingState, deadline: float
    ) -> tuple[PublishError | None, bool]:
        """Send what waits of a topic; why some of it still does, and whether to go after that."""
        topic, paused = queue.topic, monotonic() < self._again_at.get(queue.topic, 0.0)
        if not queue.waiting():
            return None, False
        if paused:
            return None, topic not in self._stuck
        try:
            # With all the patience there is for the spool's lock: without it the message is lost.
            error = self._send_waiting(queue, publishing, deadline, self._lock).error
        except OSError as failure:
            if failure.errno is None:  # the lock
                raise
            # What waits stays where it is; to add to it would fail as well.
            self._stuck.add(topic)
            self._again_at[topic] = monotonic() + _PAUSE
            reason = failure.strerror or failure
            log.warning(_STUCK, topic, reason, _PAUSE, extra=log_fields(topic))
            return None, False
        self._stuck.discard(topic)
        if error is not None and error.code == _BUSY:
            error = None
        return error, queue.waiting()

    def _send_waiting(
        self, queue: SpoolQueue, publishing: PublishingState, deadline: float, lock: Lock
    ) -> Flushed:
        topic = queue.topic
        sending = Sending(queue, publishing, deadline, lock)
        with locked(queue.sending, min(_TURN, max(0.0, deadline - monotonic()))) as alone:
            if not alone:
                busy = SpoolError("another caller is sending what waits", code=_BUSY)
                return Flushed(topic, 0, 0, busy)
            error = sending.run()
        if error is None:
            self._again_at.pop(topic, None)
        elif not sending.sent:
            # A sender that only ran out of time is followed by the next: under load what is written
            # in a pause would be more than what is sent between two.
            self._again_at[topic] = monotonic() + _PAUSE
        if sending.sent:
            log.info("spool: sent %d messages of %s", sending.sent, topic, extra=log_fields(topic))
        return Flushed(topic, sending.sent, sending.refused, error)

    # ------------------------------------------------------------------------------ what is kept

    def _keep(
        self, queue: SpoolQueue, publication: Publication, error: PublishError | None
    ) -> Receipt:
        stored = error.accepted if error else 0
        records = make_records(publication, stored, time_ns())
        with _trouble(queue.topic, error), self._lock():
            used = sum(self._queue(topic).size() for topic in topics_in(self.folder))
            queue.append(records, self._most - used)
        # Once for an outage, not for every later message.
        log.log(
            logging.WARNING if error else logging.DEBUG,
            "spool: keeping what is published to %s: %s",
            queue.topic,
            error or "others wait",
            extra=log_fields(queue.topic),
        )
        return Receipt(
            publication.topic,
            None,
            "",
            len(error.attempts) if error else 0,
            trace_id=publication.trace_ids[0] if publication.trace_ids else None,
            count=len(publication.bodies),
            spooled=True,
        )

    @contextmanager
    def _lock(self, deadline: float = inf) -> Iterator[None]:
        """Alone among all that write; raises OSError when that takes too long."""
        make_folder(self.folder)
        check_writable(self.folder)
        patience = min(_LOCK_PATIENCE, max(0.0, deadline - monotonic()))
        with locked(self._lock_file, patience) as alone:
            if not alone:
                raise OSError(f"{str(self._lock_file)!r} is held by another process")
            yield

    def _queue(self, topic: str) -> SpoolQueue:
        queue = self._queues.get(topic)
        if queue is None:
            queue = self._queues[topic] = SpoolQueue(self.folder, topic, self._segment_bytes)
        return queue


def spool_status(folder: str) -> list[SpooledTopic]:
    """What waits in the spool *folder*, by topic; asks no server, and changes nothing.

    Raises :class:`ConfigError` where it is no folder of ours.
    """
    path = Path(folder).expanduser()
    try:
        check_folder(path)
        found = [_look_at(SpoolQueue(path, topic, 0)) for topic in topics_in(path)]
    except OSError as error:
        raise ConfigError(f"spool {folder!r} cannot be read: {error.strerror or error}") from error
    return [each for each in found if each.messages or each.refused or each.damaged]


def _look_at(queue: SpoolQueue) -> SpooledTopic:
    left = queue.left()
    return SpooledTopic(
        queue.topic,
        len(left),
        sum(len(record.body) for record in left),
        min((record.written for record in left), default=None),
        len(queue.refused()),
        tuple(map(str, queue.damaged())),
    )


@contextmanager
def _trouble(topic: str, error: PublishError | None = None) -> Iterator[None]:
    """What goes wrong inside is a SpoolError, which says what became of the message as well."""
    try:
        yield
    except (OSError, ValueError) as failure:
        first = f"{error}; " if error else ""
        reason = getattr(failure, "strerror", None) or failure
        raised = SpoolError(
            f"{first}publish to {topic!r} cannot be spooled: {reason}",
            outcome=error.outcome if error else Outcome.NOT_SENT,
            answered=error.answered if error else True,
            code="SpoolError",
            attempts=error.attempts if error else (),
        )
        raised.accepted = error.accepted if error else 0
        raise raised from failure
