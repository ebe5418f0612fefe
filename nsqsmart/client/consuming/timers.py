"""What the ticker does for a consumer again and again: silence, heartbeats, touches."""

from __future__ import annotations

import logging
from contextlib import suppress
from time import monotonic

from nsqsmart.client.consuming.workers import Dispatcher
from nsqsmart.client.shared.log_fields import subscription_fields
from nsqsmart.client.subscribing.consumer_runtime import ConsumerRuntime
from nsqsmart.client.subscribing.subscription import Subscription
from nsqsmart.errors import AlreadyResponded

log = logging.getLogger("nsqsmart")


class Rounds:
    """Calls itself again through the ticker, which forgets it when it is closed."""

    def __init__(self, runtime: ConsumerRuntime[Subscription], dispatcher: Dispatcher) -> None:
        self._runtime = runtime
        self._dispatcher = dispatcher
        self._warned = False

    def start(self) -> None:
        """The first round of each."""
        self._watch()
        if self._runtime.config.touch_every:
            self._touch(self._runtime.config.touch_every)

    def sweep(self) -> bool:
        """Send what waits; True while something still does."""
        subscriptions = self._runtime.snapshot()
        for subscription in subscriptions:
            if subscription.write_buffer and subscription.write_buffer.dirty:
                subscription.write_buffer.flush(wait=False)
        return any(
            sub.write_buffer and sub.write_buffer.dirty and sub.live for sub in subscriptions
        )

    def check_touches(self, subscription: Subscription) -> None:
        """Say it once, if the server's patience is shorter than ``touch_every``."""
        every = self._runtime.config.touch_every
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
        runtime, now = self._runtime, monotonic()
        busy = self._dispatcher.busy_readers()
        for subscription in runtime.snapshot():
            if subscription in busy:
                # What comes meanwhile is not read: that is no silence of the server.
                subscription.heard_at = now
            subscription.watch(now)
            if not runtime.config.workers and subscription.write_buffer:
                # The handler runs on the reader's thread, which cannot answer meanwhile.
                subscription.write_buffer.answer_heartbeat()
        runtime.timeouts.look(self._dispatcher.in_hand())
        runtime.checked_out.drop_expired()
        interval = runtime.config.heartbeat_interval or 30.0
        runtime.ticker.at(now + interval / 2, self._watch)

    def _touch(self, every: float) -> None:
        """TOUCH what handlers run on, as long as the server lets its time grow."""
        for message in self._dispatcher.running():
            if not message.answered and message.deadline < message._latest:
                with suppress(AlreadyResponded):
                    message.touch()
        self._runtime.ticker.at(monotonic() + every, lambda: self._touch(every))
