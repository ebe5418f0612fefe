"""Letters that were sent after their commit: those that arrived, and those that did not."""

from __future__ import annotations

from nsqsmart.contrib.django.signals import publish_failed
from nsqsmart.contrib.shared.losses import Tally
from nsqsmart.contrib.shared.sending import Failure

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
