"""The copies that an ordered channel sends of its first message (cluster 9)."""

from __future__ import annotations

from nsqsmart.embedded.broker.alarm import Alarm
from nsqsmart.embedded.broker.records import Record

_GAP = 0.001


class Copies:
    """Takes the first message out of hand right after it was sent, so that it is sent again.

    ``wanted`` is how often, on each leader. Between two copies the message is nobody's: a FIN
    fails, and brings the next copy at once.
    """

    def __init__(self, alarm: Alarm) -> None:
        self.wanted = 0
        self.left = 0
        self.record: Record | None = None
        self.due = 0.0
        self._alarm = alarm

    def begin(self) -> None:
        """A leader's first SUB_ORDERED: the next message comes several times."""
        self.left, self.record = self.wanted, None

    def hold(self, record: Record, now: float) -> None:
        """A copy was sent, and another follows."""
        self.left -= 1
        self.record, self.due = record, now + _GAP
        self._alarm.by(self.due)

    def take(self) -> Record | None:
        """The message that is to be sent again now, if there is one."""
        record, self.record = self.record, None
        return record
