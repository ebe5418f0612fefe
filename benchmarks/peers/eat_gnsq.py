"""gnsq: a Consumer of greenlets."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import gevent
import gnsq
from driver import Order, Work, serve
from gevent.event import Event
from tally import Tally, rdy_of

_REST_SECONDS = 0.01
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
        if tally.done.is_set():
            # It reads on for as long as there is something to read: no other would have a turn.
            reached.set()
            gevent.sleep(_REST_SECONDS)

    reached = Event()
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
        reached.clear()
        tally.expect(count)
        if not reached.wait(_PATIENCE):
            raise SystemExit(f"gnsq: {tally.seen} messages came, {tally.target} were awaited")
        return tally.taken()

    yield work
    consumer.close()


if __name__ == "__main__":
    logging.getLogger("gnsq").setLevel(logging.CRITICAL)
    serve(dict.fromkeys(("consume", "block", "one", "latency", "unbuffered"), session))
