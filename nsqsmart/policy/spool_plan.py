"""How far a spool has been sent, and what goes next in one command."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

from nsqsmart.wire.spool_records import Placed, SpoolRecord

WINDOW_MESSAGES = 1000
WINDOW_BYTES = 1024 * 1024


class Progress(NamedTuple):
    """Everything before ``offset`` of ``segment`` is sent.

    So are the records behind it that begin at one of ``done``.
    """

    segment: int = 0
    offset: int = 0
    done: frozenset[int] = frozenset()

    def encode(self) -> bytes:
        """As :func:`read_progress` reads it."""
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
    except (ValueError, TypeError, LookupError):
        return None
    numbers = (found.segment, found.offset, *found.done)
    return found if all(type(each) is int and each >= 0 for each in numbers) else None


def window(records: Sequence[Placed]) -> Sequence[Placed]:
    """As many of *records* as are sent before anybody looks again; one at least."""
    size = 0
    for number, each in enumerate(records[:WINDOW_MESSAGES]):
        size += len(each.record.body)
        if number and size > WINDOW_BYTES:
            return records[:number]
    return records[:WINDOW_MESSAGES]


def batches(
    records: Iterable[Placed], place_of: Callable[[SpoolRecord], Hashable]
) -> list[list[Placed]]:
    """*records* in commands: what goes to one place stays in its order.

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
