"""What a handler says to have its message delivered again."""

from __future__ import annotations


def check_delay(delay: float | None) -> float | None:
    """Seconds, or a mistake that must not wait until a worker sends it."""
    if isinstance(delay, bool) or not isinstance(delay, int | float | None):
        raise TypeError(f"delay must be seconds, not {type(delay).__name__}")
    return delay


class Requeue(Exception):
    """Raise or return it in a handler: deliver the message again.

    Args:
        delay: seconds; None is the consumer's ``default_requeue_delay`` times the attempts.
        backoff: whether the consumer shall slow down, as after an error.
    """

    def __init__(self, delay: float | None = None, *, backoff: bool = True) -> None:
        super().__init__(delay, backoff)
        self.delay = check_delay(delay)
        self.backoff = backoff


def wish_of(error: BaseException) -> Requeue:
    """What a handler that raised *error* wants: what ends the process delays no message."""
    if isinstance(error, Requeue):
        return error
    return Requeue() if isinstance(error, Exception) else Requeue(0.0)
