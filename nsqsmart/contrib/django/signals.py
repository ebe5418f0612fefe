"""The signal ``publish_failed``, and the count of messages sent after their commit."""

from __future__ import annotations

from django.dispatch import Signal

from nsqsmart.contrib.shared.delivering import Tally
from nsqsmart.contrib.shared.sending import Failure

publish_failed = Signal()
"""A message that waited for a commit, or in the outbox, was not published and will not be.

Sent with ``sender`` the alias (a str), ``topic``, ``body``, ``arguments`` (those of publish(), a
dict) and ``error``. What a receiver raises is logged.
"""

tally = Tally()


def tell(failure: Failure) -> None:
    """Send the signal."""
    letter, error = failure
    # Robust: one listener that fails is logged, and the others are told.
    publish_failed.send_robust(
        sender=letter.alias,
        topic=letter.topic,
        body=letter.body,
        arguments=dict(letter.arguments),
        error=error,
    )
