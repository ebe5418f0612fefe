"""What is done about a message that was to be published after a commit, and was not."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from nsqsmart.contrib.shared.sending import Failure
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
