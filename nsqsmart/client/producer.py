"""The blocking, thread-safe Producer."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from time import monotonic
from types import TracebackType
from typing import Any, Self

from nsqsmart.client import inspecting
from nsqsmart.client.arguments import (
    check_bodies,
    check_body,
    check_delay,
    check_headers,
    check_timeout,
    check_trace_id,
    encode_json,
)
from nsqsmart.client.endpoints import open_endpoint, prepare_endpoint
from nsqsmart.client.health import Health
from nsqsmart.client.machinery import Machinery
from nsqsmart.client.pending import Pending
from nsqsmart.client.processes import PerProcess
from nsqsmart.client.publication import Publication
from nsqsmart.client.publish_call import publish, publish_plain
from nsqsmart.client.receipt import Receipt
from nsqsmart.client.splitting import publish_split
from nsqsmart.config import ProducerConfig, resolve
from nsqsmart.errors import ClientClosed
from nsqsmart.names import check_partition, check_topic
from nsqsmart.net.handshake import make_greeting
from nsqsmart.policy.routing import Key, check_key

_MAX_KNOWN_TOPICS = 10_000


class Producer:
    """Publishes to NSQ with plain blocking calls; share one between threads, and over a fork.

    It finds the leader of the message's partition, keeps connections in a pool, and when a leader
    has moved looks up again and retries, all inside one deadline. It starts no thread: publish()
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

    def __init__(
        self,
        address: str | None = None,
        *,
        config: ProducerConfig | None = None,
        **options: object,
    ) -> None:
        self._endpoint, self._config = resolve(ProducerConfig, address, options, config=config)
        prepare_endpoint(self._endpoint)
        self._greeting = make_greeting(self._config)
        self._publish_timeout = self._config.publish_timeout
        self._trace = self._config.trace
        self._closed = False
        self._known_topics: set[str] = set()
        self._machinery: PerProcess[Machinery] = PerProcess()

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
        publisher = self._running().publisher
        plain = key is None and partition is None and trace_id is None and delay is None
        plain = plain and headers is None and tag is None
        if plain and not (self._trace if trace is None else trace):
            return publish_plain(publisher, topic, body, monotonic() + limit)
        if trace_id is not None:
            trace, trace_id = True, check_trace_id(trace_id)
        publication = self._describe(
            topic, (body,), key, partition, trace, headers, tag, trace_id=trace_id
        )
        if delay is not None:
            publication = publication._replace(delay=check_delay(delay))
        return publish(publisher, publication, monotonic() + limit)

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
        """Send *body* on its way, and return at once; the arguments are those of :meth:`publish`.

        Unkeyed messages do not wait for each other's answers; keyed ones of a partition leave as
        one batch when the batch before is answered, so that their order survives retries. At most
        ``async_max_messages`` and ``async_max_bytes`` are on their way: then it waits, or with
        ``on_full="raise"`` fails. The first call starts threads.

        Returns:
            a :class:`Pending`, whose ``result()`` returns or raises what :meth:`publish` would.

        Raises:
            TypeError, ConfigError: an argument cannot be used; nothing was sent.
            PublishError: there was no room in time; nothing was sent.
            ClientClosed: after :meth:`close`.
        """
        if topic not in self._known_topics:
            self._know(topic)
        if type(body) is not bytes or not body:
            body = check_body(body)
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        if trace_id is not None:
            trace, trace_id = True, check_trace_id(trace_id)
        publication = self._describe(
            topic, (body,), key, partition, trace, headers, tag, trace_id=trace_id
        )
        if delay is not None:
            publication = publication._replace(delay=check_delay(delay))
        deadline = monotonic() + limit
        return self._running().asynchronous().submit(publication, deadline, limit)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until nothing of :meth:`publish_async` is on its way; whether that is so.

        *timeout* in seconds; default ``publish_timeout``, by which everything is settled.
        """
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        machinery = self._machinery.get()
        return machinery is None or machinery.flush(monotonic() + limit)

    def publish_json(self, topic: str, value: object, **arguments: Any) -> Receipt:
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
        unless its ``outcome`` says more. Not a transaction (reliability P6).

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
        publisher = self._running().publisher
        whole = self._describe(topic, checked, key, partition, trace, headers, None)
        whole = whole._replace(batch=True)
        deadline = monotonic() + limit
        return (
            publish_split(publisher, whole, deadline)
            if split
            else publish(publisher, whole, deadline)
        )

    def warm(self, *topics: str, timeout: float | None = None) -> None:
        """Look *topics* up and connect ahead of the first publish; default ``publish_timeout``.

        Raises DiscoveryError and ConnectError.
        """
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        for topic in topics:
            self._know(topic)
        inspecting.warm(self._running(), topics, monotonic() + limit)

    def ping(self, timeout: float | None = None) -> dict[str, float]:
        """Shake hands with every nsqd; returns the seconds it took by "host:port".

        Those that do not answer are left out. Raises ConnectError if none does, DiscoveryError if
        no lookup does. *timeout* in seconds for all of it; default ``publish_timeout``.
        """
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        return inspecting.ping(self._running(), monotonic() + limit)

    def stats(self) -> dict[str, Any]:
        """Figures that JSON can take.

        ``pools`` by nsqd (:class:`~nsqsmart.net.pool.PoolStats`), ``topics`` as the lookups have
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
        twice, and from any thread.
        """
        self._closed = True
        machinery = self._machinery.take()
        if machinery:
            limit = self._config.close_timeout if timeout is None else check_timeout(timeout)
            machinery.close(monotonic() + limit)

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
        return self._machinery.get_or_make(
            lambda: Machinery(open_endpoint(self._endpoint), self._config, self._greeting)
        )

    def _describe(
        self,
        topic: str,
        bodies: tuple[bytes, ...],
        key: Key | None,
        partition: int | None,
        trace: bool | None,  # noqa: FBT001 - as publish() has it, which takes it by name
        headers: Mapping[str, Any] | None,
        tag: str | None,
        *,
        trace_id: int | None = None,
    ) -> Publication:
        """What is to be published, checked."""
        if key is not None:
            check_key(key)
            if partition is not None:
                raise TypeError("give key or partition, not both")
        elif partition is not None:
            check_partition(partition)
        check_headers(headers, tag)
        trace_ids: tuple[int, ...] = ()
        if trace_id is not None:
            trace_ids = (trace_id,)
        elif self._trace if trace is None else trace:
            trace_ids = tuple(random.getrandbits(63) or 1 for _ in bodies)
        return Publication(topic, bodies, key, partition, trace_ids, bool(trace), headers, tag)

    def _know(self, topic: str) -> None:
        """Check a topic's name once."""
        check_topic(topic)
        if len(self._known_topics) < _MAX_KNOWN_TOPICS:
            self._known_topics.add(topic)
