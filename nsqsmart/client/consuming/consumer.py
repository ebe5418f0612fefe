"""The threaded Consumer."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from types import TracebackType
from typing import Self, Unpack

from nsqsmart.client.consuming.batch_workers import BatchCrew
from nsqsmart.client.consuming.metrics import (
    ConsumerFigures,
    measured_batch_handler,
    measured_handler,
    noted,
    watch,
)
from nsqsmart.client.consuming.poll import Puller
from nsqsmart.client.consuming.run import run
from nsqsmart.client.consuming.runtime import CloseReport, Engine, drain, health, report
from nsqsmart.client.consuming.workers import Crew, Recruit
from nsqsmart.client.messages.dead_letters import GivingUp, check_giving_up
from nsqsmart.client.messages.message import BatchHandler, Handler, Message
from nsqsmart.client.messages.results import check_plain
from nsqsmart.client.shared.arguments import check_count, check_timeout
from nsqsmart.client.shared.discovery import open_endpoint, prepare_endpoint
from nsqsmart.client.shared.metrics import Health, make_meter
from nsqsmart.client.shared.process import at_exit, interrupts
from nsqsmart.config import ConsumerConfig, ConsumerOptions, resolve
from nsqsmart.errors import ClientClosed, ConfigError, UsedAfterFork
from nsqsmart.names import check_channel, check_topic
from nsqsmart.net.threads import spawn
from nsqsmart.policy.positions import position_text


class Ending:
    """Belongs to one start of a Consumer. ``over`` is set when it has ended, with its ``report``.

    None of its locks is taken by a signal handler: see :meth:`wish`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the three below
        self._closing = False
        self._started = False
        self._error: BaseException | None = None
        self._wished = False
        self._process = os.getpid()
        self.report: CloseReport | None = None
        self.over = threading.Event()

    @property
    def closing(self) -> bool:
        """Whether somebody ends it, or has ended it."""
        return self._closing

    def check(self) -> None:
        """Raise ClientClosed if so."""
        if self._closing:
            raise ClientClosed("the Consumer was closed")

    @property
    def error(self) -> BaseException | None:
        """What has ended it from inside."""
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

    def wish(self) -> bool:
        """The same from a signal handler, which may have interrupted any of this: no lock."""
        self._wished = True
        return self._started

    def is_wanted(self) -> bool:
        """start() has come to its end: whether it was to end the consumer meanwhile."""
        with self._lock:
            self._started = True
            return self._wished or self._error is not None

    def leave(self, deadline: float) -> None:
        """At the end of the process: wait for what ends it."""
        if os.getpid() == self._process:
            self.over.wait(max(0.0, deadline - monotonic()))


