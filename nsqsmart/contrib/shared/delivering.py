"""Letters sent after their commit, when there is nobody left to raise an error to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic

from nsqsmart import Producer
from nsqsmart.contrib.shared.letters import Letter
from nsqsmart.contrib.shared.losses import Tally, log_loss
from nsqsmart.contrib.shared.sending import Dispatch, Failure


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
