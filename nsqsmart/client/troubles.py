"""Topics that cannot be published to: for health(), and for one line of log when it lasts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from time import monotonic
from typing import Protocol

from nsqsmart.client.facts import facts

log = logging.getLogger("nsqsmart")

_QUIET = 1.0  # seconds: a leader that moves is found sooner


class _Trouble:
    """Since when a topic fails, and what was said last."""

    __slots__ = ("ended", "reason", "since", "told")

    def __init__(self, since: float) -> None:
        self.since = since
        self.reason = ""
        self.ended = False  # whether a call has given up
        self.told = False


class About(Protocol):
    """A message."""

    topic: str


class Troubles:
    """What failed since it last worked, by topic.

    ``topics`` is empty for as long as everything works; whoever succeeds looks at that alone.
    """

    def __init__(self) -> None:
        self.topics: dict[str, _Trouble] = {}
        self._lock = threading.Lock()  # guards both
        self._working: set[str] = set()

    def failed(self, topic: str, reason: str, began: float, *, ended: bool = False) -> None:
        """An attempt that began at *began* (monotonic seconds) failed; *ended*: its call as well.

        Logs one warning when attempts have failed for a second.
        """
        now = monotonic()
        with self._lock:
            trouble = self.topics.setdefault(topic, _Trouble(began))
            self._working.discard(topic)
            trouble.reason = reason
            trouble.ended |= ended
            tell = not ended and not trouble.told and now >= trouble.since + _QUIET
            trouble.told |= tell
        if tell:
            log.warning(
                "publishing to topic %s has failed for %.1f s, and is tried again: %s",
                topic,
                now - trouble.since,
                reason,
                extra=facts(topic),
            )

    def worked(self, topic: str) -> None:
        """A message of *topic* was stored."""
        with self._lock:
            trouble = self.topics.pop(topic, None)
            self._working.add(topic)
            if not self.topics:
                self._working.clear()
        if trouble and trouble.told:
            log.warning(
                "publishing to topic %s works again, after %.1f s",
                topic,
                monotonic() - trouble.since,
                extra=facts(topic),
            )

    def note_stored(self, items: Sequence[About]) -> None:
        """Each of *items* was stored."""
        if self.topics:
            for topic in {each.topic for each in items}:
                self.worked(topic)

    def reasons(self) -> list[str]:
        """What is in the way of each topic that a call gave up on, or that fails for a second."""
        now = monotonic()
        with self._lock:
            return [
                f"topic {topic} for {now - each.since:.0f} s: {each.reason}"
                for topic, each in sorted(self.topics.items())
                if each.ended or now >= each.since + _QUIET
            ]

    @property
    def everywhere(self) -> bool:
        """Whether nothing has worked since."""
        return bool(self.topics) and not self._working
