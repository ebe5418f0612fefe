"""The RDY of each connection: shares of ``max_in_flight``, turns, pauses and backoff.

Lower values are told first. A connection whose sending half is busy, or stalled, is told later; and
what the server has sent just before it was told is still on its way. So what one connection is
lowered by goes to the others only after a while (decisions#26).
"""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from time import monotonic
from typing import cast

from nsqsmart.client.consuming.workers import Dispatcher
from nsqsmart.client.messages.message import Message
from nsqsmart.client.shared.log_fields import log_fields
from nsqsmart.client.subscribing.consumer_runtime import ConsumerRuntime
from nsqsmart.client.subscribing.subscription import Subscription
from nsqsmart.net.write_buffer import WriteBuffer
from nsqsmart.policy.allotment import allot
from nsqsmart.policy.flow import FlowControl, FlowLimits, FlowState
from nsqsmart.policy.governor import PERIOD, Governor

log = logging.getLogger("nsqsmart")

# A connection with RDY that others wait for, and without messages, keeps it so much of a turn.
_IDLE_PART = 0.1
# Seconds in which what a server has sent arrives: it may lie in its output buffer for 25 ms.
_ON_ITS_WAY = 0.05


def lower(levels: Mapping[Subscription, int]) -> dict[Subscription, int]:
    """Set the levels that fall; returns the lowered connections, and what each had."""
    lowered = {}
    for subscription, write_buffer, level in _reachable(levels):
        if level < write_buffer.rdy:
            lowered[subscription] = max(write_buffer.rdy, write_buffer.rdy_sent)
            write_buffer.rdy = level
    return lowered


def raise_within(
    levels: Mapping[Subscription, int], total: int, former: Mapping[Subscription, int]
) -> tuple[list[Subscription], bool]:
    """Set what is more than before, as far as all have *total* together.

    *former* is what some had until a moment ago. *levels* are served in order: while one waits, no
    later one takes back what it was lowered by. Else two could hand it to and fro while a third
    starves. Returns the raised connections, and whether one still has to wait for more.
    """
    rows = [
        (
            subscription,
            write_buffer,
            level,
            max(write_buffer.rdy, write_buffer.rdy_sent, former.get(subscription, 0)),
        )
        for subscription, write_buffer, level in _reachable(levels)
    ]
    room = total - sum(possible for _, _, _, possible in rows)
    raised = []
    for subscription, write_buffer, level, possible in rows:
        rise = max(0, level - possible)
        granted = min(rise, max(0, room))
        room -= granted
        reached = level - (rise - granted)
        if reached > write_buffer.rdy:
            write_buffer.rdy = reached
            raised.append(subscription)
        if granted < rise:
            return raised, True
    return raised, False


def _reachable(levels: Mapping[Subscription, int]) -> list[tuple[Subscription, WriteBuffer, int]]:
    return [
        (subscription, subscription.write_buffer, level)
        for subscription, level in levels.items()
        if subscription.write_buffer is not None and not subscription.write_buffer.broken
    ]


class _Member:
    """What the controller notes of one subscription."""

    __slots__ = ("former", "governor", "looked", "lowered_until", "received", "served_since")

    def __init__(self) -> None:
        self.governor = Governor()
        self.received = 0  # at the last tick
        self.looked = 0  # the count at the last look at turns
        self.served_since: float | None = None
        self.former = 0  # what it had until it was lowered
        self.lowered_until = 0.0  # so long it may still be sent as much


