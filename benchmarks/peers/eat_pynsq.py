"""pynsq: a Reader on a loop, which its handler holds up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import nsq
from driver import Order, Work, serve
from tally import Tally, Weight, rdy_of

_LOOK_SECONDS = 0.0005
_PATIENCE = 100.0


async def until(true: Callable[[], bool]) -> None:
    """Let the loop run until *true* says so."""
    async with asyncio.timeout(_PATIENCE):
        while not true():
            await asyncio.sleep(_LOOK_SECONDS)


def options(order: Order) -> dict[str, object]:
    """What a Reader is told."""
    told: dict[str, object] = {
        "nsqd_tcp_addresses": [order.address],
        "max_in_flight": rdy_of(order),
    }
    if order.figure == "unbuffered":
        # It refuses -1. What is larger than the buffer does not wait in it, and every message is.
        told["output_buffer_size"] = 64
    return told


@contextmanager
def session(order: Order) -> Iterator[Work]:
    """A handler that returns True."""
    tally = Tally(order)

    def handle(message: nsq.Message) -> bool:
        tally.note(message.body)
        return True

    with asyncio.Runner() as runner:

        async def start() -> nsq.Reader:
            return nsq.Reader(order.topic, "bench", handle, **options(order))

        reader = runner.run(start())

        def work(count: int) -> list[int]:
            tally.expect(count)
            runner.run(until(tally.done.is_set))
            return tally.taken()

        yield work
        close(reader)


@contextmanager
def memory(order: Order) -> Iterator[Work]:
    """Messages that are held."""
    with asyncio.Runner() as runner:
        weight = Weight()

        def handle(message: nsq.Message) -> None:
            message.enable_async()
            weight.hold(message)

        async def start() -> nsq.Reader:
            return nsq.Reader(order.topic, "bench", handle, **options(order))

        reader = runner.run(start())

        def work(count: int) -> list[int]:
            runner.run(until(lambda: len(weight.held) >= rdy_of(order)))
            return weight.bytes_each() if count > 1 else []

        yield work
        close(reader)


def close(reader: nsq.Reader) -> None:
    """Its connections; the loop ends next."""
    for connection in list(reader.conns.values()):
        connection.close()


if __name__ == "__main__":
    figures = ("consume", "block", "one", "latency", "unbuffered")
    serve({**dict.fromkeys(figures, session), "memory": memory})
