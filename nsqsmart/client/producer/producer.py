"""The blocking, thread-safe Producer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from time import monotonic
from types import CodeType, TracebackType
from typing import Any, ClassVar, Self, Unpack

from nsqsmart.client.pipelining.pending import Pending
from nsqsmart.client.producer.runtime import ProducerRuntime
from nsqsmart.client.publishing.call import (
    publish,
    publish_plain,
    publish_plain_batch,
    publish_split,
)
from nsqsmart.client.publishing.shared_state import PublishingState
from nsqsmart.client.shared.arguments import (
    Publication,
    PublishArguments,
    check_bodies,
    check_body,
    check_delay,
    check_headers,
    check_place,
    check_timeout,
    encode_json,
    make_trace_ids,
)
from nsqsmart.client.shared.discovery import open_endpoint, prepare_endpoint
from nsqsmart.client.shared.metrics import Health
from nsqsmart.client.shared.process import PerProcess, at_exit, interrupts, warn_in_event_loop
from nsqsmart.client.shared.receipt import Receipt
from nsqsmart.client.spooling.spool import Flushed, Send, Spool
from nsqsmart.config import ProducerConfig, ProducerOptions, resolve
from nsqsmart.errors import ClientClosed, ConfigError, PublishError
from nsqsmart.names import check_topic
from nsqsmart.net.handshake import make_greeting
from nsqsmart.policy.routing import Key
from nsqsmart.tracing import sampled, switch

_MAX_KNOWN_TOPICS = 10_000

_PLAIN = (None,) * 6
_Given = tuple[
    Key | None, int | None, int | None, Mapping[str, Any] | None, str | None, float | None
]


class Producer:
    """Publishes to NSQ with plain blocking calls; share one between threads, and over a fork.

    It finds the leader of the message's partition, keeps connections in a pool, and when a leader
    has moved looks up again and retries, all inside one deadline. It keeps no thread: publish()
    runs wholly in the caller's.

    Args:
        address: ``nsq+lookupd://host:4161,...``, ``nsq://host:4150,...``,
            ``nsq+embedded://NAME``; with TLS to nsqd ``nsqs+lookupd://`` and ``nsqs://``.
            Default: the environment variable ``NSQSMART_URL``.
        config: a :class:`~nsqsmart.config.ProducerConfig` instead of the defaults.
        **options: any option by its name, as ``publish_timeout=5`` (seconds) or ``"250ms"``.

    Raises:
        ConfigError: an address or option cannot be used. Nothing is dialled here.
    """

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
        self._runtime: PerProcess[ProducerRuntime] = PerProcess()
        # Not on first use, which may be in another library's hook: hooks run the last one first.
        at_exit(self)

    def publish(
        self,
        topic: str,
        body: bytes,
        *,
        key: Key | None = None,
        partition: int | None = None,
        trace: bool | None = None,
        trace_id: int | None = None,
        headers: Mapping[str, Any] | None = None,
        tag: str | None = None,
        delay: float | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Store *body* in *topic*; return once an nsqd has said OK to it.

        Args:
            topic: 1 to 64 characters of letters, digits, ``.``, ``_`` and ``-``.
            body: the message, not empty.
            key: messages of one key go to one partition, in order; str or int (bytes too with
                ``sharding="murmur3"`` or ``"crc32"``). Redesigned clusters only.
            partition: this very partition instead. Redesigned clusters only.
            trace: have the servers trace the message; default: the option ``trace``.
            trace_id: 0 to 2**64 - 1, implies *trace*; default: a random one.
            headers: what JSON can say, by name; only topics made with ``extend_support``.
            tag: consumers with this ``desired_tag`` get the message; the same topics.
            delay: deliver it so many seconds from now, best effort. Original nsqds only.
            timeout: seconds for everything, retries included; default ``publish_timeout``.

        With the option ``spool``, what cannot be sent now is kept on the disk, and the receipt
        says ``spooled``; a later call sends it, before others of its topic.

        Raises:
            TypeError, ConfigError: an argument cannot be used; nothing was sent.
            PublishError: see its subclasses; ``outcome`` says whether it may be stored.
            ClientClosed: after :meth:`close`.
        """
        if topic not in self._known_topics:
            self._know(topic)
        if type(body) is not bytes or not body:
            body = check_body(body)
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        traces = (self._trace or (not switch.silent and sampled(topic))) if trace is None else trace
        runtime = self._runtime.held.get(os.getpid())
        if runtime is None or self._closed:
            runtime = self._running()
        plain = (key, partition, trace_id, headers, tag, delay) == _PLAIN
        if plain and not traces and self._spool is None:
            now = monotonic()
            return publish_plain(runtime.publishing, topic, body, now, now + limit)
        publication = _publication(
            topic,
            body,
            (key, partition, trace_id, headers, tag, delay),
            traces=traces,
            must_trace=trace is True,
        )
        return self._send(publish, runtime.publishing, publication, monotonic() + limit)

    def publish_async(
        self,
        topic: str,
        body: bytes,
        *,
        key: Key | None = None,
        partition: int | None = None,
        trace: bool | None = None,
        trace_id: int | None = None,
        headers: Mapping[str, Any] | None = None,
        tag: str | None = None,
        delay: float | None = None,
        timeout: float | None = None,
    ) -> Pending:
        """Queue *body* and return at once; the arguments are those of :meth:`publish`.

        Unkeyed messages do not wait for each other's answers; keyed ones of a partition leave as
        one batch when the batch before is answered, so that their order survives retries. At most
        ``async_max_messages`` and ``async_max_bytes`` are on their way: then it waits, or with
        ``on_full="raise"`` fails. The first call starts threads; with a spool there are none: what
        it returns is settled.

        Returns:
            a :class:`Pending`, whose ``result()`` returns or raises what :meth:`publish` would.

        Raises:
            TypeError, ConfigError: an argument cannot be used; nothing was sent.
            PublishError: the limit was not free in time; nothing was sent.
            ClientClosed: after :meth:`close`.
            RuntimeError: the first call comes in a function of ``atexit``, where Python 3.12 and
                later start no thread (decisions#86); :meth:`publish` works there.
        """
        if topic not in self._known_topics:
            self._know(topic)
        if type(body) is not bytes or not body:
            body = check_body(body)
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        traces = (self._trace or (not switch.silent and sampled(topic))) if trace is None else trace
        runtime = self._running()
        plain = (key, partition, trace_id, headers, tag, delay) == _PLAIN
        if plain and not traces and self._spool is None:
            return runtime.asynchronous().submit_plain(topic, body, monotonic(), limit)
        publication = _publication(
            topic,
            body,
            (key, partition, trace_id, headers, tag, delay),
            traces=traces,
            must_trace=trace is True,
        )
        if self._spool is not None:
            return self._settled(runtime.publishing, publication, monotonic() + limit)
        return runtime.asynchronous().submit(publication, monotonic() + limit, limit)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until no message of :meth:`publish_async` is in flight; returns whether that is so.

        *timeout* in seconds; default ``publish_timeout``, by which everything is settled.
        """
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        runtime = self._runtime.get()
        return runtime is None or runtime.flush(monotonic() + limit)

    def publish_json(
        self, topic: str, value: object, **arguments: Unpack[PublishArguments]
    ) -> Receipt:
        """Publish *value* as compact JSON in UTF-8; the arguments are those of :meth:`publish`."""
        return self.publish(topic, encode_json(value), **arguments)

    def publish_many(
        self,
        topic: str,
        bodies: Iterable[bytes],
        *,
        key: Key | None = None,
        partition: int | None = None,
        trace: bool | None = None,
        headers: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        split: bool = False,
    ) -> Receipt:
        """Store *bodies* with one MPUB, in one partition and in their order.

        All are accepted, or an error is raised; then any number of the first ones may be stored,
        unless its ``outcome`` says more. Not a transaction (decisions#8).

        Args:
            bodies: at least one message, none of them empty.
            split: send several batches, each of at most 1 MiB or 1,000 messages, one after the
                other: all to one partition with *key* or *partition*, else wherever there is room.
                ``accepted`` of an error tells how many messages batches before it stored.
            timeout: seconds for everything, all batches included.

        The other arguments, and what is raised, are those of :meth:`publish`; *headers* go with
        every message. ``count`` of the receipt is the number of messages.
        """
        if topic not in self._known_topics:
            self._know(topic)
        checked = check_bodies(bodies)
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        traces = (self._trace or (not switch.silent and sampled(topic))) if trace is None else trace
        publishing, now = self._running().publishing, monotonic()
        plain = key is None and partition is None and headers is None
        if plain and not traces and not split and self._spool is None:
            return publish_plain_batch(publishing, topic, checked, now, now + limit)
        batch = Publication(
            topic,
            checked,
            key,
            check_place(key, partition),
            make_trace_ids(None, len(checked)) if traces else (),
            must_trace=trace is True,
            headers=check_headers(headers, None),
            batch=True,
        )
        send = publish_split if split else publish
        return self._send(send, publishing, batch, now + limit)

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
        """Check the arguments of a publish and send nothing; returns the body as bytes.

        For callers that publish later, as at a commit, and want to hear of a mistake now. The
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
        """Check the arguments of ``publish_many`` and send nothing; returns the bodies as bytes."""
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
        self._running().warm(topics, monotonic() + limit)

    def partition_of(self, topic: str, key: Key, *, timeout: float | None = None) -> int | None:
        """The partition that messages of *key* go to now; None where *topic* has no partitions.

        For callers that gather a batch of a partition for :meth:`publish_many`. Asks a lookup only
        if it must, for *timeout* seconds at most; default ``publish_timeout``. Raises TypeError for
        a key that cannot be, DiscoveryError, and ClientClosed after :meth:`close`.
        """
        self._know(topic)
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        return self._running().partition_of(topic, key, self._config.sharding, monotonic() + limit)

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
        return self._spool.flush(self._running().publishing, monotonic() + limit)

    def ping(self, timeout: float | None = None) -> dict[str, float]:
        """Shake hands with every nsqd; returns the seconds it took by "host:port".

        Those that do not answer are left out. Raises ConnectError if none does, DiscoveryError if
        no lookup does. *timeout* in seconds for all of it; default ``publish_timeout``.
        """
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        return self._running().ping(monotonic() + limit)

    def stats(self) -> dict[str, Any]:
        """Figures that JSON can take.

        ``pools`` by nsqd (:class:`~nsqsmart.net.pool.PoolStats`), ``topics`` as the lookups have
        them, nsqds that are ``avoided`` for a while, ``turns_waiting``, ``async_pending``.
        """
        runtime = self._runtime.get()
        return runtime.stats() if runtime else {}

    def health(self) -> Health:
        """Return what the last calls found; sends nothing to a server."""
        if self._closed:
            return Health("closed")
        runtime = self._runtime.get()
        return runtime.health() if runtime else Health("idle")

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
            runtime = self._runtime.get()
            if runtime:
                runtime.refuse()
            return
        runtime = self._runtime.take()
        if runtime:
            runtime.close(monotonic() + limit)

    def leave(self, deadline: float) -> None:
        """At the end of the process: give what publish_async has sent until *deadline*."""
        runtime = self._runtime.get()
        if runtime:
            runtime.flush(deadline)
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

    def _running(self) -> ProducerRuntime:
        runtime = self._runtime.get()
        if runtime is not None and not self._closed:
            return runtime
        if self._closed:
            raise ClientClosed("the Producer was closed")
        runtime = self._runtime.get_or_make(
            lambda: ProducerRuntime(open_endpoint(self._endpoint), self._config, self._greeting)
        )
        runtime.begin()
        if self._closed:
            # Between the first look and now: close() may not have found it.
            self._runtime.take()
            runtime.close(monotonic())
            raise ClientClosed("the Producer was closed")
        return runtime

    def _send(
        self, send: Send, publishing: PublishingState, publication: Publication, deadline: float
    ) -> Receipt:
        """Publish by *send*; with a spool after what waits in it."""
        if self._spool is None:
            return send(publishing, publication, deadline)
        return self._spool.publish(send, publishing, publication, deadline)

    def _settled(
        self, publishing: PublishingState, publication: Publication, deadline: float
    ) -> Pending:
        """Publish *publication* now; returns it settled."""
        pending = Pending(publication.topic, publication.bodies[0], publication, deadline, 0.0)
        try:
            pending.settle(self._send(publish, publishing, publication, deadline))
        except PublishError as error:
            pending.settle(error)
        return pending

    def _know(self, topic: str) -> None:
        """Check a topic's name once."""
        check_topic(topic)
        warn_in_event_loop()
        if len(self._known_topics) < _MAX_KNOWN_TOPICS:
            self._known_topics.add(topic)


def _publication(
    topic: str, body: bytes, given: _Given, *, traces: bool, must_trace: bool
) -> Publication:
    """What publish() and publish_async() were *given* besides topic and body, checked."""
    key, partition, trace_id, headers, tag, delay = given
    # Nearly every keyed message has a text for a key, and nothing else to check.
    if type(key) is not str or partition is not None:
        check_place(key, partition)
    return Publication(
        topic,
        (body,),
        key,
        partition,
        make_trace_ids(trace_id, 1) if traces or trace_id is not None else (),
        must_trace=must_trace or trace_id is not None,
        headers=None if headers is None and tag is None else check_headers(headers, tag),
        tag=tag,
        delay=None if delay is None else check_delay(delay),
    )


_CALLS = (
    Producer.publish,
    Producer.publish_many,
    Producer.publish_async,
    Producer.flush,
    Producer.warm,
    Producer.ping,
    Producer.stats,
    Producer.health,
    Producer.partition_of,
    Producer.flush_spool,
    Producer.close,
)
Producer._calls = frozenset(call.__code__ for call in _CALLS)  # noqa: SLF001 - its own
