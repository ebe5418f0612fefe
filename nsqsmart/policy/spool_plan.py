"""How far a spool has been sent, and what goes next in one command."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

from nsqsmart.wire.spool_records import Placed, SpoolRecord

WINDOW_MESSAGES = 1000
WINDOW_BYTES = 1024 * 1024
_SLOT_SIZES = (256, 1024, 4096, 16384)
_SLOT_HEAD = 96
_SLOT_RECORD = 12


class Progress(NamedTuple):
    """Everything before ``offset`` of ``segment`` is sent.

    So are the later records that begin at one of ``done``.
    """

    segment: int = 0
    offset: int = 0
    done: frozenset[int] = frozenset()

    def encode(self) -> bytes:
        """Encode the progress for :func:`read_progress`."""
        values = {"segment": self.segment, "offset": self.offset, "done": sorted(self.done)}
        return json.dumps(values).encode() + b"\n"

    def settle(self, records: Sequence[Placed], sent: Iterable[Placed]) -> Progress:
        """The progress when *sent* are too; *records* are in order, none left out."""
        done = self.done | {each.start for each in sent}
        offset = self.offset
        for each in records:
            if each.start < offset:
                continue
            if each.start not in done:
                break
            done -= {each.start}
            offset = each.end
        return Progress(self.segment, offset, done)


def read_progress(data: bytes) -> Progress | None:
    """What was encoded; None if it cannot be read."""
    try:
        values = json.loads(data)
        found = Progress(values["segment"], values["offset"], frozenset(values["done"]))
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    numbers = (found.segment, found.offset, *found.done)
    return found if all(type(each) is int and each >= 0 for each in numbers) else None


def slot_size(records: int) -> int:
    """Bytes that hold any progress within so many *records*, of which a window is sent at once."""
    needed = _SLOT_HEAD + _SLOT_RECORD * min(records, WINDOW_MESSAGES)
    return next(size for size in _SLOT_SIZES if size >= needed)


def encode_slot(progress: Progress, serial: int, size: int) -> bytes:
    """*progress*, the *serial* one, for a file of *size* bytes that is written over in place."""
    line = b"%d %s" % (serial, progress.encode())
    return (line + b"%08x\n" % zlib.crc32(line)).ljust(size)


def read_slot(data: bytes) -> tuple[int, Progress] | None:
    """Serial and progress; None if nothing was written there, or not all of it.

    A line without a checksum, the progress alone, has the serial 0.
    """
    lines = data.rstrip().splitlines(keepends=True)
    if len(lines) == 1 and (plain := read_progress(lines[0])):
        return 0, plain
    if len(lines) != 2 or lines[1] != b"%08x" % zlib.crc32(lines[0]):
        return None
    serial, _, line = lines[0].partition(b" ")
    progress = read_progress(line)
    return (int(serial), progress) if progress else None


def further(one: Progress, other: Progress) -> Progress:
    """The one that is further; both together if they stand at one offset."""
    if (one.segment, one.offset) == (other.segment, other.offset):
        return one._replace(done=one.done | other.done)
    return max(one, other, key=lambda each: (each.segment, each.offset))


def window(records: Sequence[Placed]) -> Sequence[Placed]:
    """The first of *records*, as many as are sent in one round; at least one."""
    size = 0
    for number, each in enumerate(records[:WINDOW_MESSAGES]):
        size += len(each.record.body)
        if number and size > WINDOW_BYTES:
            return records[:number]
    return records[:WINDOW_MESSAGES]


def batches(
    records: Iterable[Placed], place_of: Callable[[SpoolRecord], Hashable]
) -> list[list[Placed]]:
    """Split *records* into commands; the records of one key or partition stay in order.

    What has a delay goes alone: no command takes several such messages.
    """
    places: dict[Hashable, list[list[Placed]]] = {}
    for each in records:
        found = places.setdefault(place_of(each.record), [])
        alone = each.record.delay is not None
        if found and not alone and _manner(found[-1][-1].record) == _manner(each.record):
            found[-1].append(each)
        else:
            found.append([each])
    return [batch for found in places.values() for batch in found]


def _manner(record: SpoolRecord) -> Hashable:
    """What the messages of one command have in common."""
    headers = None if record.headers is None else json.dumps(record.headers, sort_keys=True)
    return (record.trace_id is None, record.must_trace, headers, record.tag, record.delay is None)
