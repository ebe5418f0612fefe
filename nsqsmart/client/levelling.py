"""Telling connections their RDY: lower ones first, and no raise that a lower one has yet to allow.

A connection whose sending half is busy, or stalled, is told later; and what the server has sent
just before it was told is still on its way. So what one is lowered by is the others' only after a
while (reliability C3).
"""

from __future__ import annotations

from collections.abc import Mapping

from nsqsmart.client.subscription import Subscription
from nsqsmart.net.outbox import Outbox


def lower(levels: Mapping[Subscription, int]) -> dict[Subscription, int]:
    """Set what is less than before; who was lowered, and what each had."""
    lowered = {}
    for subscription, outbox, level in _reachable(levels):
        if level < outbox.rdy:
            lowered[subscription] = max(outbox.rdy, outbox.rdy_sent)
            outbox.rdy = level
    return lowered


def raise_within(
    levels: Mapping[Subscription, int], total: int, former: Mapping[Subscription, int]
) -> tuple[list[Subscription], bool]:
    """Set what is more than before, as far as all have *total* together.

    *former* is what some had until a moment ago. Who comes first in *levels* is served first: while
    he has to wait, nobody behind him takes back what he was lowered by, or two could hand it to and
    fro and a third starve. Returns who was raised, and whether somebody has to wait for more.
    """
    rows = [
        (subscription, outbox, level, max(outbox.rdy, outbox.rdy_sent, former.get(subscription, 0)))
        for subscription, outbox, level in _reachable(levels)
    ]
    room = total - sum(possible for _, _, _, possible in rows)
    raised = []
    for subscription, outbox, level, possible in rows:
        rise = max(0, level - possible)
        granted = min(rise, max(0, room))
        room -= granted
        reached = level - (rise - granted)
        if reached > outbox.rdy:
            outbox.rdy = reached
            raised.append(subscription)
        if granted < rise:
            return raised, True
    return raised, False


def _reachable(levels: Mapping[Subscription, int]) -> list[tuple[Subscription, Outbox, int]]:
    return [
        (subscription, subscription.outbox, level)
        for subscription, level in levels.items()
        if subscription.outbox is not None and not subscription.outbox.broken
    ]
