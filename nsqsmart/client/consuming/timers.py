"""What the ticker does for a consumer again and again: silence, heartbeats, touches."""

from __future__ import annotations

import logging
from contextlib import suppress
from time import monotonic
from typing import Protocol

from nsqsmart.client.consuming.workers import Dispatcher, busy_readers, in_hands
from nsqsmart.client.messages.checked_out import CheckedOut, Timeouts
from nsqsmart.client.shared.log_fields import subscription_fields
from nsqsmart.client.subscribing.subscription import Subscription
from nsqsmart.config import ConsumerConfig
from nsqsmart.errors import AlreadyResponded
from nsqsmart.net.ticker import Ticker

log = logging.getLogger("nsqsmart")


class Ground(Protocol):
    """The consumer, as far as the rounds go through it."""

    config: ConsumerConfig
    ticker: Ticker
    dispatcher: Dispatcher
    checked_out: CheckedOut
    timeouts: Timeouts

    def snapshot(self) -> list[Subscription]:
        """The subscriptions there are now."""


class Rounds:
    """Calls itself again through the ticker, which forgets it when it is closed."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._warned = False

    def start(self) -> None:
        """The first round of each."""
        self._watch()
        if self._ground.config.touch_every:
            self._touch(self._ground.config.touch_every)

    def sweep(self) -> bool:
        """Send what waits; True while something still does."""
        subscriptions = self._ground.snapshot()
        for subscription in subscriptions:
            if subscription.outbox and subscription.outbox.dirty:
                subscription.outbox.flush(wait=False)
        return any(sub.outbox and sub.outbox.dirty and sub.live for sub in subscriptions)

    def check_touches(self, subscription: Subscription) -> None:
        """Say it once, if the server's patience is shorter than ``touch_every``."""
        every = self._ground.config.touch_every
        if every and every >= subscription.msg_timeout and not self._warned:
            self._warned = True
            log.warning(
                "touch_every is %.3g s, and %s gives up on a message after %.3g s: make it less",
                every,
                subscription.describe(),
                subscription.msg_timeout,
                extra=subscription_fields(subscription),
            )

    def _watch(self) -> None:
        """End silent connections, and keep alive those whose reader is busy with a handler."""
        ground, now = self._ground, monotonic()
        busy = busy_readers(ground.dispatcher, ground.config.workers)
        for subscription in ground.snapshot():
            if subscription in busy:
                # What comes meanwhile is not read: that is no silence of the server.
                subscription.heard_at = now
            subscription.watch(now)
            if not ground.config.workers and subscription.outbox:
                # The handler runs on the reader's thread, which cannot answer meanwhile.
                subscription.outbox.answer_heartbeat()
        ground.timeouts.look(in_hands(ground.dispatcher, ground.checked_out))
        ground.checked_out.drop_expired()
        interval = ground.config.heartbeat_interval or 30.0
        ground.ticker.at(now + interval / 2, self._watch)

    def _touch(self, every: float) -> None:
        """TOUCH what handlers run on, as long as the server lets its time grow."""
        for counts in self._ground.dispatcher.thread_counts:
            for message in counts.in_hand():
                if not message.answered and message.deadline < message._latest:
                    with suppress(AlreadyResponded):
                        message.touch()
        self._ground.ticker.at(monotonic() + every, lambda: self._touch(every))
