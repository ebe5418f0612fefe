"""Where a channel of a redesigned nsqd is told to go on (protocol#sub)."""

from __future__ import annotations

import re
from datetime import datetime

from nsqsmart.errors import ConfigError

Position = int | str | datetime
"""An offset in bytes, ``"head"`` or ``"start"``, ``"tail"`` or ``"end"``, a time, or the server's
own ``kind:number``."""

TO_END = "special:-1"
_NAMED = {
    "start": "virtual_queue:0",
    "head": "virtual_queue:0",
    "end": TO_END,
    "tail": TO_END,
}
_TEXT = re.compile(r"(?:virtual_queue|timestamp|msgcount):[0-9]{1,18}|special:-1")
_MAX_OFFSET = (1 << 63) - 1


def position_text(position: object) -> str:
    """What the server calls *position*; raises :class:`ConfigError`, TypeError for its type.

    An int is an offset in bytes, as ``Message.offset`` and ``Receipt.offset`` say it. A datetime
    needs its time zone; the server looks for the first message of that second, or later.
    """
    if isinstance(position, datetime):
        return f"timestamp:{_seconds(position)}"
    if isinstance(position, str):
        text = _NAMED.get(position, position)
        if not _TEXT.fullmatch(text):
            raise ConfigError(
                f"position {position!r} is none of 'head', 'tail', 'virtual_queue:BYTES', "
                "'timestamp:SECONDS' and 'msgcount:NUMBER'"
            )
        return text
    if isinstance(position, bool) or not isinstance(position, int):
        raise TypeError(
            f"position must be an int, a str or a datetime, not {type(position).__name__}"
        )
    if not 0 <= position <= _MAX_OFFSET:
        raise ConfigError(f"position {position} is no offset: it must be 0 or more, in 63 bits")
    return f"virtual_queue:{position}"


def _seconds(moment: datetime) -> int:
    if moment.utcoffset() is None:
        raise ConfigError(f"position {moment} has no time zone: give it one, as datetime.UTC")
    seconds = int(moment.timestamp() // 1)
    if seconds < 0:
        raise ConfigError(f"position {moment} is before 1970")
    return seconds


class Gate:
    """Drops messages that a server had read before the channel was moved.

    One or two such messages may still come; once one at the position has come, or after it, all
    are let in. *floor* is an offset, *since* a time in nanoseconds since the epoch, and *first* the
    offset that the first message of an ordered partition must have: a later one is kept out, and
    requeued, because another consumer may have the first one; then it comes again.
    """

    def __init__(self, floor: int = 0, since: int = 0, first: int | None = None) -> None:
        self._floor = floor
        self._since = since
        self._first = first
        self._kept_out: int | None = None
        self.is_open = False

    def admits(self, offset: int, timestamp: int, attempts: int) -> bool:
        """Whether the next message is for the handlers."""
        if not self.is_open:
            if offset < self._floor or timestamp < self._since:
                return False
            if self.is_early(offset) and attempts == 1 and self._kept_out in (None, offset):
                self._kept_out = offset
                return False
            self.is_open = True
        return True

    def is_early(self, offset: int) -> bool:
        """Whether its offset is after the message that has to come first."""
        return self._first is not None and offset > self._first


def gate_of(text: str, start: int, end: int, *, ordered: bool) -> Gate:
    """For a position as the server writes it, in a log from *start* to *end*."""
    if text == TO_END:
        return Gate(end)
    kind, _, number = text.partition(":")
    if kind == "virtual_queue":
        floor = max(start, int(number))
        return Gate(floor, first=floor if ordered and floor < end else None)
    if kind == "timestamp":
        return Gate(since=int(number) * 1_000_000_000)
    return Gate()  # of a message number nothing is known
