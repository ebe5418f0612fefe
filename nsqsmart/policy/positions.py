"""Where a channel of a redesigned nsqd is told to go on (protocol 2.3)."""

from __future__ import annotations

import re
from datetime import datetime

from nsqsmart.errors import ConfigError

Position = int | str | datetime
"""An offset in bytes, ``"start"``, ``"end"``, a time, or the server's own ``kind:number``."""

_NAMED = {"start": "virtual_queue:0", "end": "special:-1"}
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
                f"position {position!r} is none of 'start', 'end', 'virtual_queue:BYTES', "
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
