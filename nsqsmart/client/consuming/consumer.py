"""The threaded Consumer."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from types import TracebackType
from typing import Self, Unpack

from nsqsmart.client.consuming.batch_workers import BatchWorkerPool
from nsqsmart.client.consuming.metrics import (
    ConsumerFigures,
    measured_batch_handler,
    measured_handler,
    noted,
    watch,
)
from nsqsmart.client.consuming.poll import PollQueue
from nsqsmart.client.consuming.run import run
from nsqsmart.client.consuming.runtime import CloseReport, RunningConsumer
from nsqsmart.client.consuming.workers import MakeDispatcher, WorkerPool
from nsqsmart.client.messages.dead_letters import DeadLetters, check_dead_letters
from nsqsmart.client.messages.message import BatchHandler, Handler, Message
from nsqsmart.client.messages.results import check_plain
from nsqsmart.client.producer.producer import Producer
from nsqsmart.client.shared.arguments import check_count, check_timeout
from nsqsmart.client.shared.discovery import open_endpoint, prepare_endpoint
from nsqsmart.client.shared.metrics import Health, make_meter
from nsqsmart.client.shared.process import at_exit, interrupts
from nsqsmart.config import ConsumerConfig, ConsumerOptions, resolve
from nsqsmart.errors import ClientClosed, ConfigError, UsedAfterFork
from nsqsmart.names import check_channel, check_topic
from nsqsmart.net.threads import spawn
from nsqsmart.policy.positions import position_text


class Shutdown:
    """Shutdown of one started Consumer. ``over`` is set when it has ended, with its ``report``.

    None of its locks is taken by a signal handler: see :meth:`ask`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the three below
        self._closing = False
        self._started = False
        self._error: BaseException | None = None
        self._asked = False
        self._process = os.getpid()
        self.report: CloseReport | None = None
        self.over = threading.Event()

    @property
    def closing(self) -> bool:
        """Whether it is being closed, or was closed."""
        return self._closing

    def check(self) -> None:
        """Raise ClientClosed if it is being closed, or was closed."""
        if self._closing:
            raise ClientClosed("the Consumer was closed")

    @property
    def error(self) -> BaseException | None:
        """The error that ended it from inside, or None."""
        return self._error

    def claim(self) -> bool:
        """Whether the caller is the first to end it, and therefore does."""
        with self._lock:
            first, self._closing = not self._closing, True
        return first

    def fail(self, error: BaseException) -> bool:
        """*error* ends it from inside; False: start() is under way, and looks for it at its end."""
        with self._lock:
            self._error = self._error or error
            return self._started

    def ask(self) -> bool:
        """End it from a signal handler, which may have interrupted any method: takes no lock."""
        self._asked = True
        return self._started

    def is_wanted(self) -> bool:
        """start() has finished; returns whether the consumer has to end at once."""
        with self._lock:
            self._started = True
            return self._asked or self._error is not None

    def leave(self, deadline: float) -> None:
        """At the end of the process: wait for what ends it."""
        if os.getpid() == self._process:
            self.over.wait(max(0.0, deadline - monotonic()))


def dispatcher_maker(
    handler: Handler | None, batch_handler: BatchHandler | None, config: ConsumerConfig
) -> MakeDispatcher:
    """A factory for the Dispatcher; raises TypeError or ConfigError for unusable handlers."""
    if handler is not None and batch_handler is not None:
        raise TypeError("give handler or batch_handler, not both")
    meter = make_meter(config)
    if handler is not None:
        single: Handler = check_plain("handler", handler)
        if meter is not None:
            single = measured_handler(meter, single)
        return lambda runtime: WorkerPool(single, runtime, config.workers)
    if batch_handler is None:
        return PollQueue
    several: BatchHandler = check_plain("batch_handler", batch_handler)
    if not config.workers:
        raise ConfigError("batch_handler needs workers=1 or more: a reader cannot wait for a batch")
    if meter is not None:
        several = measured_batch_handler(meter, several)
    return lambda runtime: BatchWorkerPool(several, runtime, config)


