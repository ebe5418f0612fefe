"""A process that consumes: how long it goes on, how it ends, and the exit code it ends with."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from nsqsmart import CloseReport, Consumer, run
from nsqsmart.config import ConsumerConfig, resolve
from nsqsmart.contrib.shared.declaring import Declared
from nsqsmart.contrib.shared.settings import Settings

CONSUMING = "consuming; SIGINT or SIGTERM ends it"

_GRACE = 2.0
_LOST = ("failing", "discovering")


class ServersLost(Exception):
    """No server could be reached for longer than was permitted."""


@dataclass(frozen=True, slots=True)
class StopLimits:
    """When to stop without being told; None is never.

    ``max_messages`` handled; ``idle`` seconds without a message; ``lost`` seconds in which no nsqd
    could be reached, which is an error.
    """

    max_messages: int | None = None
    idle: float | None = None
    lost: float | None = None


class Shift:
    """One run of several handlers in this process."""

    def __init__(self, limits: StopLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()  # guards the three below
        self._begun = 0
        self._running = 0
        self._active_at = monotonic()
        self._reached_at = monotonic()
        self.consumers: list[Consumer] = []

    def add(
        self,
        declared: Declared,
        call: Callable[[Any], object],
        settings: Settings,
        workers: int | None,
    ) -> None:
        """Consume for *declared*, with *call* around its function.

        Its own options win over those of *settings*, and *workers* over both. Raises ConfigError.
        """
        handler = self._counting(call)
        own = {} if workers is None else {"workers": workers}
        options = {**settings.options_of(ConsumerConfig), **declared.options, **own}
        if self._limits.max_messages is not None:
            # What is not to be handled need not come.
            usual = resolve(ConsumerConfig, settings.url, options)[1].max_in_flight
            options["max_in_flight"] = max(1, min(self._limits.max_messages, usual))
        batch, plain = (handler, None) if declared.batch else (None, handler)
        self.consumers.append(
            Consumer(
                declared.topic,
                declared.channel,
                plain,
                batch_handler=batch,
                address=settings.url,
                **options,
            )
        )

    def _counting(self, call: Callable[[Any], object]) -> Callable[[Any], object]:
        def handle(given: Any) -> object:
            messages = given if isinstance(given, list) else [given]
            if not self._begin(len(messages)):
                # The end gives them back, once it asks for no more: before that they would come
                # again at once.
                for message in messages:
                    message.detach()
                return None
            try:
                return call(given)
            finally:
                with self._lock:
                    self._running -= 1
                    self._active_at = monotonic()

        return handle

    def _begin(self, count: int) -> bool:
        """Whether it still may."""
        most = self._limits.max_messages
        with self._lock:
            if most is not None and self._begun >= most:
                return False
            self._begun += count
            self._running += 1
            self._active_at = monotonic()
            last = most is not None and self._begun >= most
        if last:
            for consumer in self.consumers:
                consumer.pause()
        return True

    def run(self, on_ready: Callable[[], object]) -> Sequence[CloseReport]:
        """Block until a signal, or until a limit is met; then drain.

        *on_ready* is called once the signal handlers are set: from then on a signal ends it.

        Raises ServersLost, and what :func:`nsqsmart.run` raises.
        """
        self._active_at = self._reached_at = monotonic()
        return run(*self.consumers, until=self._is_over, on_ready=on_ready)

    def _is_over(self) -> bool:
        now, limits = monotonic(), self._limits
        if any(consumer.health().state not in _LOST for consumer in self.consumers):
            self._reached_at = now
        if limits.lost is not None and now - self._reached_at > limits.lost:
            reasons = [why for each in self.consumers for why in each.health().reasons]
            raise ServersLost(
                f"no nsqd was reached for {limits.lost:g} s: {'; '.join(reasons) or 'no answer'}"
            )
        with self._lock:
            if self._running:
                return False
            if limits.max_messages is not None and self._begun >= limits.max_messages:
                return True
            return limits.idle is not None and now - self._active_at > limits.idle

    def stop_at_exit(self) -> None:
        """Where signals are a reloader's: drain when the process ends, for two seconds at most."""
        atexit.register(self._leave)

    def _leave(self) -> None:
        deadline = monotonic() + _GRACE
        for consumer in self.consumers:
            consumer.pause()
        for consumer in self.consumers:
            consumer.close(timeout=max(0.0, deadline - monotonic()))


def describe(declared: Sequence[Declared], reports: Sequence[CloseReport]) -> list[str]:
    """One line for each handler: what came of its messages."""
    return [
        f"{each.topic}/{each.channel}: {report.finished} finished, {report.requeued} requeued, "
        f"{report.failed} failed"
        + (f", {len(report.abandoned)} still running" if report.abandoned else "")
        for each, report in zip(declared, reports, strict=True)
    ]
