"""gnsq: a Consumer of greenlets."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import gevent
import gnsq
from driver import Order, Work, serve
from tally import Tally, rdy_of

_LOOK_SECONDS = 0.0005
_PATIENCE = 100.0


@contextmanager
def session(order: Order) -> Iterator[Work]:
    """A handler that finishes."""
    tally = Tally(order)
    told: dict[str, object] = {}
    if order.figure == "unbuffered":
        told = {"output_buffer_size": -1, "output_buffer_timeout": -1}

    def handle(_consumer: gnsq.Consumer, message: gnsq.Message) -> None:
        tally.note(message.body)

    consumer = gnsq.Consumer(
        order.topic,
        "bench",
        nsqd_tcp_addresses=[order.address],
        message_handler=handle,
        max_in_flight=rdy_of(order),
        **told,
    )
    consumer.start(block=False)

    def work(count: int) -> list[int]:
        tally.expect(count)
        with gevent.Timeout(_PATIENCE):
            while not tally.done.is_set():
                gevent.sleep(_LOOK_SECONDS)
        return tally.taken()

    yield work
    consumer.close()


if __name__ == "__main__":
    logging.getLogger("gnsq").setLevel(logging.CRITICAL)
    serve(dict.fromkeys(("consume", "block", "one", "latency", "unbuffered"), session))
