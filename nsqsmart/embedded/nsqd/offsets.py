"""Where a channel may be told to begin (protocol#sub)."""

from __future__ import annotations

from typing import NamedTuple

from nsqsmart.embedded.gotext import atoi, shown
from nsqsmart.embedded.nsqd.hosting import RedesignedShard

_SPECIAL = b"special"
_TIMESTAMP = b"timestamp"
_OFFSET = b"virtual_queue"
_COUNT = b"msgcount"
_TO_END = -1
_SECOND = 1_000_000_000


class OffsetRefused(Exception):
    """The position is malformed, or cannot be used here; the text is the server's."""


class Position(NamedTuple):
    """``special:-1``, ``timestamp:seconds``, ``virtual_queue:bytes`` or ``msgcount:number``."""

    kind: bytes
    value: int


def parse_position(text: bytes) -> Position:
    """Raises :class:`OffsetRefused`, or ValueError for a bad number."""
    kind, colon, value = text.partition(b":")
    known = kind in (_SPECIAL, _TIMESTAMP, _OFFSET, _COUNT)
    if not colon or b":" in value or not known:
        raise OffsetRefused(f"invalid consume offset:{shown(text)}")
    return Position(kind, atoi(value, "ParseInt"))


def find_index(shard: RedesignedShard, position: Position, *, coordinated: bool) -> int:
    """The index of the record that *position* means; raises :class:`OffsetRefused`."""
    log = shard.partition.log
    if position.kind == _SPECIAL:
        if position.value != _TO_END:
            raise OffsetRefused("not supported offset type")
        return log.end
    if not coordinated:
        raise OffsetRefused("Not supported while coordinator disabled")
    if position.kind == _TIMESTAMP:
        return log.index_at_time(position.value * _SECOND)
    if position.kind == _OFFSET:
        return log.index_at_offset(position.value)
    return min(max(position.value, log.base), log.end)
