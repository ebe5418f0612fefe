"""What a consumer counts by itself, in the words of :mod:`nsqsmart.metrics`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from time import monotonic

from nsqsmart.client.consuming.runtime import RunningConsumer
from nsqsmart.client.messages.message import BatchHandler, Handler, Message
from nsqsmart.client.shared.metrics import Meter
from nsqsmart.metrics import Figure
from nsqsmart.net.waiters import Waiter


def watch(meter: Meter | None, runtime: RunningConsumer) -> ConsumerFigures | None:
    """Have *meter* read the figures of *runtime* from now on."""
    if meter is None:
        return None
    figures = ConsumerFigures(runtime, meter)
    meter.watch(figures)
    return figures


class ConsumerFigures:
    """Deliveries, flow and order of one *runtime*."""

    def __init__(self, runtime: RunningConsumer, meter: Meter) -> None:
        self._meter = meter
        self._runtime = runtime
        self._names = (runtime.topic, runtime.channel)
        self._over = Waiter()  # the one that takes it ends this

    def figures(self) -> list[Figure]:
        """The figures now."""
        return [*self._runtime.directory.missing_leaders(), *self._flow(), *self._counts()]

    def end(self) -> None:
        """It is over; may be said twice."""
        if self._over.acquire(blocking=False):
            self._meter.unwatch(self)

    def _flow(self) -> Iterator[Figure]:
        runtime, names = self._runtime, self._names
        subscriptions = runtime.snapshot()
        orderings = [each.ordering for each in subscriptions if each.ordering]
        yield Figure("in_flight", names, sum(each.in_flight for each in subscriptions))
        yield Figure(
            "backoff_seconds", names, max(0.0, (runtime.rdy_controller.due or 0) - monotonic())
        )
        yield Figure("starved", names, runtime.rdy_controller.is_full())
        yield Figure(
            "blocked_partitions", names, sum(ordering.is_blocked() for ordering in orderings)
        )

    def _counts(self) -> Iterator[Figure]:
        runtime, names = self._runtime, self._names
        counts = runtime.report()
        outcomes = {
            "finished": counts.finished - counts.given_up,
            "requeued": counts.requeued,
            "gave_up": counts.given_up,
            "expired": runtime.checked_out.expired
            + sum(counts.expired for counts in runtime.dispatcher.thread_counts),
            "settle_failed": runtime.late_answers,
        }
        yield Figure("messages_received_total", names, runtime.received)
        for outcome, count in outcomes.items():
            yield Figure("messages_settled_total", (*names, outcome), count)
        # What must stay 0 has to be there at 0: its first rise is not seen of what was not.
        violations = {each.target.partition: 0 for each in runtime.snapshot() if each.ordered}
        violations |= runtime.violations.copy()
        for partition, count in violations.items():
            yield Figure("order_violations_total", (*names, str(partition)), count)


def measured_handler(meter: Meter, handler: Handler) -> Handler:
    """*handler*, measured."""

    def handle(message: Message) -> object:
        began = time.monotonic()
        note_delivered(meter, (message,))
        try:
            return handler(message)
        finally:
            meter.handled(message.topic, message.channel, time.monotonic() - began)

    return handle


def measured_batch_handler(meter: Meter, handler: BatchHandler) -> BatchHandler:
    """*handler* of batches, measured."""

    def handle(messages: list[Message]) -> object:
        began, first = time.monotonic(), messages[0]
        note_delivered(meter, messages)
        try:
            return handler(messages)
        finally:
            meter.handled(first.topic, first.channel, time.monotonic() - began)

    return handle


def noted(meter: Meter | None, messages: list[Message]) -> list[Message]:
    """*messages*, which the application takes."""
    if meter is not None:
        note_delivered(meter, messages)
    return messages


def note_delivered(meter: Meter, messages: Iterable[Message]) -> None:
    """*messages* are about to be handled."""
    now, wall = time.monotonic(), time.time_ns()
    for message in messages:
        # The wait in our own queue is not the age at delivery.
        age = (wall - message.timestamp) / 1e9 - (now - message.received_at)
        meter.delivered(message.topic, message.channel, max(0.0, age), message.attempts)
