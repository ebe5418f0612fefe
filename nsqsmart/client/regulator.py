"""Who has how much RDY: shares of ``max_in_flight``, turns, pauses and backoff, told to each."""

from __future__ import annotations

import logging
import random
import threading
from dataclasses import replace
from time import monotonic
from typing import Protocol

from nsqsmart.client.message import Message
from nsqsmart.client.subscription import Subscription
from nsqsmart.config import ConsumerConfig
from nsqsmart.net.ticker import Ticker
from nsqsmart.policy.flow import FlowControl, FlowLimits, FlowState

log = logging.getLogger("nsqsmart")


class Consumption(Protocol):
    """The consumer, as far as its flow goes."""

    topic: str
    channel: str
    config: ConsumerConfig
    ticker: Ticker
    watching: bool
    """Whether results matter to the backoff just now; the regulator sets it."""


class Regulator:
    """Brings every live subscription's RDY to the level that the policy wants."""

    def __init__(self, consumption: Consumption) -> None:
        self._consumption = consumption
        self.paused = False
        self._stopped = False
        self._lock = threading.Lock()  # guards the three below
        self._limits = _limits(consumption.config)
        self._flow = FlowControl(self._limits, random.choice)
        self._members: set[Subscription] = set()

    def start(self) -> None:
        """The first look at who has its turn."""
        interval = self._consumption.config.rdy_redistribute_interval
        self._consumption.ticker.at(monotonic() + interval, self._rotate)

    def add(self, subscription: Subscription) -> None:
        """RDY for the new one, less for the others."""
        with self._lock:
            ordered = subscription.wish.ordered
            if ordered != self._limits.one_each:
                self._begin_anew(one_each=ordered)
            self._members.add(subscription)
            self._flow.connect(subscription, subscription.max_rdy, monotonic())
        self.apply()

    def remove(self, subscription: Subscription) -> None:
        """Its share is for the others."""
        with self._lock:
            self._members.discard(subscription)
            self._flow.disconnect(subscription, monotonic())
        self.apply()

    def _begin_anew(self, *, one_each: bool) -> None:
        """The rules depend on whether the topic turned out to be ordered."""
        self._limits = replace(self._limits, one_each=one_each)
        self._flow = FlowControl(self._limits, random.choice)
        now = monotonic()
        for member in self._members:
            self._flow.connect(member, member.max_rdy, now)

    def on_result(self, message: Message, *, ok: bool) -> None:
        """A result that may move the backoff."""
        now = monotonic()
        where = self._consumption
        with self._lock:
            changed = self._flow.on_result(
                message.subscription, ok=ok, delivered_at=message.received_at, now=now
            )
            due = self._flow.due()
            # Under the lock: an older answer written last would end the interest in results.
            where.watching = self._flow.state is not FlowState.FLOWING
        if changed:
            self.apply()
            if due is not None:
                log.warning("%s/%s backs off for %.1f s", where.topic, where.channel, due - now)
                where.ticker.at(due, self._end_backoff)

    def pause(self, paused: bool) -> None:  # noqa: FBT001 - it is the only thing said
        """RDY 0 everywhere, or what it would be."""
        self.paused = paused
        self.apply()

    def stop(self) -> None:
        """RDY 0 everywhere, for good."""
        self._stopped = True
        self.apply()

    def set_max_in_flight(self, count: int) -> None:
        """Share out *count* from now on."""
        with self._lock:
            self._limits = replace(self._limits, max_in_flight=count)
            self._flow.set_max_in_flight(count)
        self.apply()

    def is_starved(self) -> bool:
        """Whether a connection has nearly used up its share of ``max_in_flight``."""
        with self._lock:
            loads = [(member.in_flight, self._flow.target(member)) for member in self._members]
        return any(share and load >= 0.85 * share for load, share in loads)

    def apply(self) -> None:
        """Bring every connection's RDY to its level: lower before raising."""
        with self._lock:
            stopped = self._stopped or self.paused
            changes = []
            for member in self._members:
                if (outbox := member.outbox) is not None:
                    before, outbox.rdy = outbox.rdy, 0 if stopped else self._flow.target(member)
                    changes.append((outbox.rdy - before, outbox))
        for _, outbox in sorted(changes, key=lambda change: change[0]):
            outbox.flush()

    # What the ticker calls.

    def _end_backoff(self) -> None:
        with self._lock:
            changed = self._flow.on_time(monotonic())
        if changed:
            self.apply()

    def _rotate(self) -> None:
        with self._lock:
            rotates = self._flow.needs_rotation()
            if rotates:
                self._flow.rotate()
        if rotates:
            self.apply()
        self.start()


def _limits(config: ConsumerConfig) -> FlowLimits:
    return FlowLimits(config.max_in_flight, config.backoff_multiplier, config.max_backoff_duration)