class RdyController:
    """Brings every live subscription's RDY to the level that the policy wants.

    ``resting``: nothing moves, and :meth:`wake` is to be called when messages come.
    """

    def __init__(self, runtime: ConsumerRuntime[Subscription], dispatcher: Dispatcher) -> None:
        self._config = config = runtime.config
        self._runtime = runtime
        self._dispatcher = dispatcher
        self.paused = self._stopped = False
        self._adaptive = config.rdy_mode == "adaptive" and dispatcher.adapts_rdy
        self.resting = self._adaptive
        self._lock = threading.Lock()  # guards the nine below
        self.due: float | None = None  # when the pause after failures ends, or has ended
        self._limits = FlowLimits(
            config.max_in_flight, config.backoff_multiplier, config.max_backoff_duration
        )
        self._flow = FlowControl(self._limits, random.choice)
        self._expected = 0
        self._members: dict[Subscription, _Member] = {}
        self._ticking = False
        self._turning = False
        self._ticked_at = 0.0
        self._applied = 0

    # Connections that come and go.

    def expect(self, count: int = 0, until: float = 0.0) -> None:
        """Until then, leave shares for *count* connections, some of which are still being made.

        Else the first one of a consumer has all of ``max_in_flight``, and with a backlog the others
        get nothing until that is handled. To be called again when it is time.
        """
        with self._lock:
            if monotonic() >= until:
                count = 0
            if count == self._expected:
                return
            self._expected = count
            self._flow.expect(count)
        self._apply()

    def add(self, subscription: Subscription) -> None:
        """Add a connection: RDY for it, less for the others."""
        with self._lock:
            ordered = subscription.request.ordered
            if ordered != self._limits.one_each:
                self._begin_anew(one_each=ordered)
            self._members[subscription] = _Member()
            self._flow.connect(subscription, subscription.max_rdy, monotonic())
        self._apply()

    def remove(self, subscription: Subscription) -> None:
        """Remove a connection; the others get its share."""
        with self._lock:
            self._members.pop(subscription, None)
            self._flow.disconnect(subscription, monotonic())
        self._apply()

    def _begin_anew(self, *, one_each: bool) -> None:
        """The rules depend on whether the topic turned out to be ordered."""
        self._limits = replace(self._limits, one_each=one_each)
        self._flow = FlowControl(self._limits, random.choice)
        self._flow.expect(self._expected)
        now = monotonic()
        for member in self._members:
            self._flow.connect(member, member.max_rdy, now)

    # What happens.

    def on_result(self, message: Message, *, ok: bool) -> None:
        """A result that may move the backoff."""
        now = monotonic()
        where = self._runtime
        with self._lock:
            changed = self._flow.on_result(
                message._subscription, ok=ok, delivered_at=message.received_at, now=now
            )
            self.due = due = self._flow.due()
            # Under the lock: an older answer written last would end the interest in results.
            where.watching = self._flow.state is not FlowState.FLOWING
        if changed:
            self._apply()
            if due is not None:
                about = log_fields(where.topic, channel=where.channel)
                log.warning("%s/%s backs off for %.1f s", *about.values(), due - now, extra=about)
                where.ticker.at(due, self._end_backoff)

    def pause(self, paused: bool) -> None:  # noqa: FBT001 - it is the only thing said
        """Send RDY 0 to every connection, or lift that."""
        self.paused = paused
        self._apply()

    def stop(self) -> None:
        """Send RDY 0 to every connection, for good."""
        self._stopped = True
        self._apply()

    def set_max_in_flight(self, count: int) -> None:
        """Share out *count* from now on."""
        with self._lock:
            self._limits = replace(self._limits, max_in_flight=count)
            self._flow.set_max_in_flight(count)
        self._apply()

    def is_starved(self) -> bool:
        """Whether handlers and callers hold nearly all of a connection's share."""
        held = self._dispatcher.count_in_hand()
        return self._is_used_up(lambda each: held[each])

    def is_full(self) -> bool:
        """Whether a share is nearly used up, also by what waits for a worker."""
        return self._is_used_up(lambda each: each.in_flight)

    def _is_used_up(self, load: Callable[[Subscription], int]) -> bool:
        with self._lock:
            shares = [(each, self._flow.target(each)) for each in self._members]
        return any(share and load(each) >= 0.85 * share for each, share in shares)

    def wake(self) -> None:
        """Messages came, or there was not enough for all: look again and again from now on."""
        with self._lock:
            if self._ticking or self._stopped:
                return
            self._ticking, self.resting = True, False
            self._ticked_at = now = monotonic()
        self._runtime.ticker.at(now + PERIOD, self._tick)

    # Levels.

    def _apply(self) -> bool:
        """Bring every connection's RDY to its level; returns whether one has to wait."""
        with self._lock:
            _, short = self._levels({})
        # Rarely needed, and not cheap where the application holds thousands.
        expired = self._expired() if short else {}
        with self._lock:
            self._applied = mine = self._applied + 1
            levels, short = self._levels(expired)
            lowered = lower(levels)
            self._note_lowered(lowered)
            begins = self._flow.needs_rotation() and not self._turning
            self._turning = self._turning or begins
        _flush(lowered)
        raised: list[Subscription] = []
        with self._lock:
            # Else a later call has newer levels, and raises what is to be raised.
            if mine == self._applied:
                total = self._limits.max_in_flight
                raised, late = raise_within(levels, total, self._former())
                short = short or late
        _flush(raised)
        if begins:
            self._look_at_turns_later()
        if short:
            self.wake()
        return short

    def _note_lowered(self, lowered: Mapping[Subscription, int]) -> None:
        now = monotonic()
        for subscription, former in lowered.items():
            note = self._members[subscription]
            # Each step down does not prolong it; to have had all of it again meanwhile does.
            if now >= note.lowered_until or former >= note.former:
                note.former = former
                note.lowered_until = now + _ON_ITS_WAY + 2 * subscription.round_trip

    def _former(self) -> dict[Subscription, int]:
        """What those had that were lowered a moment ago."""
        now = monotonic()
        return {
            each: note.former for each, note in self._members.items() if now < note.lowered_until
        }

    def _levels(self, expired: Mapping[object, int]) -> tuple[dict[Subscription, int], bool]:
        # The one that has waited longest is first where there is not enough for all.
        shares = cast("dict[Subscription, int]", self._flow.shares())
        if self._stopped or self.paused:
            return dict.fromkeys(shares, 0), False
        wishes, total = shares, self._limits.max_in_flight
        if self._governs():
            wishes = {
                member: note.governor.within(min(member.max_rdy, total))
                for member, note in self._members.items()
            }
        in_flight: dict[object, int] = {}
        # A head that is held here under TOUCH must hold no other partition.
        if not self._limits.one_each:
            in_flight = {each: max(0, each.in_flight - expired.get(each, 0)) for each in shares}
        levels = allot(shares, wishes, in_flight, total)
        short = any(levels[name] < min(wishes[name], share) for name, share in shares.items())
        return levels, short

    def _governs(self) -> bool:
        flowing = self._flow.state is FlowState.FLOWING
        return self._adaptive and flowing and not self._limits.one_each

    def _expired(self) -> Mapping[object, int]:
        """How many messages in handlers the servers no longer count as in flight."""
        return Counter(each._subscription for each in self._dispatcher.in_hand() if each.expired)

    # What the ticker calls.

    def _tick(self) -> None:
        """See what each connection needs."""
        busy = Counter(message._subscription for message in self._dispatcher.in_hand())
        now = monotonic()
        with self._lock:
            # Rest first, then look: messages after the look find it resting, and wake it.
            self._ticking, self.resting = False, self._adaptive
            elapsed, self._ticked_at = now - self._ticked_at, now
            rested = True
            if self._adaptive and not self._stopped:
                for each in self._members:
                    rested = self._look_at(each, busy[each], elapsed) and rested
        self._apply()
        if not rested:
            self.wake()

    def _look_at(self, subscription: Subscription, busy: int, elapsed: float) -> bool:
        """Whether it rests."""
        note = self._members[subscription]
        received = subscription.reader.received if subscription.reader else 0
        came, note.received = received - note.received, received
        if came or busy or not note.governor.resting:
            note.governor.tick(came, elapsed, subscription.round_trip, busy)
        return note.governor.resting

    def _end_backoff(self) -> None:
        with self._lock:
            changed = self._flow.on_time(monotonic())
        if changed:
            self._apply()

    def _look_at_turns_later(self) -> None:
        # Before that it is unknown whether a connection brings messages.
        pause = max(_ON_ITS_WAY, self._config.rdy_redistribute_interval * _IDLE_PART)
        self._runtime.ticker.at(monotonic() + pause, self._look_at_turns)

    def _look_at_turns(self) -> None:
        """End the turns of those that bring nothing, and of those that have had theirs."""
        now = monotonic()
        with self._lock:
            served = set(self._flow.served())
            over = []
            for member, note in self._members.items():
                if member not in served:
                    note.served_since = None
                elif self._has_had_its_turn(member, note, now):
                    over.append(member)
            changed = self._flow.rotate(over)
            self._turning = bool(served)
        if changed:
            self._apply()
        if served:
            self._look_at_turns_later()

    def _has_had_its_turn(self, subscription: Subscription, note: _Member, now: float) -> bool:
        received = subscription.reader.received if subscription.reader else 0
        came, note.looked = received - note.looked, received
        has_rdy = subscription.write_buffer is not None and subscription.write_buffer.rdy > 0
        if not has_rdy and self._flow.target(subscription):
            # It waits for what others still have in flight: its turn has not begun.
            note.served_since = None
            return False
        if note.served_since is None:
            note.served_since = now
            return False
        longest = self._config.rdy_redistribute_interval
        return now - note.served_since >= longest or not (came or subscription.in_flight)


def _flush(subscriptions: Iterable[Subscription]) -> None:
    for subscription in subscriptions:
        if subscription.write_buffer is not None:
            # A peer that takes nothing must not hold up the ticker: the rest follows.
            subscription.write_buffer.flush(wait=False)
