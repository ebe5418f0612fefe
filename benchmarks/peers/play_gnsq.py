"""gnsq: one Producer, whose connection greenlets share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import gevent
import gnsq
from driver import Order, Work, repeat, serve


@contextmanager
def connect(order: Order) -> Iterator[gnsq.Producer]:
    """A started producer."""
    producer = gnsq.Producer(order.address)
    producer.start()
    try:
        yield producer
    finally:
        producer.close()
        producer.join()


@contextmanager
def sync(order: Order) -> Iterator[Work]:
    """publish(), which waits for the answer."""
    with connect(order) as producer:
        yield lambda count: repeat(count, producer.publish, order.topic, order.body)


@contextmanager
def threads(order: Order) -> Iterator[Work]:
    """Greenlets are its threads."""
    with connect(order) as producer:

        def work(count: int) -> list[int]:
            share = count // order.width
            jobs = [
                gevent.spawn(repeat, share, producer.publish, order.topic, order.body)
                for _ in range(order.width)
            ]
            gevent.joinall(jobs, raise_error=True)
            return [each for job in jobs for each in job.value]

        yield work


@contextmanager
def mpub(order: Order) -> Iterator[Work]:
    """multipublish()."""
    bodies = [order.body] * order.width
    with connect(order) as producer:
        yield lambda count: repeat(count // order.width, producer.multipublish, order.topic, bodies)


if __name__ == "__main__":
    # It says at each close that it closed the connection under its own reader.
    logging.getLogger("gnsq").setLevel(logging.ERROR)
    serve({"sync": sync, "threads": threads, "mpub": mpub})