class Consumer:
    """Subscribes to every partition of a topic and runs *handler* for each message.

    Returning finishes the message; raising requeues it and slows the consumer down;
    :class:`~nsqsmart.Requeue`, raised or returned, says how, and False requeues.
    Without a handler messages are pulled: :meth:`poll`, or ``for message in consumer``, and
    nothing is answered for you. Delivery is at least once: bear seeing a message twice.

    Args:
        topic, channel: 1 to 64 characters of letters, digits, ``.``, ``_`` and ``-``; both may
            end in ``#ephemeral``.
        handler: a plain function of one :class:`~nsqsmart.client.messages.message.Message`.
        batch_handler: one of a list of them instead: up to ``batch_max_messages``, or what came
            in ``batch_max_delay``; at once where the servers wait for answers. Returning finishes
            what it has not answered, raising requeues that. On an ordered topic a batch has at
            most one message of a partition, for the server gives one at a time.
        address: as for :class:`~nsqsmart.client.producer.producer.Producer`.
        config: a :class:`~nsqsmart.config.ConsumerConfig` instead of the defaults.
        **options: any option by its name, as ``workers=8``.

    Raises:
        ConfigError, TypeError: an argument cannot be used. Nothing is dialled before start().
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        handler: Handler | None = None,
        *,
        batch_handler: BatchHandler | None = None,
        address: str | None = None,
        config: ConsumerConfig | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._names = (check_topic(topic), check_channel(channel))
        # Not the address: a debugger that shows what a Consumer consists of would show its secret.
        self._make_producer = lambda **options: Producer(address, **options)
        self._endpoint, self._config = resolve(ConsumerConfig, address, options, config=config)
        self._make_dispatcher = dispatcher_maker(handler, batch_handler, self._config)
        check_dead_letters(self._config, topic)
        if self._config.start_at is not None:
            position_text(self._config.start_at)
        prepare_endpoint(self._endpoint)
        self._meter = make_meter(self._config)
        self._figures: ConsumerFigures | None = None
        self._runtime: RunningConsumer | None = None
        self._process = os.getpid()
        self._tell: Callable[[object], None] = _nobody
        self._paused = False
        self._max_in_flight = self._config.max_in_flight
        self._shutdown = Shutdown()

    def start(self) -> Self:
        """Look up, dial and subscribe; returns after the servers' first answers.

        Waits ``dial_timeout`` at most. That no lookup can be reached is no error: it goes on
        trying. Raises SubscribeError when a server refuses for good, ClientClosed after close(),
        RuntimeError when it was started before.
        """
        if os.getpid() != self._process:
            self._begin_anew()
        self._shutdown.check()
        if self._runtime is not None:
            raise RuntimeError("the Consumer was started before")
        endpoint = open_endpoint(self._endpoint)
        dead_letters = DeadLetters(self._config, self._make_producer)
        self._runtime = runtime = RunningConsumer(
            self._names, self._make_dispatcher, endpoint, self._config, dead_letters, self._stop
        )
        self._figures = watch(self._meter, runtime)
        runtime.set_max_in_flight(self._max_in_flight)
        runtime.pause(self._paused)
        try:
            # A close() that came before there was anything to end does not come again.
            self._shutdown.check()
            runtime.start()
        except BaseException:
            self._close(0)
            _end(self._figures)
            raise
        if self._shutdown.is_wanted():
            self._close_behind()
        return self

    def run(self) -> CloseReport:
        """Start, and block until SIGINT, SIGTERM or close(); then drain.

        Runs :func:`nsqsmart.run` with this consumer.
        """
        (only,) = run(self)
        return only

    def join(self, timeout: float | None = None) -> bool:
        """Wait until it has been closed; False after *timeout* seconds.

        SystemExit or KeyboardInterrupt from a handler, and NotAuthorized, close it and are raised.
        """
        self._check_process()
        ended = self._shutdown.over.wait(timeout)
        if ended and self._shutdown.error is not None:
            raise self._shutdown.error
        return ended

    def close(self, timeout: float | None = None) -> CloseReport:
        """Drain within *timeout* seconds (default ``close_timeout``) and end every thread.

        Running handlers and ``with message:`` blocks may finish; messages that no handler has begun
        with, and those detached or pulled, go back at once. May be called twice, from any thread
        and from a signal handler. From a handler, or if the signal interrupted a call of this
        consumer or an answer, it returns at once, and the drain continues after it: the handler's
        own message is answered, and the interrupted call releases its locks.
        """
        self._check_process()
        if interrupts(self, _CALLS, _ANSWERS):
            behind = self._shutdown.ask()
        elif self._runtime is not None and self._runtime.dispatcher.is_handling():
            behind = True
        else:
            return self._close(timeout)
        if behind:
            self._close_behind(timeout)
        return self.stats()

    def _close_behind(self, timeout: float | None = None) -> None:
        # If the process ends meanwhile, it waits for the drain.
        at_exit(self._shutdown)
        spawn("closer", lambda: self._close(timeout))

    def _close(self, timeout: float | None) -> CloseReport:
        limit = self._config.close_timeout if timeout is None else check_timeout(timeout)
        if self._shutdown.claim():
            self._drain(limit)
        else:
            # It is over when the first one says so, which may have more time.
            self._shutdown.over.wait(limit)
        return self._shutdown.report or self.stats()

    def _drain(self, limit: float) -> None:
        try:
            if self._runtime is not None:
                self._shutdown.report = self._runtime.drain(monotonic() + limit)
        finally:
            # Whatever failed, no caller waits for ever.
            _end(self._figures)
            self._shutdown.over.set()
            self._tell(None)

    def _stop(self, error: BaseException) -> None:
        """From inside, on any thread: drain, and raise *error* in the calls that wait."""
        started = self._shutdown.fail(error)
        self._tell(error)
        if self._runtime is not None:
            self._runtime.dispatcher.end(error)
        if started:
            self._close_behind()

    def poll(self, max_messages: int = 1, timeout: float | None = None) -> list[Message]:
        """Take up to *max_messages*: as soon as one is there, with all that have come.

        Only without a handler, from any thread. Waits *timeout* seconds, None until a message
        comes or it is closed; then the list is empty. Every message is yours: answer it, or use it
        as a context manager, before its ``deadline``. Raises ClientClosed after close(),
        RuntimeError before start(), and NotAuthorized if that ended it.
        """
        puller = self._puller()
        if self._shutdown.over.is_set():
            raise ClientClosed("the Consumer was closed")
        count = check_count("max_messages", max_messages, 1)
        limit = None if timeout is None else check_timeout(timeout)
        return noted(self._meter, puller.take(count, limit))

    def __iter__(self) -> Iterator[Message]:
        """One message after another, as :meth:`poll` gives them, until it is closed."""
        while found := noted(self._meter, self._puller().take(1, None)):
            yield found[0]

    def _puller(self) -> PollQueue:
        self._check_process()
        if self._runtime is None:
            raise RuntimeError("the Consumer was not started: use it in a with block, or start()")
        dispatcher = self._runtime.dispatcher
        if isinstance(dispatcher, PollQueue):
            return dispatcher
        raise RuntimeError("this Consumer has a handler, which gets the messages")

    def pause(self) -> None:
        """Ask for no more messages until :meth:`resume`; those delivered are still handled."""
        self._set_paused(paused=True)

    def resume(self) -> None:
        """End a :meth:`pause`."""
        self._set_paused(paused=False)

    def _set_paused(self, *, paused: bool) -> None:
        self._check_process()
        self._paused = paused
        if self._runtime is not None:
            self._runtime.pause(paused)

    def set_max_in_flight(self, count: int) -> None:
        """Let *count* messages be in flight from now on; 0 stops deliveries.

        What is in flight beyond that stays. Raises TypeError, ConfigError below 0.
        """
        self._check_process()
        self._max_in_flight = check_count("max_in_flight", count, 0)
        if self._runtime is not None:
            self._runtime.set_max_in_flight(count)

    def health(self) -> Health:
        """Return its health as far as it knows; sends nothing to a server."""
        self._check_process()
        if self._shutdown.closing:
            return Health("closed")
        return Health("idle") if self._runtime is None else self._runtime.health()

    def is_starved(self) -> bool:
        """Whether handlers and callers hold 85 % of a connection's share of ``max_in_flight``.

        Nothing more comes then before something is answered. Messages that were delivered and
        wait for a worker, or for poll(), do not count: they come without that.
        """
        self._check_process()
        return self._runtime is not None and self._runtime.is_starved()

    def stats(self) -> CloseReport:
        """The counts so far."""
        self._check_process()
        return self._runtime.report() if self._runtime else CloseReport(0, 0, 0)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None or os.getpid() == self._process:
            self.close()  # in a child it raises, and nothing hides what ends the child

    def check_runnable(self) -> None:
        """Raise RuntimeError if :func:`nsqsmart.run` would block without a handler."""
        if self._make_dispatcher is PollQueue:
            raise RuntimeError("this Consumer has no handler: iterate over it, or poll()")

    def on_end(self, tell: Callable[[object], None]) -> None:
        """Have *tell* called with what ends it from inside, and with None when it has ended."""
        self._tell = tell

    def has_ended(self) -> bool:
        """Whether it was closed, and that is over."""
        return self._shutdown.over.is_set()

    def __repr__(self) -> str:
        topic, channel = self._names
        return f"<Consumer {topic}/{channel} at {self._endpoint}>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Consumer cannot be pickled: make it inside the function that uses it")

    def _check_process(self) -> None:
        if os.getpid() != self._process and self._runtime is not None:
            raise UsedAfterFork("this Consumer belongs to the parent process: start() it here")

    def _begin_anew(self) -> None:
        """In a child: forget what the parent runs; its connections are closed, not ended."""
        runtime, self._runtime = self._runtime, None
        self._process = os.getpid()
        self._shutdown = Shutdown()
        for subscription in list(runtime.subscriptions) if runtime else ():
            if subscription.connection:
                subscription.connection.drop()


# What an application calls: each may hold a lock when a signal handler interrupts it.
_CALLS = frozenset(
    call.__code__
    for call in (
        Consumer.start,
        Consumer.join,
        Consumer.poll,
        Consumer.__iter__,
        Consumer.pause,
        Consumer.resume,
        Consumer.set_max_in_flight,
        Consumer.health,
        Consumer.is_starved,
        Consumer.stats,
        Consumer.close,
    )
)
_ANSWERS = frozenset(
    call.__code__
    for call in (
        Message.finish,
        Message.requeue,
        Message.touch,
        Message.detach,
        Message.skip,
        Message.__enter__,
        Message.__exit__,
    )
)


def _end(figures: ConsumerFigures | None) -> None:
    if figures is not None:
        figures.end()


def _nobody(_token: object) -> None:
    """A listener that ignores every report."""
