"""A producer's life: how it is made, looked at, carried over a fork, and closed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import monotonic
from types import CodeType, TracebackType
from typing import Any, ClassVar, Self, Unpack

from nsqsmart.client import inspecting
from nsqsmart.client.arguments import (
    check_bodies,
    check_body,
    check_delay,
    check_headers,
    check_place,
    check_timeout,
    make_trace_ids,
)
from nsqsmart.client.endpoints import open_endpoint, prepare_endpoint
from nsqsmart.client.event_loops import warn_in_event_loop
from nsqsmart.client.exiting import at_exit
from nsqsmart.client.health import Health
from nsqsmart.client.machinery import Machinery
from nsqsmart.client.pending import Pending
from nsqsmart.client.processes import PerProcess
from nsqsmart.client.publication import Publication
from nsqsmart.client.receipt import Receipt
from nsqsmart.client.signals import interrupts
from nsqsmart.client.spool import Flushed, Send, Spool
from nsqsmart.config import ProducerConfig, ProducerOptions, resolve
from nsqsmart.errors import ClientClosed, ConfigError, PublishError
from nsqsmart.names import check_topic
from nsqsmart.net.handshake import make_greeting
from nsqsmart.policy.routing import Key

_MAX_KNOWN_TOPICS = 10_000


class BaseProducer:
    """Everything of a Producer but publishing; not to be used alone."""

    _calls: ClassVar[frozenset[CodeType]] = frozenset()
    """What a signal handler that closes the producer may have interrupted."""

    def __init__(
        self,
        address: str | None = None,
        *,
        config: ProducerConfig | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._endpoint, self._config = resolve(ProducerConfig, address, options, config=config)
        prepare_endpoint(self._endpoint)
        self._greeting = make_greeting(self._config)
        self._spool = Spool(self._config.spool, self._config) if self._config.spool else None
        self._publish_timeout = self._config.publish_timeout
        self._trace = self._config.trace
        self._closed = False
        self._known_topics: set[str] = set()
        self._machinery: PerProcess[Machinery] = PerProcess()
        # Not on first use, which may be in somebody else's hook: hooks run the last one first.
        at_exit(self)

    @staticmethod
    def check(
        topic: str,
        body: bytes,
        *,
        key: Key | None = None,
        partition: int | None = None,
        trace: bool | None = None,  # noqa: ARG004 - the arguments of publish()
        trace_id: int | None = None,
        headers: Mapping[str, Any] | None = None,
        tag: str | None = None,
        delay: float | None = None,
        timeout: float | None = None,
    ) -> bytes:
        """Look at what a publish would be given, and send nothing; returns the body as bytes.

        For those who publish later, as at a commit, and want to hear of a mistake now. The
        arguments are those of ``publish``. Raises TypeError and ConfigError, as that does.
        """
        check_topic(topic)
        checked = check_body(body)
        check_place(key, partition)
        make_trace_ids(trace_id, 1)
        check_headers(headers, tag)
        check_delay(delay)
        if timeout is not None:
            check_timeout(timeout)
        return checked

    @classmethod
    def check_many(
        cls,
        topic: str,
        bodies: Iterable[bytes],
        *,
        key: Key | None = None,
        partition: int | None = None,
        headers: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> tuple[bytes, ...]:
        """As :meth:`check`, for the arguments of ``publish_many``; returns the bodies."""
        check_topic(topic)
        checked = check_bodies(bodies)
        cls.check(topic, checked[0], key=key, partition=partition, headers=headers, timeout=timeout)
        return checked

    def warm(self, *topics: str, timeout: float | None = None) -> None:
        """Look *topics* up and connect ahead of the first publish; default ``publish_timeout``.

        Raises DiscoveryError and ConnectError.
        """
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        for topic in topics:
            self._know(topic)
        inspecting.warm(self._running(), topics, monotonic() + limit)

    def partition_of(self, topic: str, key: Key, *, timeout: float | None = None) -> int | None:
        """The partition that messages of *key* go to now; None where *topic* has no partitions.

        For those who gather what goes to one place, for :meth:`publish_many`. Asks a lookup only
        if it must, for *timeout* seconds at most; default ``publish_timeout``. Raises TypeError for
        a key that cannot be, DiscoveryError, and ClientClosed after :meth:`close`.
        """
        self._know(topic)
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        return inspecting.partition_of(
            self._running(), topic, key, self._config.sharding, monotonic() + limit
        )

    @property
    def has_spool(self) -> bool:
        """Whether it keeps on the disk what cannot be sent: option ``spool``."""
        return self._spool is not None

    def flush_spool(self, timeout: float | None = None) -> list[Flushed]:
        """Send what waits in the spool, topic by topic, for *timeout* seconds at most.

        Default: ``publish_timeout``. Returns what came of each topic that had something: what a
        server says is in its ``error``, and not raised. Raises :class:`ConfigError` without the
        option ``spool``, and ClientClosed after :meth:`close`.
        """
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        if self._spool is None:
            raise ConfigError("there is no spool to flush: give spool=FOLDER")
        return self._spool.flush(self._running().publisher, monotonic() + limit)

    def ping(self, timeout: float | None = None) -> dict[str, float]:
        """Shake hands with every nsqd; returns the seconds it took by "host:port".

        Those that do not answer are left out. Raises ConnectError if none does, DiscoveryError if
        no lookup does. *timeout* in seconds for all of it; default ``publish_timeout``.
        """
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        return inspecting.ping(self._running(), monotonic() + limit)

    def stats(self) -> dict[str, Any]:
        """Figures that JSON can take.

        ``pools`` by nsqd (:class:`~nsqsmart.net.places.PoolStats`), ``topics`` as the lookups have
        them, nsqds that are ``avoided`` for a while, ``turns_waiting``, ``async_pending``.
        """
        machinery = self._machinery.get()
        return inspecting.stats(machinery) if machinery else {}

    def health(self) -> Health:
        """What the last calls found; asks nobody."""
        if self._closed:
            return Health("closed")
        machinery = self._machinery.get()
        return inspecting.health(machinery) if machinery else Health("idle")

    def close(self, timeout: float | None = None) -> None:
        """Refuse new calls, let those under way finish for *timeout* seconds, end the sockets.

        Default: ``close_timeout``. Calls still waiting then raise PublishFailed. May be called
        twice, from any thread, and from a signal handler: if that interrupted a call of this
        producer, nothing is waited for, and the sockets end with the call.
        """
        limit = self._config.close_timeout if timeout is None else check_timeout(timeout)
        self._closed = True
        if interrupts(self, self._calls):
            # The call goes on when we return: to wait for it, or for a lock it holds, is for ever.
            machinery = self._machinery.get()
            if machinery:
                machinery.refuse()
            return
        machinery = self._machinery.take()
        if machinery:
            machinery.close(monotonic() + limit)

    def leave(self, deadline: float) -> None:
        """At the end of the process: give what publish_async has sent until *deadline*."""
        machinery = self._machinery.get()
        if machinery:
            machinery.flush(deadline)
            self.close(timeout=max(0.0, deadline - monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Producer {self._endpoint}{' closed' if self._closed else ''}>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Producer cannot be pickled: make it inside the function that uses it")

    def _running(self) -> Machinery:
        machinery = self._machinery.get()
        if machinery is not None and not self._closed:
            return machinery
        if self._closed:
            raise ClientClosed("the Producer was closed")
        machinery = self._machinery.get_or_make(
            lambda: Machinery(open_endpoint(self._endpoint), self._config, self._greeting)
        )
        machinery.begin()
        if self._closed:
            # Between the first look and now: close() may not have found it.
            self._machinery.take()
            machinery.close(monotonic())
            raise ClientClosed("the Producer was closed")
        return machinery

    def _send(self, send: Send, publication: Publication, deadline: float) -> Receipt:
        """Publish by *send*; with a spool behind what waits in it."""
        publisher = self._running().publisher
        if self._spool is None:
            return send(publisher, publication, deadline)
        return self._spool.publish(send, publisher, publication, deadline)

    def _settled(self, send: Send, publication: Publication, deadline: float) -> Pending:
        """The same, and what came of it."""
        pending = Pending(publication.topic, publication.bodies[0], publication, deadline, 0.0)
        try:
            pending.settle(self._send(send, publication, deadline))
        except PublishError as error:
            pending.settle(error)
        return pending

    def _know(self, topic: str) -> None:
        """Check a topic's name once."""
        check_topic(topic)
        warn_in_event_loop()
        if len(self._known_topics) < _MAX_KNOWN_TOPICS:
            self._known_topics.add(topic)
