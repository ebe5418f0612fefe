"""pynsq: one Writer on a loop; as many messages without an answer as there are callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns

import nsq
from driver import Order, Work, serve

_START_SECONDS = 10.0

Publish = Callable[..., object]


class Caller:
    """Publishes, and when the answer comes, again: what pynsq has for one thread."""

    def __init__(self, publish: Publish, topic: str, body: bytes | list[bytes]) -> None:
        self._publish = publish
        self._topic = topic
        self._body = body

    async def repeat(self, count: int) -> list[int]:
        """So many calls; what each took in nanoseconds."""
        self._left = count
        self._taken: list[int] = []
        self._done = asyncio.get_running_loop().create_future()
        self._call()
        await self._done
        return self._taken

    def _call(self) -> None:
        self._begun = perf_counter_ns()
        self._publish(self._topic, self._body, callback=self._answered)

    def _answered(self, _connection: object, data: object) -> None:
        self._taken.append(perf_counter_ns() - self._begun)
        self._left -= 1
        if data != b"OK":
            self._done.set_exception(SystemExit(f"pynsq: {data!r}"))
        elif self._left:
            self._call()
        else:
            self._done.set_result(None)


async def connected(order: Order) -> nsq.Writer:
    """A writer that is ready."""
    writer = nsq.Writer([order.address])
    async with asyncio.timeout(_START_SECONDS):
        while not writer.conns:
            await asyncio.sleep(0.001)
    return writer


@contextmanager
def session(order: Order) -> Iterator[Work]:
    """PUB by *width* callers, or MPUB of *width* by one."""
    batch = order.figure == "mpub"
    with asyncio.Runner() as runner:
        writer = runner.run(connected(order))
        body = [order.body] * order.width if batch else order.body
        publish = writer.mpub if batch else writer.pub
        callers = [Caller(publish, order.topic, body) for _ in range(1 if batch else order.width)]

        async def work(count: int) -> list[int]:
            share = count // order.width
            parts = await asyncio.gather(*(caller.repeat(share) for caller in callers))
            return [each for part in parts for each in part]

        yield lambda count: runner.run(work(count))
        for connection in list(writer.conns.values()):
            connection.close()


if __name__ == "__main__":
    serve({"sync": session, "threads": session, "mpub": session})
