"""nsqsmart, as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from driver import Order, Work, in_threads, repeat, serve

import nsqsmart

PATIENCE = 60.0


def connect(order: Order) -> nsqsmart.Producer:
    """The producer of a turn, with the defaults."""
    return nsqsmart.Producer(f"nsq://{order.address}")


@contextmanager
def sync(order: Order) -> Iterator[Work]:
    """publish() in one thread."""
    with connect(order) as producer:
        yield lambda count: repeat(count, producer.publish, order.topic, order.body)


@contextmanager
def threads(order: Order) -> Iterator[Work]:
    """One producer, shared."""
    with connect(order) as producer:

        def work(count: int) -> list[int]:
            return repeat(count, producer.publish, order.topic, order.body)

        yield partial(in_threads, [work] * order.width)


@contextmanager
def mpub(order: Order) -> Iterator[Work]:
    """publish_many()."""
    bodies = [order.body] * order.width
    with connect(order) as producer:
        yield lambda count: repeat(count // order.width, producer.publish_many, order.topic, bodies)


@contextmanager
def pipelined(order: Order) -> Iterator[Work]:
    """publish_async(), and in the end flush(): the server's count says whether all came."""
    with connect(order) as producer:

        def work(count: int) -> list[int]:
            publish, topic, body = producer.publish_async, order.topic, order.body
            for _ in range(count):
                publish(topic, body)
            if not producer.flush(PATIENCE):
                raise SystemExit(f"flush() was not done in {PATIENCE:.0f} s")
            return []

        yield work


if __name__ == "__main__":
    serve({"sync": sync, "threads": threads, "mpub": mpub, "async": pipelined})
