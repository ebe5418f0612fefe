"""nsq-py: a Client takes any answer for its own, so each thread has one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from driver import Order, Work, in_threads, repeat, serve
from nsq import logger
from nsq.client import Client


@contextmanager
def connect(order: Order) -> Iterator[Client]:
    """A connected client; its own close() closes nothing on Python 3."""
    client = Client(nsqd_tcp_addresses=[order.address])
    try:
        yield client
    finally:
        for connection in client.connections():
            connection.close()


@contextmanager
def sync(order: Order) -> Iterator[Work]:
    """pub(), which waits for the answer."""
    with connect(order) as client:
        yield lambda count: repeat(count, client.pub, order.topic.encode(), order.body)


@contextmanager
def threads(order: Order) -> Iterator[Work]:
    """A client for each thread."""
    with ExitStack() as stack:
        yield partial(in_threads, [stack.enter_context(sync(order)) for _ in range(order.width)])


@contextmanager
def mpub(order: Order) -> Iterator[Work]:
    """mpub()."""
    bodies = [order.body] * order.width
    with connect(order) as client:

        def publish(topic: bytes, messages: list[bytes]) -> object:
            return client.mpub(topic, *messages)

        yield lambda count: repeat(count // order.width, publish, order.topic.encode(), bodies)


if __name__ == "__main__":
    logger.setLevel("ERROR")
    serve({"sync": sync, "threads": threads, "mpub": mpub})
