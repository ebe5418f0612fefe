"""Messages that waited for a commit and were not published."""

from __future__ import annotations

import logging

from blinker import Namespace

from nsqsmart.contrib.shared.sending import Failure

log = logging.getLogger("nsqsmart")

publish_failed = Namespace().signal(
    "publish-failed",
    """A message that waited for a commit was not published, and will not be.

    Sent with the app, ``topic``, ``body``, ``arguments`` (those of publish(), a dict) and
    ``error``. What a receiver raises is logged.
    """,
)


def tell(app: object, failure: Failure) -> None:
    """Send the signal."""
    letter, error = failure
    for receiver in publish_failed.receivers_for(app):
        try:
            receiver(
                app,
                topic=letter.topic,
                body=letter.body,
                arguments=dict(letter.arguments),
                error=error,
            )
        except Exception:
            log.exception("a receiver of publish_failed failed")
