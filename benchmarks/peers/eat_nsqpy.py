"""nsq-py: a Reader that is iterated over; one message after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from driver import Order, Work, serve
from nsq import logger
from nsq.reader import Reader
from tally import Tally, rdy_of


@contextmanager
def session(order: Order) -> Iterator[Work]:
    """Finish each."""
    tally = Tally(order)
    told: dict[str, object] = {}
    if order.figure == "unbuffered":
        told = {"output_buffer_size": -1, "output_buffer_timeout": -1}
    reader = Reader(
        order.topic.encode(),
        b"bench",
        nsqd_tcp_addresses=[order.address],
        max_in_flight=rdy_of(order),
        **told,
    )
    messages = iter(reader)

    def work(count: int) -> list[int]:
        tally.expect(count)
        for _ in range(count):
            message = next(messages)
            tally.note(message.body)
            message.fin()
        return tally.taken()

    yield work
    for connection in reader.connections():
        connection.close()


if __name__ == "__main__":
    logger.setLevel("CRITICAL")
    serve(dict.fromkeys(("consume", "block", "one", "latency", "unbuffered"), session))
