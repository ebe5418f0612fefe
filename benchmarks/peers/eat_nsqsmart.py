"""nsqsmart, as it is: 4 workers where nothing else is said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from driver import Order, Work, serve
from tally import Tally, Weight, rdy_of

import nsqsmart

_BATCH = 100


def address(order: Order) -> str:
    """One nsqd, or for ``many`` as many hosts of this machine with the same port."""
    if order.figure != "many":
        return f"nsq://{order.address}"
    hosts = (f"127.0.0.{number}:{order.port}" for number in range(1, order.width + 1))
    return f"nsq://{','.join(hosts)}"


def options(order: Order) -> dict[str, object]:
    """What a Consumer is told beyond the defaults."""
    told: dict[str, object] = {"max_in_flight": rdy_of(order)}
    if order.figure == "unbuffered":
        told |= {"output_buffer_size": -1, "output_buffer_timeout": -1}
    if order.figure in ("inline", "one"):
        told["workers"] = 0
    if order.figure == "block":
        told["workers"] = order.width
    if order.figure == "buffered":
        told["rdy_mode"] = "level"
    return told


@contextmanager
def session(order: Order) -> Iterator[Work]:
    """A handler that returns."""
    tally = Tally(order)

    def handle(message: nsqsmart.Message) -> None:
        tally.note(message.body)

    told = options(order)
    with nsqsmart.Consumer(order.topic, "bench", handle, address=address(order), **told):
        yield tally.work


@contextmanager
def batch(order: Order) -> Iterator[Work]:
    """A handler of batches."""
    tally = Tally(order)

    def handle(messages: list[nsqsmart.Message]) -> None:
        for message in messages:
            tally.note(message.body)

    with nsqsmart.Consumer(
        order.topic,
        "bench",
        batch_handler=handle,
        batch_max_messages=_BATCH,
        address=address(order),
        **options(order),
    ):
        yield tally.work


@contextmanager
def pull(order: Order) -> Iterator[Work]:
    """A PullSubscription, emptied by the thread that measures."""
    with nsqsmart.PullSubscription(
        address(order), order.topic, "bench", nsqd=order.address, **options(order)
    ) as source:

        def work(count: int) -> list[int]:
            while count > 0:
                messages = source.pull(_BATCH, timeout=10)
                source.finish(messages)
                count -= len(messages)
            return []

        yield work


def consumer_of(order: Order) -> nsqsmart.Consumer:
    """One that is polled."""
    return nsqsmart.Consumer(order.topic, "bench", address=address(order), **options(order))


@contextmanager
def memory(order: Order) -> Iterator[Work]:
    """Messages that are held."""
    with consumer_of(order) as first:  # what a first one imports is no message's
        first.poll(1, timeout=10)
    weight = Weight()
    with consumer_of(order) as consumer:

        def work(count: int) -> list[int]:
            while len(weight.held) < rdy_of(order):
                for message in consumer.poll(1000, timeout=10):
                    weight.hold(message)
            return weight.bytes_each() if count > 1 else []

        yield work


if __name__ == "__main__":
    figures = ("consume", "inline", "block", "one", "latency", "unbuffered", "many", "buffered")
    serve({**dict.fromkeys(figures, session), "batch": batch, "pull": pull, "memory": memory})
