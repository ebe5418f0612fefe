"""The RDY of each connection, so that no more than ``max_in_flight`` can ever be in flight.

A connection can have as many messages in flight as its RDY, or as it has already, whichever is
more. So a connection whose RDY was lowered still holds the messages it was sent, and others get
its share only as these are answered. Without this, every new connection and every turn would add
to what is in flight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

N = TypeVar("N")


def allot(
    shares: Mapping[N, int],
    wishes: Mapping[N, int],
    in_flight: Mapping[object, int],
    total: int,
) -> dict[N, int]:
    """The RDY of each of *shares*: its need up to its share, and more where others need less.

    Where there is not enough, the first of *shares* go first. *shares* add up to *total* at most,
    and so does what comes out. *in_flight* holds messages that are delivered and can still be
    answered; a connection that is not in it has none.
    """
    levels = {name: min(share, wishes[name]) for name, share in shares.items()}
    hungry = {name: wishes[name] - level for name, level in levels.items() if wishes[name] > level}
    if hungry:
        for name, more in _pour(total - sum(levels.values()), hungry).items():
            levels[name] += more
    room = total - sum(in_flight.get(name, 0) for name in levels)
    rises = {
        name: level - in_flight.get(name, 0)
        for name, level in levels.items()
        if level > in_flight.get(name, 0)
    }
    if sum(rises.values()) > room:
        for name, rise in _pour(max(0, room), rises).items():
            levels[name] = in_flight.get(name, 0) + rise
    return levels


def _pour(amount: int, wishes: Mapping[N, int]) -> dict[N, int]:
    """Divide *amount* evenly, the odd ones for the first; what one does not need others get."""
    given = {}
    for place, name in enumerate(sorted(wishes, key=wishes.__getitem__)):
        given[name] = min(wishes[name], -(-amount // (len(wishes) - place)))
        amount -= given[name]
    return given