def recruiter(
    handler: Handler | None, batch_handler: BatchHandler | None, config: ConsumerConfig
) -> Recruit:
    """What makes the staff; raises TypeError or ConfigError for handlers that cannot be used."""
    if handler is not None and batch_handler is not None:
        raise TypeError("give handler or batch_handler, not both")
    meter = make_meter(config)
    if handler is not None:
        single: Handler = check_plain("handler", handler)
        if meter is not None:
            single = measured_handler(meter, single)
        return lambda boss: Crew(single, boss, config.workers)
    if batch_handler is None:
        return Puller
    several: BatchHandler = check_plain("batch_handler", batch_handler)
    if not config.workers:
        raise ConfigError("batch_handler needs workers=1 or more: a reader cannot wait for a batch")
    if meter is not None:
        several = measured_batch_handler(meter, several)
    return lambda boss: BatchCrew(several, boss, config)


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
        self._address = address
        self._endpoint, self._config = resolve(ConsumerConfig, address, options, config=config)
        self._recruit = recruiter(handler, batch_handler, self._config)
        check_giving_up(self._config, topic)
        if self._config.start_at is not None:
            position_text(self._config.start_at)
        prepare_endpoint(self._endpoint)
        self._meter = make_meter(self._config)
        self._figures: ConsumerFigures | None = None
        self._engine: Engine | None = None
        self._process = os.getpid()
        self._tell: Callable[[object], None] = _nobody
        self._paused = False
        self._max_in_flight = self._config.max_in_flight
        self._ending = Ending()

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
        self._ending.check()
        endpoint = open_endpoint(self._endpoint)
        giving_up = GivingUp(self._config, self._address)
        self._engine = engine = Engine(
            self._names, self._recruit, endpoint, self._config, giving_up, self._stop
        )
        self._figures = watch(self._meter, engine)
        engine.set_max_in_flight(self._max_in_flight)
        engine.pause(self._paused)
        try:
            # A close() that came before there was anything to end does not come again.
            self._ending.check()
            engine.start()
        except BaseException:
            self._close(0)
            _end(self._figures)
            raise
        if self._ending.is_wanted():
            self._close_behind()
        return self

    def run(self) -> CloseReport:
        """Start, and block until SIGINT, SIGTERM or close(); then drain.

        As :func:`nsqsmart.run` with this one alone.
        """
        (only,) = run(self)
        return only

    def join(self, timeout: float | None = None) -> bool:
        """Wait until it has been closed; False after *timeout* seconds.

        SystemExit or KeyboardInterrupt from a handler, and NotAuthorized, close it and are raised.
        """
        self._check_process()
        ended = self._ending.over.wait(timeout)
        if ended and self._ending.error is not None:
            raise self._ending.error
        return ended

    def close(self, timeout: float | None = None) -> CloseReport:
        """Drain within *timeout* seconds (default ``close_timeout``) and end every thread.

        Running handlers and ``with message:`` blocks may finish; messages that nobody has begun
        with, and those detached or pulled, go back at once. May be called twice, from any thread
        and from a signal handler. From a handler, or if the signal interrupted a call of this
        consumer or an answer, it returns at once, and the drain goes on behind it: the handler's
        own message is answered, and the interrupted call lets go of its locks.
        """
        self._check_process()
        if interrupts(self, _CALLS, _ANSWERS):
            behind = self._ending.wish()
        elif self._engine is not None and self._engine.crew.is_handling():
            behind = True
        else:
            return self._close(timeout)
        if behind:
            self._close_behind(timeout)
        return self.stats()

    def _close_behind(self, timeout: float | None = None) -> None:
        # If the process ends meanwhile, it waits for the drain.
        at_exit(self._ending)
        spawn("closer", lambda: self._close(timeout))

    def _close(self, timeout: float | None) -> CloseReport:
        limit = self._config.close_timeout if timeout is None else check_timeout(timeout)
        if self._ending.claim():
            self._drain(limit)
        else:
            # It is over when the first one says so, which may have more time.
            self._ending.over.wait(limit)
        return self._ending.report or self.stats()

    def _drain(self, limit: float) -> None:
        try:
            if self._engine is not None:
                self._ending.report = drain(self._engine, monotonic() + limit)
        finally:
            # Whatever it was that failed, nobody waits for ever.
            _end(self._figures)
            self._ending.over.set()
            self._tell(None)

    def _stop(self, error: BaseException) -> None:
        """From inside, on any thread: drain, and raise *error* for whoever waits."""
        started = self._ending.fail(error)
        self._tell(error)
        if self._engine is not None:
            self._engine.crew.end(error)
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
        if self._ending.over.is_set():
            raise ClientClosed("the Consumer was closed")
        count = check_count("max_messages", max_messages, 1)
        limit = None if timeout is None else check_timeout(timeout)
        return noted(self._meter, puller.take(count, limit))

    def __iter__(self) -> Iterator[Message]:
        """One message after another, as :meth:`poll` gives them, until it is closed."""
        while found := noted(self._meter, self._puller().take(1, None)):
            yield found[0]

    def _puller(self) -> Puller:
        self._check_process()
        if self._engine is None:
            raise RuntimeError("the Consumer was not started: use it in a with block, or start()")
        crew = self._engine.crew
        if isinstance(crew, Puller):
            return crew
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
        if self._engine is not None:
            self._engine.pause(paused)

    def set_max_in_flight(self, count: int) -> None:
        """Let *count* messages be in flight from now on; 0 stops deliveries.

        What is in flight beyond that stays. Raises TypeError, ConfigError below 0.
        """
        self._check_process()
        self._max_in_flight = check_count("max_in_flight", count, 0)
        if self._engine is not None:
            self._engine.set_max_in_flight(count)

    def health(self) -> Health:
        """How it is, as far as it knows; asks nobody."""
        self._check_process()
        if self._ending.closing:
            return Health("closed")
        return Health("idle") if self._engine is None else health(self._engine)

    def is_starved(self) -> bool:
        """Whether handlers and callers hold 85 % of a connection's share of ``max_in_flight``.

        Nothing more comes then before something is answered. Messages that were delivered and
        wait for a worker, or for poll(), do not count: they come without that.
        """
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
        if error is None or os.getpid() == self._process:
            self.close()  # in a child it raises, and nothing hides what ends the child

    def check_runnable(self) -> None:
        """Raise RuntimeError if :func:`nsqsmart.run` would block with nobody to handle messages."""
        if self._recruit is Puller:
            raise RuntimeError("this Consumer has no handler: iterate over it, or poll()")

    def on_end(self, tell: Callable[[object], None]) -> None:
        """Have *tell* called with what ends it from inside, and with None when it has ended."""
        self._tell = tell

    def has_ended(self) -> bool:
        """Whether it was closed, and that is over."""
        return self._ending.over.is_set()

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
        self._ending = Ending()
        for subscription in list(engine.subscriptions) if engine else ():
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
    """Listens to nothing."""
