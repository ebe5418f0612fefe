"""Letters sent after their commit, when there is no caller left to raise an error to.

Each is counted, and one that was lost is logged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic

from nsqsmart import Producer
from nsqsmart.contrib.shared.sending import Dispatch, Failure, Letter
from nsqsmart.errors import PublishError

log = logging.getLogger("nsqsmart")


@dataclass(frozen=True, slots=True)
class Counts:
    """Messages of this process that were left to a commit: stored, and lost."""

    published: int = 0
    failed: int = 0


class Tally:
    """Counts without a lock, which a fork could leave locked: every thread has its own."""

    def __init__(self) -> None:
        self._threads: dict[int, Counts] = {}

    def add(self, *, published: int = 0, failed: int = 0) -> None:
        """Count in the calling thread."""
        me = threading.get_ident()
        before = self._threads.get(me, Counts())
        self._threads[me] = Counts(before.published + published, before.failed + failed)

    def total(self) -> Counts:
        """Over all threads."""
        every = list(self._threads.values())
        return Counts(sum(each.published for each in every), sum(each.failed for each in every))


def log_loss(failure: Failure) -> None:
    """One record at ERROR: everything but the body."""
    letter, error = failure
    outcome = str(error.outcome) if isinstance(error, PublishError) else "not_sent"
    log.error(
        "committed, and its message not published: topic %s, key %r, %d bytes, alias %s, %s: %s",
        letter.topic,
        letter.key,
        len(letter.body),
        letter.alias,
        outcome,
        error or type(error).__name__,
        extra={
            "nsq_topic": letter.topic,
            "nsq_key": letter.key,
            "nsq_size": len(letter.body),
            "nsq_alias": letter.alias,
            "nsq_outcome": outcome,
        },
    )


@dataclass(frozen=True, slots=True)
class Parcel:
    """What goes with one producer.

    *find* returns the producer and the seconds it may take; *tell* is called with each failure,
    after it was logged and counted in *tally*.
    """

    letters: Sequence[Letter]
    find: Callable[[], tuple[Producer, float]]
    tell: Callable[[Failure], None]
    tally: Tally

    def lose(self, failure: Failure) -> None:
        """Account for one that failed."""
        log_loss(failure)
        self.tally.add(failed=1)
        self.tell(failure)


def deliver(parcels: Iterable[Parcel]) -> None:
    """Send them one after the other, and account for every letter; raises nothing of its own."""
    left = list(parcels)
    try:
        while left:
            _send(left.pop(0))
    except BaseException as error:
        for parcel in left:
            _lose_all(parcel, parcel.letters, error)
        raise


def _send(parcel: Parcel) -> None:
    letters = parcel.letters
    try:
        producer, limit = parcel.find()
    except Exception as error:  # noqa: BLE001 - the settings are wrong, and the commit is done
        for letter in letters:
            parcel.lose(Failure(letter, error))
        return
    longest = max([limit, *(letter.arguments.get("timeout", 0.0) for letter in letters)])
    dispatch = Dispatch(producer, letters, monotonic() + longest)
    try:
        dispatch.run()
    except BaseException as error:
        _lose_all(parcel, dispatch.waiting.values(), error)
        raise
    finally:
        for failure in dispatch.failures:
            parcel.lose(failure)
        sent = len(letters) - len(dispatch.failures) - len(dispatch.waiting)
        parcel.tally.add(published=sent)


def _lose_all(parcel: Parcel, letters: Iterable[Letter], error: BaseException) -> None:
    """The process is being ended in the middle of it."""
    cause = RuntimeError(f"ended by {type(error).__name__} before it was answered")
    for letter in letters:
        parcel.lose(Failure(letter, cause))
