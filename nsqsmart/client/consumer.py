"""The threaded Consumer."""

from __future__ import annotations

import inspect
import os
import threading
from queue import SimpleQueue
from time import monotonic
from types import TracebackType
from typing import Self

from nsqsmart.client.closing import CloseReport, drain, report
from nsqsmart.client.crew import Handler
from nsqsmart.client.endpoints import open_endpoint, prepare_endpoint
from nsqsmart.client.engine import Engine
from nsqsmart.client.signals import signals_to
from nsqsmart.config import ConsumerConfig, resolve
from nsqsmart.errors import ClientClosed, UsedAfterFork
from nsqsmart.names import check_channel, check_topic
from nsqsmart.net.threads import spawn

_SIGNAL = object()


class Consumer:
    """Subscribes to every partition of a topic and runs *handler* for each message.

    Returning finishes the message; raising requeues it and slows the consumer down;
    :class:`~nsqsmart.client.message.Requeue`, raised or returned, says how. Delivery is at least
    once: a handler must bear seeing a message twice.

    Args:
        topic, channel: 1 to 64 characters of letters, digits, ``.``, ``_`` and ``-``; both may
            end in ``#ephemeral``.
        handler: a plain function of one :class:`~nsqsmart.client.message.Message`.
        address: as for :class:`~nsqsmart.client.producer.Producer`.
        config: a :class:`~nsqsmart.config.ConsumerConfig` instead of the defaults.
        **options: any option by its name, as ``workers=8``.

    Raises:
        ConfigError, TypeError: an argument cannot be used. Nothing is dialled before start().
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        handler: Handler,
        *,
        address: str | None = None,
        config: ConsumerConfig | None = None,
        **options: object,
    ) -> None:
        self._names = (check_topic(topic), check_channel(channel))
        self._handler = _check_handler(handler)
        self._endpoint, self._config = resolve(ConsumerConfig, address, options, config=config)
        prepare_endpoint(self._endpoint)
        self._engine: Engine | None = None
        self._process = os.getpid()
        self._lock = threading.Lock()  # guards the two below
        self._closing = False
        self._report: CloseReport | None = None
        self._ended = threading.Event()
        self._tokens: SimpleQueue[object] = SimpleQueue()

    def start(self) -> Self:
        """Look up, dial and subscribe; returns after the servers' first answers.

        Waits ``dial_timeout`` at most. That no lookup can be reached is no error: it goes on
        trying. Raises SubscribeError when a server refuses for good, ClientClosed after close(),
        RuntimeError when it was started before.
        """
        if os.getpid() != self._process:
            self._begin_anew()
        if self._engine is not None:
            raise RuntimeError("the Consumer was started before")
        if self._closing:
            raise ClientClosed("the Consumer was closed")
        endpoint = open_endpoint(self._endpoint)
        self._engine = Engine(self._names, self._handler, endpoint, self._config, self._tokens.put)
        try:
            self._engine.start()
        except BaseException:
            self.close(timeout=0)
            raise
        return self

    def run(self) -> CloseReport:
        """Start, and block until SIGINT, SIGTERM or close(); then drain.

        Signal handlers are installed in the main thread only, and restored. A second signal ends
        the drain at once. SystemExit or KeyboardInterrupt from a handler, and NotAuthorized, end
        it and are raised here.
        """
        tokens = self._tokens
        with signals_to(lambda: tokens.put(_SIGNAL)):
            self.start()
            token = tokens.get()
            # On a thread of its own, so that this one can hear a second signal.
            spawn("closer", lambda: self._close(None))
            while not self._ended.is_set():
                if tokens.get() is _SIGNAL:
                    raise KeyboardInterrupt
        if isinstance(token, BaseException):
            raise token
        return self.close()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until it has been closed; False after *timeout* seconds."""
        self._check_process()
        return self._ended.wait(timeout)

    def close(self, timeout: float | None = None) -> CloseReport:
        """Drain within *timeout* seconds (default ``close_timeout``) and end every thread.

        Running handlers may finish; messages that no handler has seen go back at once. May be
        called twice and from any thread; from a handler it returns at once, and the drain goes on
        behind it, so that the handler's own message is answered.
        """
        self._check_process()
        if self._engine is not None and self._engine.crew.is_handling():
            spawn("closer", lambda: self._close(timeout))
            return report(self._engine)
        return self._close(timeout)

    def _close(self, timeout: float | None) -> CloseReport:
        limit = self._config.close_timeout if timeout is None else timeout
        with self._lock:
            first, self._closing = not self._closing, True
        if not first:
            self._ended.wait(limit)
        elif self._engine is not None:
            self._report = drain(self._engine, monotonic() + limit)
        self._ended.set()
        self._tokens.put(None)
        return self._report or CloseReport(0, 0, 0)

    def is_starved(self) -> bool:
        """Whether a connection has nearly used up its share of ``max_in_flight``."""
        self._check_process()
        return self._engine is not None and self._engine.is_starved()

    def stats(self) -> CloseReport:
        """The counts so far."""
        self._check_process()
        return report(self._engine) if self._engine else CloseReport(0, 0, 0)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        topic, channel = self._names
        return f"<Consumer {topic}/{channel} at {self._endpoint}>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Consumer cannot be pickled: make it inside the function that uses it")

    def _check_process(self) -> None:
        if os.getpid() != self._process and self._engine is not None:
            raise UsedAfterFork("this Consumer belongs to the parent process: start() it here")

    def _begin_anew(self) -> None:
        """In a child: forget what the parent runs; its connections are closed, not ended."""
        engine, self._engine = self._engine, None
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._tokens = SimpleQueue()
        self._closing, self._report = False, None
        for subscription in list(engine.subscriptions) if engine else ():
            if subscription.connection:
                subscription.connection.drop()


def _check_handler(handler: object) -> Handler:
    if not callable(handler):
        raise TypeError(f"handler must be callable, not {type(handler).__name__}")
    target = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004
    if inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target):
        raise TypeError(
            "handler is an async function; give a plain one (or call asyncio.run in it)"
        )
    return handler
